"""A view that counts and waits for the test, and requests in threads, for tests of `cached_page`."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.template import engines
from django.template.response import TemplateResponse
from django.test import RequestFactory

from django_redis_locks.cache import cached_page
from tests.contract.matrix import eventually
from tests.django.helpers import PATIENCE
from tests.probes.cache import disconnect_caches, followers, waiters_in_store

Page = Callable[..., Any]


class Site:
    """A view that counts, says that it began, and goes on when it may."""

    def __init__(self, answer: Callable[[HttpRequest, int], Any] | None = None, *, closed: bool = False) -> None:
        self.rendered = 0
        self.began = threading.Semaphore(0)
        self.go = threading.Event()
        if not closed:
            self.go.set()
        self.answer = answer or (lambda _, number: HttpResponse(f"page {number}"))
        self._mutex = threading.Lock()

    def __call__(self, request: HttpRequest) -> Any:
        number = self.begin()
        assert self.go.wait(PATIENCE)
        return self.answer(request, number)

    async def arender(self, request: HttpRequest) -> Any:
        number = self.begin()
        await happens(self.go.is_set)
        return self.answer(request, number)

    def begin(self) -> int:
        with self._mutex:
            self.rendered += 1
            number = self.rendered
        self.began.release()
        return number

    def view(self, *, timeout: float | None = 300, wait: float = PATIENCE, **options: Any) -> Page:
        return cached_page(timeout, wait=wait, **options)(self.__call__)

    def aview(self, wait: float = PATIENCE, **options: Any) -> Page:
        return cached_page(300, wait=wait, **options)(self.arender)

    def has_begun(self, times: int = 1) -> None:
        for _ in range(times):
            assert self.began.acquire(timeout=PATIENCE)

    def at_once(self, view: Page, number: int = 3, **request: Any) -> list[str]:
        """What requests get that come at once: one renders until another one waits for it."""
        found = self._come(view, number, request)
        self.has_begun()
        assert is_waiting(found[0])
        self.go.set()
        return [text(each) for each in found]

    def both_render(self, view: Page, **request: Any) -> bool:
        """Two requests at once, neither of which waits for the other one."""
        found = self._come(view, 2, request)
        self.has_begun(2)
        self.go.set()
        return len({text(each) for each in found}) == 2

    def _come(self, view: Page, number: int, request: dict[str, Any]) -> list[Future[Any]]:
        while self.began.acquire(blocking=False):
            pass
        self.go.clear()
        return [ask(view, get(**request)) for _ in range(number)]


def get(path: str = "/page/", method: str = "GET", **headers: str) -> HttpRequest:
    return RequestFactory().generic(method, path, headers=headers)


def ask(view: Page, request: HttpRequest | None = None) -> Future[Any]:
    """A request in a thread of its own."""
    found: Future[Any] = Future()

    def work() -> None:
        try:
            found.set_result(view(request or get()))
        except BaseException as error:  # noqa: BLE001 - raised again where the test looks
            found.set_exception(error)
        finally:
            disconnect_caches()

    threading.Thread(target=work, daemon=True).start()
    return found


def text(response: Any) -> str:
    """The content of a response, or of a future one."""
    content = response.result(PATIENCE) if isinstance(response, Future) else response
    return str(content.content.decode())


async def happens(condition: Callable[[], object]) -> None:
    await asyncio.to_thread(eventually, condition)


def waiting() -> bool:
    """Whether a request of this process waits for the page of another one."""
    return bool(waiters_in_store("default") or followers("default"))


def is_waiting(found: Future[Any]) -> bool:
    """Wait until a request waits for another one, or this one is done; whether it isn't."""
    eventually(lambda: waiting() or found.done())
    return not found.done()


def template_response(request: HttpRequest, number: int) -> TemplateResponse:
    template: Any = engines["django"].from_string("page {{ number }}{{ boom.now }}")
    return TemplateResponse(request, template, {"number": number})


class Boom:
    @property
    def now(self) -> str:
        raise ZeroDivisionError

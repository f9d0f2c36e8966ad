"""A view that counts its calls and waits for the test, and requests in threads: helpers of tests of `cached_page`."""

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


class CountingView:
    """A view that counts its calls and waits until the test opens the gate."""

    def __init__(self, answer: Callable[[HttpRequest, int], Any] | None = None, *, closed: bool = False) -> None:
        self.rendered = 0
        self.began = threading.Semaphore(0)
        self.gate = threading.Event()
        if not closed:
            self.gate.set()
        self.answer = answer or (lambda _, number: HttpResponse(f"page {number}"))
        self._mutex = threading.Lock()

    def __call__(self, request: HttpRequest) -> Any:
        number = self.begin()
        assert self.gate.wait(PATIENCE)
        return self.answer(request, number)

    async def arender(self, request: HttpRequest) -> Any:
        number = self.begin()
        await aeventually(self.gate.is_set)
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

    def wait_until_begun(self, times: int = 1) -> None:
        for _ in range(times):
            assert self.began.acquire(timeout=PATIENCE)

    def bodies_of_concurrent(self, view: Page, number: int = 3, **request: Any) -> list[str]:
        """Send concurrent requests; the first one renders until another one waits for it. Return their bodies."""
        found = self._start_requests(view, number, request)
        self.wait_until_begun()
        assert waits_for_another(found[0])
        self.gate.set()
        return [body_of(each) for each in found]

    def both_render(self, view: Page, **request: Any) -> bool:
        """Send two concurrent requests. Return whether both render, without waiting for each other."""
        found = self._start_requests(view, 2, request)
        self.wait_until_begun(2)
        self.gate.set()
        return len({body_of(each) for each in found}) == 2

    def _start_requests(self, view: Page, number: int, request: dict[str, Any]) -> list[Future[Any]]:
        while self.began.acquire(blocking=False):
            pass
        self.gate.clear()
        return [request_in_thread(view, get(**request)) for _ in range(number)]


def get(path: str = "/page/", method: str = "GET", **headers: str) -> HttpRequest:
    return RequestFactory().generic(method, path, headers=headers)


def request_in_thread(view: Page, request: HttpRequest | None = None) -> Future[Any]:
    """Send a request in a new thread."""
    found: Future[Any] = Future()

    def work() -> None:
        try:
            found.set_result(view(request or get()))
        except BaseException as error:  # noqa: BLE001 - raised again in the test
            found.set_exception(error)
        finally:
            disconnect_caches()

    threading.Thread(target=work, daemon=True).start()
    return found


def body_of(response: Any) -> str:
    """The body of a response, or of a future's response."""
    content = response.result(PATIENCE) if isinstance(response, Future) else response
    return str(content.content.decode())


async def aeventually(condition: Callable[[], object]) -> None:
    await asyncio.to_thread(eventually, condition)


def any_request_waits() -> bool:
    """Whether a request of this process waits for another one to render its page."""
    return bool(waiters_in_store("default") or followers("default"))


def waits_for_another(found: Future[Any]) -> bool:
    """Wait until a request waits for another one, or until this one is done. Return whether it isn't done."""
    eventually(lambda: any_request_waits() or found.done())
    return not found.done()


def template_response(request: HttpRequest, number: int) -> TemplateResponse:
    template: Any = engines["django"].from_string("page {{ number }}{{ boom.now }}")
    return TemplateResponse(request, template, {"number": number})


class FailingVariable:
    @property
    def now(self) -> str:
        raise ZeroDivisionError

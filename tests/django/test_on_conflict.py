"""`on_conflict=` for a busy lock: a handler, "raise" or "skip", by alias, LOCKS[name] or call site; and LockMiddleware,
which responds for services in views without a lock."""

from __future__ import annotations

import asyncio
import functools
import logging
import sys
from collections.abc import Callable
from contextlib import nullcontext
from types import ModuleType
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured, PermissionDenied
from django.db import connection
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.test import RequestFactory
from django.urls import path
from django.views import View

from django_redis_locks import LockAlreadyHeld, LockBackendError, LockNotAcquired, answers, locks, redis_lock
from tests.django.helpers import Events, held_elsewhere, in_thread, result_of, send_refused_request, send_request
from tests.probes.django import events


def teapot(request: HttpRequest, refused: LockNotAcquired) -> HttpResponse:
    assert isinstance(request, HttpRequest)
    return HttpResponse(f"teapot {refused.name} {refused.status}", status=418)


def redirect(request: HttpRequest, refused: LockNotAcquired) -> HttpResponse:
    return HttpResponseRedirect("/please-wait/")


async def ateapot(request: HttpRequest, refused: LockNotAcquired) -> HttpResponse:
    await asyncio.sleep(0)
    return teapot(request, refused)


def asks_the_database(request: HttpRequest, refused: LockNotAcquired) -> HttpResponse:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 418")
        return HttpResponse(status=cursor.fetchone()[0])


def raises(error: Exception) -> Any:
    def handler(request: HttpRequest, refused: LockNotAcquired) -> HttpResponse:
        raise error

    return handler


def wrong(request: HttpRequest, refused: LockNotAcquired) -> Any:
    return "busy"


async def awrong(request: HttpRequest, refused: LockNotAcquired) -> Any:
    return None


HANDLERS: dict[str, Any] = {
    "function": teapot,
    "path": f"{__name__}.teapot",
    "partial": functools.partial(teapot),
    "lambda-of-async": lambda request, refused: ateapot(request, refused),  # noqa: PLW0108
    "async": ateapot,
    "async-path": f"{__name__}.ateapot",
}


def decorated(**options: Any) -> Callable[[HttpRequest], HttpResponse]:
    return redis_lock("order", **options)(lambda request: HttpResponse("done"))


def adecorated(**options: Any) -> Any:
    @redis_lock("order", **options)
    async def view(request: HttpRequest) -> HttpResponse:
        return HttpResponse("done")

    return view


class OfClass(View):
    @redis_lock("order", on_conflict=teapot)
    def get(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse("done")

    @redis_lock("order", on_conflict=ateapot)
    def post(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse("done")


async def noop() -> None: ...


def undecorated(request: HttpRequest) -> HttpResponse:
    try:
        return HttpResponse(helper(request))
    except LockNotAcquired:
        return HttpResponse("LockNotAcquired")


@redis_lock("helper", on_conflict=teapot)
def helper(request: HttpRequest) -> str:
    return "served"


@redis_lock("helper", on_conflict="skip")
def skipping_helper(request: HttpRequest) -> str:
    return "served"


# Views without a lock of their own


special = redis_lock("order", status=423, retry_after=7)(lambda: "served")


raising = redis_lock("order", on_conflict="raise")(lambda request: HttpResponse("served"))


def unlocked(request: HttpRequest) -> HttpResponse:
    with locks.lock("order", wait=0):
        return HttpResponse("served")


async def aunlocked(request: HttpRequest) -> HttpResponse:
    async with locks.lock("order", wait=0):
        return HttpResponse("served")


def twice(request: HttpRequest) -> HttpResponse:
    with locks.lock("order"), locks.lock("order"):
        return HttpResponse("never")


urlpatterns = [
    path("unlocked/", unlocked),
    path("async-unlocked/", aunlocked),
    path("raising/", raising),
    path("special/", lambda request: HttpResponse(special())),
    path("twice/", twice),
    path("view/", decorated(on_conflict=teapot)),
    path("async-view/", adecorated(on_conflict=teapot)),
    path("async-handler/", adecorated(on_conflict=ateapot)),
    path("class/", OfClass.as_view()),
    path("plain/", decorated()),
    path("skip/", decorated(on_conflict="skip")),
    path("async-skip/", adecorated(on_conflict="skip")),
    path("database/", adecorated(on_conflict=asks_the_database)),
    path("forbids/", decorated(on_conflict=raises(PermissionDenied()))),
    path("undecorated/", undecorated),
    path("skipping-helper/", lambda request: HttpResponse(f"{skipping_helper(request)}")),
]


@pytest.fixture
def installed(settings: Any) -> None:
    settings.MIDDLEWARE = ["django.middleware.common.CommonMiddleware", "django_redis_locks.middleware.LockMiddleware"]


class TestHandler:
    def test_response_of_a_handler_is_the_answer(self, rf: RequestFactory) -> None:
        """For any kind of callable. It isn't called if the lock is free."""
        for name, handler in HANDLERS.items():
            for make in (decorated, adecorated)[name == "lambda-of-async" :]:
                view = make(on_conflict=handler)
                with held_elsewhere("order"):
                    response = result_of(view, rf.get("/"))
                assert (response.status_code, response.content) == (418, b"teapot order 409"), name
                assert result_of(view, rf.get("/")).content == b"done", name

    @pytest.mark.django_db
    def test_handler_answers_under_wsgi_and_asgi(self, caplog: pytest.LogCaptureFixture) -> None:
        """[D26] [D41] Also an async handler of a sync method. A sync handler runs in Django's sync thread and may use
        the database. Django logs no warning for these responses."""
        with caplog.at_level(logging.INFO):
            for asgi in (False, True):
                for url in ("/view/", "/async-view/", "/async-handler/", "/class/"):
                    assert send_refused_request(url, asgi=asgi).status_code == 418, url
                assert send_refused_request("/class/", "post", asgi=asgi).status_code == 418
            assert send_refused_request("/database/", asgi=True).status_code == 418
        assert {record.name for record in caplog.records} == {"django_redis_locks.acquire"}

    def test_handler_gets_status_retry_after_and_rate_limited(self, rf: RequestFactory) -> None:
        """Those of the call site. It may build the default response from them."""
        received = []

        def handler(request: HttpRequest, refused: LockNotAcquired) -> HttpResponse:
            received.append((refused.status, refused.rate_limited))
            return answers.answer(request, refused)

        with held_elsewhere("order", expire=900):
            response = decorated(on_conflict=handler, status=423, retry_after=7)(rf.get("/"))
        assert (response.status_code, response["Retry-After"], response["Cache-Control"]) == (423, "7", "no-store")
        view = decorated(on_conflict=handler, auto_release=False, expire=899.5)
        view(rf.get("/"))
        response = view(rf.get("/"))
        assert (response.status_code, 870 < int(response["Retry-After"]) <= 900) == (429, True)
        assert response.content == b"This was done not long ago. Try again later.\n"
        assert received == [(423, False), (429, True)]
        locks.lock("order").force_release()

    def test_store_that_is_down_calls_no_handler(self, rf: RequestFactory, store_down: str) -> None:
        """The response is 503."""
        for how in (teapot, "raise"):
            response = decorated(on_conflict=how, status=423, retry_after=False)(rf.get("/"))
            assert (response.status_code, response["Retry-After"]) == (503, "5")
        with pytest.raises(LockBackendError):
            redis_lock("order", on_conflict="skip")(lambda: None)()

    def test_call_that_is_no_view_calls_no_handler(self, memory_locks: Any) -> None:
        """Neither its own handler nor that of the settings: the result of a function isn't a response. So for a helper
        of a view."""
        for handler in (teapot, ateapot, "raise", None):
            memory_locks(**({} if handler else {"ON_CONFLICT": teapot}))
            for function in (lambda: None, noop):
                with held_elsewhere("order"), pytest.raises(LockNotAcquired):
                    result_of(redis_lock("order", on_conflict=handler)(function))
            with held_elsewhere("helper"):
                assert send_request("/undecorated/").content == b"LockNotAcquired"


class TestBadHandler:
    def test_error_of_a_handler_is_raised_with_the_conflict_as_its_cause(self, rf: RequestFactory) -> None:
        """[D52] Including a result that is no response. An outer lock is released."""
        for how, kind, match in (
            (raises(LookupError("oops")), LookupError, "oops"),
            (wrong, TypeError, "a handler returns an HttpResponse, not str"),
            (awrong, TypeError, "a handler returns an HttpResponse, not NoneType"),
            ("shop.no_such", ImproperlyConfigured, "Lock order is busy, and its on_conflict"),
            ("math.pi", ImproperlyConfigured, "Lock order is busy, and its on_conflict"),
        ):
            for make in (decorated, adecorated):
                outer = redis_lock("outer")(make(on_conflict=how))
                with held_elsewhere("order"), pytest.raises(kind, match=match) as raised:
                    result_of(outer, rf.get("/"))
                assert isinstance(raised.value.__cause__, LockNotAcquired)
                assert raised.value.__cause__.name == "order"
                blamed = "The on_conflict handler of lock order raised this" in str(
                    getattr(raised.value, "__notes__", "")
                )
                assert blamed == (not isinstance(how, str))
                in_thread(lambda: locks.lock("outer", wait=0).acquire().release())
        with held_elsewhere("order"), pytest.raises(TypeError, match="an HttpResponse, not coroutine"):
            decorated(on_conflict=HANDLERS["lambda-of-async"])(rf.get("/"))

    def test_handler_may_raise_the_conflict_or_an_exception_that_django_handles(self, rf: RequestFactory) -> None:
        def again(request: HttpRequest, refused: LockNotAcquired) -> HttpResponse:
            raise refused

        with held_elsewhere("order"), pytest.raises(LockNotAcquired) as raised:
            decorated(on_conflict=again)(rf.get("/"))
        assert raised.value.__cause__ is None
        assert not hasattr(raised.value, "__notes__")
        assert send_refused_request("/forbids/").status_code == 403


class TestSkip:
    def test_skip_returns_None_without_calling_the_function(self) -> None:
        """[D52] Also for a helper of a view."""
        runs: list[int] = []

        async def awork() -> int:
            return runs.append(1) or 5

        for function in (lambda: runs.append(1) or 5, awork):
            work = redis_lock("order", on_conflict="skip")(function)
            with held_elsewhere("order"):
                assert result_of(work) is None
            assert runs == []
            assert result_of(work) == 5
            runs.clear()
        with held_elsewhere("helper"):
            assert send_request("/skipping-helper/").content == b"None"
        assert send_request("/skipping-helper/").content == b"served"

    def test_skip_of_a_view_raises_TypeError(self) -> None:
        """[D52] At its first request, whether the lock is busy or not."""
        for url in ("/skip/", "/async-skip/"):
            with pytest.raises(TypeError, match='is a view and has on_conflict="skip", which returns None'):
                send_request(url)
            in_thread(lambda: locks.lock("order", wait=0).acquire().release())


class TestLevels:
    def test_LOCKS_overrides_the_alias_and_the_call_site_overrides_both(
        self, memory_locks: Any, rf: RequestFactory
    ) -> None:
        """[F9] With "raise" the view raises LockNotAcquired."""
        path, apath = f"{__name__}.teapot", f"{__name__}.ateapot"
        for alias, name, here, status in (
            (teapot, None, None, 418),
            (path, "answer", None, 409),
            (None, apath, None, 418),
            ("raise", teapot, None, 418),
            ("raise", None, None, None),
            (teapot, "raise", None, None),
            (teapot, "raise", "answer", 409),
            (None, "raise", redirect, 302),
            ("raise", None, f"{__name__}.redirect", 302),
            (None, teapot, "raise", None),
        ):
            entries = [{"ON_CONFLICT": how} if how else {} for how in (alias, name)]
            memory_locks(**entries[0], LOCKS={"order": entries[1]})
            for make in (decorated, adecorated):
                with held_elsewhere("order"), pytest.raises(LockNotAcquired) if status is None else nullcontext():
                    assert result_of(make(on_conflict=here), rf.get("/")).status_code == status

    def test_lock_object_can_be_created_before_the_handler_can_be_imported(
        self, memory_locks: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """[D54] As in a module that the module of the handler imports."""
        memory_locks(ON_CONFLICT="shop.conflicts.answer")
        assert locks.lock("order").key == "order"
        shop: Any = ModuleType("shop.conflicts")
        shop.answer = teapot
        monkeypatch.setitem(sys.modules, "shop", ModuleType("shop"))
        monkeypatch.setitem(sys.modules, "shop.conflicts", shop)
        assert send_refused_request("/plain/").status_code == 418


def test_wrong_on_conflict_raises_ValueError_at_decoration() -> None:
    how: Any
    for how, hint in (
        ("skpi", "did you mean 'skip'"),
        ("answers", "did you mean 'answer'"),
        ("", "'answer', 'raise', 'skip', a handler"),
        ("a..b", "its dotted path, not 'a..b'"),
        (409, "not 409"),
        (True, "not True"),
        (HttpResponse, "a handler\\(request, refused\\)"),
    ):
        with pytest.raises(ValueError, match=hint):
            redis_lock("order", on_conflict=how)


@pytest.mark.parametrize("asgi", [False, True], ids=["wsgi", "asgi"])
@pytest.mark.usefixtures("installed")
class TestMiddleware:
    """`LockMiddleware` responds for services that raise, in views without a lock of their own."""

    def test_LockNotAcquired_has_the_same_response_as_of_a_view(
        self, asgi: bool, caplog: pytest.LogCaptureFixture
    ) -> None:
        """From a lock object or a service, with its status and retry_after."""
        for url in ("/unlocked/", "/async-unlocked/", "/raising/", "/special/"):
            caplog.clear()
            with caplog.at_level(logging.INFO):
                response = send_refused_request(url, asgi=asgi)
            expected = (423, "7") if url == "/special/" else (409, "60")
            assert (response.status_code, response["Retry-After"]) == expected
            assert response["Cache-Control"] == "no-store"
            assert [record.name for record in caplog.records] == ["django_redis_locks.acquire"]
            assert send_request(url).content == b"served"

    def test_handler_of_the_settings_responds(self, asgi: bool, memory_locks: Any) -> None:
        """[D52] A result that is no response raises with the conflict as cause. With "raise" the middleware
        responds."""
        for handler in (teapot, ateapot, f"{teapot.__module__}.teapot"):
            entry = {"ON_CONFLICT": handler}
            for table in (entry, {"ON_CONFLICT": "raise", "LOCKS": {"order": entry}}):
                memory_locks(**table)
                response = send_refused_request("/unlocked/", asgi=asgi)
                assert (response.status_code, response.content) == (418, b"teapot order 409")
        memory_locks(ON_CONFLICT=wrong)
        with pytest.raises(TypeError, match="a handler returns an HttpResponse, not str") as raised:
            send_refused_request("/unlocked/", asgi=asgi)
        assert isinstance(raised.value.__cause__, LockNotAcquired)
        memory_locks(ON_CONFLICT="raise")
        assert send_refused_request("/unlocked/", asgi=asgi).status_code == 409

    def test_unreachable_store_is_503(self, asgi: bool, store_down: str, received: Events) -> None:
        """A signal is sent, too."""
        response = send_request("/async-unlocked/" if asgi else "/unlocked/", asgi=asgi)
        assert (response.status_code, response["Retry-After"]) == (503, "5")
        (event,) = received.of(events.BackendFailed)
        assert (event.name, event.alias, event.doing) == ("order", "default", "acquire, answered with 503")

    def test_other_exceptions_are_still_500(self, asgi: bool) -> None:
        with pytest.raises(LockAlreadyHeld):
            send_request("/twice/", asgi=asgi)

"""`on_conflict=`: a handler, "raise" or "skip" for a call whose lock is busy, built-in < alias < LOCKS[name] < call site;
and LockMiddleware, which answers for what has no lock of its own."""

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
from tests.django.helpers import Events, ask, held_elsewhere, in_thread, outcome, refused
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
        """For any kind of callable; a free lock doesn't call it."""
        for name, handler in HANDLERS.items():
            for make in (decorated, adecorated)[name == "lambda-of-async" :]:
                view = make(on_conflict=handler)
                with held_elsewhere("order"):
                    response = outcome(view, rf.get("/"))
                assert (response.status_code, response.content) == (418, b"teapot order 409"), name
                assert outcome(view, rf.get("/")).content == b"done", name

    @pytest.mark.django_db
    def test_handler_answers_under_wsgi_and_asgi(self, caplog: pytest.LogCaptureFixture) -> None:
        """[D26] [D41] An asynchronous one of a synchronous method too, in its thread under ASGI. A synchronous one runs
        where Django's own synchronous code does, and may ask the database. Django warns of none of these answers."""
        with caplog.at_level(logging.INFO):
            for asgi in (False, True):
                for url in ("/view/", "/async-view/", "/async-handler/", "/class/"):
                    assert refused(url, asgi=asgi).status_code == 418, url
                assert refused("/class/", "post", asgi=asgi).status_code == 418
            assert refused("/database/", asgi=True).status_code == 418
        assert {record.name for record in caplog.records} == {"django_redis_locks.acquire"}

    def test_handler_is_given_status_retry_after_and_cool_down(self, rf: RequestFactory) -> None:
        """[D 2.4] Of the call site; or answers with them as we do."""
        seen = []

        def handler(request: HttpRequest, refused: LockNotAcquired) -> HttpResponse:
            seen.append((refused.status, refused.rate_limited))
            return answers.answer(request, refused)

        with held_elsewhere("order", expire=900):
            response = decorated(on_conflict=handler, status=423, retry_after=7)(rf.get("/"))
        assert (response.status_code, response["Retry-After"], response["Cache-Control"]) == (423, "7", "no-store")
        view = decorated(on_conflict=handler, auto_release=False, expire=899.5)
        view(rf.get("/"))
        response = view(rf.get("/"))
        assert (response.status_code, 870 < int(response["Retry-After"]) <= 900) == (429, True)
        assert response.content == b"This was done not long ago. Try again later.\n"
        assert seen == [(423, False), (429, True)]
        locks.lock("order").force_release()

    def test_store_that_is_down_calls_no_handler(self, rf: RequestFactory, store_down: str) -> None:
        """It is 503 as ever, whatever the options."""
        for how in (teapot, "raise"):
            response = decorated(on_conflict=how, status=423, retry_after=False)(rf.get("/"))
            assert (response.status_code, response["Retry-After"]) == (503, "5")
        with pytest.raises(LockBackendError):
            redis_lock("order", on_conflict="skip")(lambda: None)()

    def test_call_that_is_no_view_calls_no_handler(self, memory_locks: Any) -> None:
        """[D 2.4] A function's result isn't a response. Nor is one of the project called; nor for a helper of a view."""
        for handler in (teapot, ateapot, "raise", None):
            memory_locks(**({} if handler else {"ON_CONFLICT": teapot}))
            for function in (lambda: None, noop):
                with held_elsewhere("order"), pytest.raises(LockNotAcquired):
                    outcome(redis_lock("order", on_conflict=handler)(function))
            with held_elsewhere("helper"):
                assert ask("/undecorated/").content == b"LockNotAcquired"


class TestBadHandler:
    def test_mistake_of_a_handler_is_raised_with_the_conflict_as_its_cause(self, rf: RequestFactory) -> None:
        """[D52] At once, not in whatever takes a result for a response. The lock around it is free."""
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
                    outcome(outer, rf.get("/"))
                assert isinstance(raised.value.__cause__, LockNotAcquired)
                assert raised.value.__cause__.name == "order"
                blamed = "The on_conflict handler of lock order raised this" in str(
                    getattr(raised.value, "__notes__", "")
                )
                assert blamed == (not isinstance(how, str))
                in_thread(lambda: locks.lock("outer", wait=0).acquire().release())
        with held_elsewhere("order"), pytest.raises(TypeError, match="an HttpResponse, not coroutine"):
            decorated(on_conflict=HANDLERS["lambda-of-async"])(rf.get("/"))

    def test_handler_may_raise_the_conflict_or_what_django_answers(self, rf: RequestFactory) -> None:
        def again(request: HttpRequest, refused: LockNotAcquired) -> HttpResponse:
            raise refused

        with held_elsewhere("order"), pytest.raises(LockNotAcquired) as raised:
            decorated(on_conflict=again)(rf.get("/"))
        assert raised.value.__cause__ is None
        assert not hasattr(raised.value, "__notes__")
        assert refused("/forbids/").status_code == 403


class TestSkip:
    def test_skip_returns_None_without_a_call(self) -> None:
        """[D52] Of a helper of a view, too."""
        runs: list[int] = []

        async def awork() -> int:
            return runs.append(1) or 5

        for function in (lambda: runs.append(1) or 5, awork):
            work = redis_lock("order", on_conflict="skip")(function)
            with held_elsewhere("order"):
                assert outcome(work) is None
            assert runs == []
            assert outcome(work) == 5
            runs.clear()
        with held_elsewhere("helper"):
            assert ask("/skipping-helper/").content == b"None"
        assert ask("/skipping-helper/").content == b"served"

    def test_skip_of_a_view_raises_TypeError(self) -> None:
        """[D52] At its first request, whether the lock is busy or not."""
        for url in ("/skip/", "/async-skip/"):
            with pytest.raises(TypeError, match='is a view and has on_conflict="skip", which returns None'):
                ask(url)
            in_thread(lambda: locks.lock("order", wait=0).acquire().release())


class TestLevels:
    def test_LOCKS_wins_over_the_alias_and_the_call_site_over_both(self, memory_locks: Any, rf: RequestFactory) -> None:
        """[F9] The alias's is the default of the project. Where "raise" is in force LockNotAcquired leaves the view."""
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
                    assert outcome(make(on_conflict=here), rf.get("/")).status_code == status

    def test_use_of_an_alias_imports_no_handler(self, memory_locks: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        """[D54] A lock object of a module may be made while the module of the handlers, which imports it, is loading."""
        memory_locks(ON_CONFLICT="shop.conflicts.answer")
        assert locks.lock("order").key == "order"
        shop: Any = ModuleType("shop.conflicts")
        shop.answer = teapot
        monkeypatch.setitem(sys.modules, "shop", ModuleType("shop"))
        monkeypatch.setitem(sys.modules, "shop.conflicts", shop)
        assert refused("/plain/").status_code == 418


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
    """`LockMiddleware` answers for services that raise, in views without a lock of their own."""

    def test_LockNotAcquired_is_answered_as_by_a_view(self, asgi: bool, caplog: pytest.LogCaptureFixture) -> None:
        """[D 2.4] Of a lock object, or of a view that raises it; with the status and the retry of a service."""
        for url in ("/unlocked/", "/async-unlocked/", "/raising/", "/special/"):
            caplog.clear()
            with caplog.at_level(logging.INFO):
                response = refused(url, asgi=asgi)
            expected = (423, "7") if url == "/special/" else (409, "60")
            assert (response.status_code, response["Retry-After"]) == expected
            assert response["Cache-Control"] == "no-store"
            assert [record.name for record in caplog.records] == ["django_redis_locks.acquire"]
            assert ask(url).content == b"served"

    def test_handler_of_the_settings_answers(self, asgi: bool, memory_locks: Any) -> None:
        """[D52] One that returns no response raises, with the conflict as its cause; "raise" is answered."""
        for handler in (teapot, ateapot, f"{teapot.__module__}.teapot"):
            entry = {"ON_CONFLICT": handler}
            for table in (entry, {"ON_CONFLICT": "raise", "LOCKS": {"order": entry}}):
                memory_locks(**table)
                response = refused("/unlocked/", asgi=asgi)
                assert (response.status_code, response.content) == (418, b"teapot order 409")
        memory_locks(ON_CONFLICT=wrong)
        with pytest.raises(TypeError, match="a handler returns an HttpResponse, not str") as raised:
            refused("/unlocked/", asgi=asgi)
        assert isinstance(raised.value.__cause__, LockNotAcquired)
        memory_locks(ON_CONFLICT="raise")
        assert refused("/unlocked/", asgi=asgi).status_code == 409

    def test_store_that_is_down_is_503(self, asgi: bool, store_down: str, seen: Events) -> None:
        """[D 2.4] And a signal."""
        response = ask("/async-unlocked/" if asgi else "/unlocked/", asgi=asgi)
        assert (response.status_code, response["Retry-After"]) == (503, "5")
        (event,) = seen.of(events.BackendFailed)
        assert (event.name, event.alias, event.doing) == ("order", "default", "acquire, answered with 503")

    def test_mistake_of_the_program_stays_500(self, asgi: bool) -> None:
        with pytest.raises(LockAlreadyHeld):
            ask("/twice/", asgi=asgi)

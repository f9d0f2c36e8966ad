"""`on_conflict=`: a handler, "raise" or "skip" for a call whose lock is busy; built-in < alias < LOCKS[name] < call site."""

from __future__ import annotations

import asyncio
import functools
import logging
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from django.core import checks
from django.core.exceptions import ImproperlyConfigured, PermissionDenied
from django.db import connection
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.test import AsyncClient, Client, RequestFactory, override_settings
from django.urls import path
from django.views import View

from django_redis_locks import LockBackendError, LockNotAcquired, answers, locks, redis_lock
from tests.django.helpers import MEMORY, held_elsewhere, in_thread


def teapot(request: HttpRequest, refused: LockNotAcquired) -> HttpResponse:
    assert isinstance(request, HttpRequest)
    return HttpResponse(f"teapot {refused.name} {refused.status}", status=418)


def redirect(request: HttpRequest, refused: LockNotAcquired) -> HttpResponse:
    return HttpResponseRedirect("/please-wait/")


async def ateapot(request: HttpRequest, refused: LockNotAcquired) -> HttpResponse:
    await asyncio.sleep(0)
    return teapot(request, refused)


def fallback(request: HttpRequest, refused: LockNotAcquired) -> HttpResponse:
    return answers.answer(request, refused)


def asks_the_database(request: HttpRequest, refused: LockNotAcquired) -> HttpResponse:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 418")
        return HttpResponse(status=cursor.fetchone()[0])


def again(request: HttpRequest, refused: LockNotAcquired) -> HttpResponse:
    raise refused


def forbids(request: HttpRequest, refused: LockNotAcquired) -> HttpResponse:
    raise PermissionDenied


def breaks(request: HttpRequest, refused: LockNotAcquired) -> HttpResponse:
    raise LookupError("oops")


async def abreaks(request: HttpRequest, refused: LockNotAcquired) -> HttpResponse:
    raise LookupError("oops")


def wrong(request: HttpRequest, refused: LockNotAcquired) -> Any:
    return "busy"


async def awrong(request: HttpRequest, refused: LockNotAcquired) -> Any:
    return None


class Handler:
    def __call__(self, request: HttpRequest, refused: LockNotAcquired) -> HttpResponse:
        return teapot(request, refused)

    async def awaited(self, request: HttpRequest, refused: LockNotAcquired) -> HttpResponse:
        return teapot(request, refused)


HANDLERS: dict[str, Any] = {
    "function": teapot,
    "path": f"{__name__}.teapot",
    "object": Handler(),
    "partial": functools.partial(teapot),
    "lambda-of-async": lambda request, refused: ateapot(request, refused),  # noqa: PLW0108
    "async": ateapot,
    "async-path": f"{__name__}.ateapot",
    "async-method": Handler().awaited,
}


def decorated(**options: Any) -> Callable[[HttpRequest], HttpResponse]:
    @redis_lock("order", **options)
    def view(request: HttpRequest) -> HttpResponse:
        return HttpResponse("done")

    return view


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


urlpatterns = [
    path("view/", decorated(on_conflict=teapot)),
    path("async-view/", adecorated(on_conflict=teapot)),
    path("async-handler/", adecorated(on_conflict=ateapot)),
    path("class/", OfClass.as_view()),
    path("plain/", decorated()),
    path("async-plain/", adecorated()),
    path("raise/", decorated(on_conflict="raise")),
    path("async-raise/", adecorated(on_conflict="raise")),
    path("skip/", decorated(on_conflict="skip")),
    path("async-skip/", adecorated(on_conflict="skip")),
    path("database/", adecorated(on_conflict=asks_the_database)),
    path("forbids/", decorated(on_conflict=forbids)),
    path("undecorated/", undecorated),
    path("skipping-helper/", lambda request: HttpResponse(f"{skipping_helper(request)}")),
]


def refused(path: str, method: str = "get", **headers: str) -> Any:
    with held_elsewhere("order", name="order"):
        return getattr(Client(), method)(path, headers=headers)


async def arefused(path: str, method: str = "get") -> Any:
    return await getattr(AsyncClient(), method)(path)


def outcome(result: Any) -> Any:
    return asyncio.run(result) if asyncio.iscoroutine(result) else result


class TestHandler:
    def test_response_of_a_handler_is_the_answer(self, rf: RequestFactory) -> None:
        """For any kind of callable; a free lock doesn't call it."""
        for name, handler in HANDLERS.items():
            for view in (decorated(on_conflict=handler), adecorated(on_conflict=handler)):
                if name == "lambda-of-async" and not asyncio.iscoroutinefunction(view):
                    continue
                with held_elsewhere("order"):
                    response = outcome(view(rf.get("/")))
                assert (response.status_code, response.content) == (418, b"teapot order 409"), name
                assert outcome(view(rf.get("/"))).content == b"done", name

    def test_handler_answers_under_wsgi_and_asgi(self) -> None:
        """An asynchronous one of a synchronous method too, in its thread under ASGI."""
        asked = [(url, "get") for url in ("/view/", "/async-view/", "/async-handler/", "/class/")]
        for url, method in (*asked, ("/class/", "post")):
            assert refused(url, method).status_code == 418, url
            with held_elsewhere("order"):
                assert asyncio.run(arefused(url, method)).status_code == 418, url

    @pytest.mark.django_db
    def test_synchronous_handler_of_an_async_view_may_ask_the_database(self) -> None:
        """[D41] It runs where Django's own synchronous code does."""
        with held_elsewhere("order"):
            assert asyncio.run(arefused("/database/")).status_code == 418

    def test_handler_is_given_status_and_retry_after(self, rf: RequestFactory) -> None:
        """Of the call site; or has us answer with them."""
        with held_elsewhere("order", expire=900):
            view = decorated(on_conflict=teapot, status=423)
            assert view(rf.get("/")).content == b"teapot order 423"
            response = decorated(on_conflict=fallback, status=423, retry_after=7)(rf.get("/"))
        assert (response.status_code, response["Retry-After"], response["Cache-Control"]) == (423, "7", "no-store")

    def test_handler_is_given_a_cool_down(self, rf: RequestFactory) -> None:
        """[D 2.4]"""
        seen = []

        def handler(request: HttpRequest, refused: LockNotAcquired) -> HttpResponse:
            seen.append((refused.status, refused.cooling, refused.retry_header))
            return answers.answer(request, refused)

        view = decorated(on_conflict=handler, auto_release=False, expire=899.5)
        view(rf.get("/"))
        response = view(rf.get("/"))
        assert seen[0][:2] == (429, True)
        assert 870 < seen[0][2] <= 900
        assert (response.status_code, response["Retry-After"]) == (429, str(seen[0][2]))
        assert response.content == b"This was done not long ago. Try again later.\n"
        locks.lock("order").force_release()

    def test_store_that_is_down_calls_no_handler(self, rf: RequestFactory, store_down: str) -> None:
        """It is 503 as ever."""
        for how in (teapot, "raise"):
            assert decorated(on_conflict=how)(rf.get("/")).status_code == 503
        with pytest.raises(LockBackendError):
            redis_lock("order", on_conflict="skip")(lambda: None)()

    def test_call_without_a_request_calls_no_handler(self, memory_locks: Any) -> None:
        """[D 2.4] A function's result isn't a response. Nor is one of the project called."""
        for handler in (teapot, ateapot, "raise", None):
            memory_locks(**({} if handler else {"ON_CONFLICT": teapot}))
            for function in (lambda: None, noop):
                with held_elsewhere("order"), pytest.raises(LockNotAcquired):
                    outcome(redis_lock("order", on_conflict=handler)(function)())

    @pytest.mark.parametrize("project", [{}, {"ON_CONFLICT": teapot}], ids=["no handler", "handler of the project"])
    def test_helper_of_a_view_calls_no_handler(self, memory_locks: Any, project: Any) -> None:
        """[D 2.4]"""
        memory_locks(**project)
        with held_elsewhere("helper"):
            assert Client().get("/undecorated/").content == b"LockNotAcquired"


class TestBadHandler:
    def check(self, how: Any, kind: type[Exception], match: str, rf: RequestFactory) -> BaseException:
        """Below another lock, so that something could stay held."""
        for asynchronous in (False, True):
            make = adecorated if asynchronous else decorated
            outer = redis_lock("outer")(make(on_conflict=how))
            with held_elsewhere("order"), pytest.raises(kind, match=match) as raised:
                asyncio.run(outer(rf.get("/"))) if asynchronous else outer(rf.get("/"))
            assert isinstance(raised.value.__cause__, LockNotAcquired)
            assert raised.value.__cause__.name == "order"
            in_thread(lambda: locks.lock("outer", wait=0).acquire().release())
        return raised.value

    def test_exception_of_a_handler_is_raised_with_the_conflict_as_its_cause(self, rf: RequestFactory) -> None:
        for how in (breaks, abreaks):
            error = self.check(how, LookupError, "oops", rf)
            assert error.__notes__ == [
                "The on_conflict handler of lock order raised this, which was to answer a refused request"
            ]

    def test_handler_that_returns_no_response_raises_TypeError(self, rf: RequestFactory) -> None:
        """[D52] At once, not in whatever takes it for one."""
        for how, what in ((wrong, "str"), (awrong, "NoneType")):
            self.check(how, TypeError, f"a handler returns an HttpResponse, not {what}", rf)

    def test_unseen_async_handler_of_a_sync_view_raises_TypeError(self, rf: RequestFactory) -> None:
        view = decorated(on_conflict=HANDLERS["lambda-of-async"])
        with held_elsewhere("order"), pytest.raises(TypeError, match="an HttpResponse, not coroutine"):
            view(rf.get("/"))

    def test_path_that_leads_nowhere_raises_with_the_name_of_the_lock(self, rf: RequestFactory) -> None:
        for how in ("shop.no_such", f"{__name__}.no_such", "math.pi"):
            self.check(how, ImproperlyConfigured, "Lock order is busy, and its on_conflict", rf)

    def test_handler_may_raise_the_conflict(self, rf: RequestFactory) -> None:
        with held_elsewhere("order"), pytest.raises(LockNotAcquired) as raised:
            decorated(on_conflict=again)(rf.get("/"))
        assert raised.value.__cause__ is None
        assert not hasattr(raised.value, "__notes__")

    def test_exception_of_a_handler_that_django_answers_is_answered(self) -> None:
        assert refused("/forbids/").status_code == 403


class TestRaise:
    @pytest.mark.parametrize("path", ["/raise/", "/async-raise/"])
    def test_raise_in_a_view_raises_LockNotAcquired(self, path: str) -> None:
        """For middleware to answer."""
        with pytest.raises(LockNotAcquired) as raised:
            refused(path)
        assert (raised.value.name, raised.value.status) == ("order", 409)


class TestSkip:
    def test_skip_returns_None_without_a_call(self) -> None:
        """[D52]"""
        runs: list[int] = []

        async def awork() -> int:
            return runs.append(1) or 5

        for function in (lambda: runs.append(1) or 5, awork):
            work = redis_lock("order", on_conflict="skip")(function)
            with held_elsewhere("order"):
                assert outcome(work()) is None
            assert runs == []
            assert outcome(work()) == 5
            runs.clear()

    @pytest.mark.parametrize("path", ["/skip/", "/async-skip/"])
    def test_skip_of_a_view_raises_TypeError(self, path: str) -> None:
        """[D52] At its first request, whether the lock is busy or not."""
        with pytest.raises(TypeError, match='is a view and has on_conflict="skip", which returns None'):
            Client().get(path)
        in_thread(lambda: locks.lock("order", wait=0).acquire().release())

    def test_skip_of_a_views_helper_returns_None(self) -> None:
        with held_elsewhere("helper"):
            assert Client().get("/skipping-helper/").content == b"None"
        assert Client().get("/skipping-helper/").content == b"served"


class TestLevels:
    @pytest.mark.parametrize(
        ("alias", "name", "status"),
        [
            ({"ON_CONFLICT": teapot}, {}, 418),
            ({"ON_CONFLICT": f"{__name__}.teapot"}, {}, 418),
            ({}, {"ON_CONFLICT": f"{__name__}.ateapot"}, 418),
            ({"ON_CONFLICT": redirect}, {"ON_CONFLICT": teapot}, 418),
            ({"ON_CONFLICT": teapot}, {"ON_CONFLICT": "answer"}, 409),
            ({"ON_CONFLICT": "answer"}, {"ON_CONFLICT": teapot}, 418),
            ({"ON_CONFLICT": "raise"}, {}, None),
            ({"ON_CONFLICT": teapot}, {"ON_CONFLICT": "raise"}, None),
            ({"ON_CONFLICT": "raise"}, {"ON_CONFLICT": teapot}, 418),
        ],
    )
    def test_LOCKS_wins_over_the_alias(self, memory_locks: Any, alias: Any, name: Any, status: int | None) -> None:
        """[F9] The alias's is the default of the project."""
        memory_locks(**alias, LOCKS={"order": name})
        for url in ("/plain/", "/async-plain/"):
            if status is None:
                with pytest.raises(LockNotAcquired):
                    refused(url)
            else:
                assert refused(url).status_code == status

    def test_call_site_wins_over_both(self, memory_locks: Any, rf: RequestFactory) -> None:
        """[F9]"""
        memory_locks(ON_CONFLICT=teapot, LOCKS={"order": {"ON_CONFLICT": "raise"}})
        with held_elsewhere("order"):
            for how, status in (("answer", 409), (redirect, 302), (f"{__name__}.redirect", 302)):
                assert decorated(on_conflict=how)(rf.get("/")).status_code == status

    def test_override_settings_takes_effect_at_the_next_call(self) -> None:
        """[D53]"""
        assert refused("/plain/").status_code == 409
        with override_settings(REDIS_LOCKS={"default": {"BACKEND": MEMORY, "ON_CONFLICT": teapot}}):
            assert refused("/plain/").status_code == 418
        assert refused("/plain/").status_code == 409


class TestChecks:
    def messages(self) -> list[checks.CheckMessage]:
        return [found for found in checks.run_checks(tags=["redis_locks"]) if found.id != "redis_locks.W004"]

    def test_path_that_leads_nowhere_is_E022_of_its_entry(self, memory_locks: Any) -> None:
        entry = {"ON_CONFLICT": f"{__name__}.no_such"}
        for table, where in ((entry, ": "), ({"LOCKS": {"order": entry}}, "['LOCKS']['order']: ")):
            memory_locks(**table)
            (message,) = self.messages()
            assert message.id == "redis_locks.E022"
            assert message.msg.startswith(f"REDIS_LOCKS['default']{where}")
            assert "ON_CONFLICT can't be imported" in message.msg
        memory_locks(ON_CONFLICT="math.pi")
        (message,) = self.messages()
        assert "ON_CONFLICT is a callable or the dotted path to one" in message.msg

    def test_handler_path_and_words_are_right(self, memory_locks: Any) -> None:
        for how in (teapot, f"{__name__}.teapot", "answer", "raise"):
            memory_locks(ON_CONFLICT=how, LOCKS={"order": {"ON_CONFLICT": how}})
            assert self.messages() == []

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


class TestLog:
    @pytest.mark.parametrize("url", ["/view/", "/async-view/"])
    def test_4xx_of_a_handler_is_no_warning(self, url: str, caplog: pytest.LogCaptureFixture) -> None:
        """[D26]"""
        with caplog.at_level(logging.INFO):
            refused(url)
        assert [record.name for record in caplog.records] == ["django_redis_locks.acquire"]

    def test_other_4xx_are_warned_of(self, caplog: pytest.LogCaptureFixture) -> None:
        refused("/forbids/")
        assert [record.levelname for record in caplog.records if record.name == "django.request"] == ["WARNING"]

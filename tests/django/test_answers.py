"""What is told to whom when a lock isn't to be had: an HTTP answer to the client of a view, an exception elsewhere."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import socket
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import pytest
import redis
from django.http import HttpRequest, HttpResponse
from django.test import AsyncClient, Client, RequestFactory
from django.urls import path
from django.utils import translation
from django.utils.decorators import method_decorator
from django.views import View

from django_redis_locks import (
    LockAlreadyHeld,
    LockBackendError,
    LockError,
    LockKeyError,
    LockLost,
    LockNotAcquired,
    LockNotOwned,
    answers,
    current_grant,
    locks,
    redis_lock,
)
from django_redis_locks.core import clock, events
from tests.django.helpers import AT_ONCE, LEASE, MEMORY, PATIENCE, Events, held_elsewhere, in_thread, until
from tools.redis_server import RedisServer

KEY = "patient:jane-doe"
TEXT = b"This is being worked on by another request. Try again in a moment.\n"
DOWN = b"This is not available for the moment. Try again later.\n"


@redis_lock(KEY, name="patient")
def view(request: HttpRequest) -> HttpResponse:
    return HttpResponse("done")


@redis_lock(KEY, name="patient")
async def aview(request: HttpRequest) -> HttpResponse:
    return HttpResponse("done")


@redis_lock(KEY, name="patient", on_backend_error="open")
def open_view(request: HttpRequest) -> HttpResponse:
    return HttpResponse("done")


# A service that is handed the request, and who calls it


@redis_lock("service")
def service(request: HttpRequest) -> str:
    return "served"


@redis_lock("service")
async def aservice(request: HttpRequest) -> str:
    return "served"


@redis_lock("service")
def service_by_keyword(amount: int, currency: str, *, request: HttpRequest) -> str:
    return "served"


def told(error: LockError) -> HttpResponse:
    return HttpResponse(type(error).__name__, status=418)


def undecorated(request: HttpRequest) -> HttpResponse:
    try:
        return HttpResponse(service(request))
    except LockError as error:
        return told(error)


def undecorated_by_keyword(request: HttpRequest) -> HttpResponse:
    try:
        return HttpResponse(service_by_keyword(5, "eur", request=request))
    except LockError as error:
        return told(error)


@redis_lock("view of service")
def decorated(request: HttpRequest) -> HttpResponse:
    return undecorated(request)


@redis_lock("outer of service")
@redis_lock("inner of service")
def stacked(request: HttpRequest) -> HttpResponse:
    return undecorated(request)


async def aundecorated(request: HttpRequest) -> HttpResponse:
    try:
        return HttpResponse(await aservice(request))
    except LockError as error:
        return told(error)


@redis_lock("async view of service")
async def adecorated(request: HttpRequest) -> HttpResponse:
    return await aundecorated(request)


class OfClass(View):
    def get(self, request: HttpRequest) -> HttpResponse:
        return undecorated(request)


@method_decorator(redis_lock("class of service"), name="dispatch")
class DecoratedClass(OfClass):
    pass


class DecoratedGet(View):
    @redis_lock("get of service")
    def get(self, request: HttpRequest) -> HttpResponse:
        return undecorated(request)


class HelperOfClass(View):
    def get(self, request: HttpRequest) -> HttpResponse:
        try:
            return HttpResponse(self.helper(request))
        except LockError as error:
            return told(error)

    @redis_lock("service")
    def helper(self, request: HttpRequest) -> str:
        return "served"


class AsyncHelperOfClass(View):
    """Its helper is a plain function, though its handlers are async."""

    async def get(self, request: HttpRequest) -> HttpResponse:
        try:
            return HttpResponse(await asyncio.to_thread(self.helper, request))
        except LockError as error:
            return told(error)

    @redis_lock("service")
    def helper(self, request: HttpRequest) -> str:
        return "served"


SERVICES = {
    "undecorated": undecorated,
    "undecorated-by-keyword": undecorated_by_keyword,
    "decorated": decorated,
    "stacked": stacked,
    "async-undecorated": aundecorated,
    "async-decorated": adecorated,
    "class": OfClass.as_view(),
    "class-as-view": redis_lock("as view of service")(OfClass.as_view()),
    "decorated-class": DecoratedClass.as_view(),
    "decorated-get": DecoratedGet.as_view(),
    "helper-of-class": HelperOfClass.as_view(),
    "async-helper-of-class": AsyncHelperOfClass.as_view(),
}

urlpatterns = [path("view/", view), path("async-view/", aview), path("open-view/", open_view)]
urlpatterns += [path(f"{name}/", function) for name, function in SERVICES.items()]


def refused(path: str = "/view/", **headers: str) -> Any:
    with held_elsewhere(KEY, name="patient"):
        return Client().get(path, headers=headers)


@pytest.mark.parametrize("path", ["/view/", "/async-view/"])
class TestConflict:
    def test_text(self, path: str) -> None:
        """409 with a short text, for a client that didn't say what it prefers."""
        response = refused(path)
        assert response.status_code == 409
        assert response.reason_phrase == "Conflict"
        assert response["Content-Type"] == "text/plain; charset=utf-8"
        assert response["Cache-Control"] == "no-store"
        assert response["Retry-After"] in ("29", "30")
        assert response.content == TEXT

    @pytest.mark.parametrize(
        "accept",
        [
            "application/json",
            "application/problem+json",
            "application/json, text/plain;q=0.5",
            "text/html;q=0.9, application/*",
        ],
    )
    def test_problem(self, path: str, accept: str) -> None:
        """application/problem+json for a client that prefers JSON."""
        response = refused(path, accept=accept)
        assert (response.status_code, response["Content-Type"]) == (409, "application/problem+json")
        assert json.loads(response.content) == {
            "type": "about:blank",
            "title": "Conflict",
            "status": 409,
            "detail": TEXT.decode().strip(),
        }
        assert response["Retry-After"] in ("29", "30")

    @pytest.mark.parametrize(
        "accept", ["*/*", "text/html", "text/html,application/xhtml+xml,*/*;q=0.8", "text/*", "image/png"]
    )
    def test_text_is_the_default(self, path: str, accept: str) -> None:
        """A browser, curl, and a client that accepts neither get the text."""
        assert refused(path, accept=accept).content == TEXT

    def test_no_client_repeats_it_by_itself(self, path: str) -> None:
        """[D25] Clients such as urllib3 send 413, 429 and 503 with Retry-After once more, unasked: a second order."""
        response = refused(path)
        assert "Retry-After" in response
        assert response.status_code not in {413, 429, 503}

    @pytest.mark.parametrize("accept", ["text/plain", "application/json"])
    def test_nobody_is_named(self, path: str, accept: str) -> None:
        """[F18] Neither key nor name nor holder stand in answer or headers."""
        response = refused(path, accept=accept)
        shown = f"{response.serialize()!r} {response.headers!r}"
        for secret in (KEY, "patient", "jane", socket.gethostname(), str(os.getpid()), "Thread", "default"):
            assert secret not in shown

    def test_translatable(self, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """The sentence goes through Django's translations."""
        monkeypatch.setattr(answers, "_", lambda text: text.upper())
        with translation.override("de"):
            assert refused(path).content == TEXT.upper()


class TestRetryAfter:
    @pytest.mark.parametrize(
        ("left", "expected"),
        [(0.0, "1"), (0.001, "1"), (0.99, "1"), (1.0, "1"), (1.001, "2"), (29.5, "30"), (60.0, "60"), (3600.0, "60")],
    )
    def test_what_is_left_of_the_lease(self, left: float, expected: str, rf: RequestFactory) -> None:
        """Rounded up, between 1 and 60 seconds."""
        error = LockNotAcquired("busy", retry_after=left, key=KEY, name="patient", alias="default")
        assert answers.answer(rf.get("/"), error)["Retry-After"] == expected

    @pytest.mark.parametrize(("expire", "expected"), [(29.5, range(2, 31)), (900, [60])])
    def test_of_a_real_lease(self, expire: float, expected: Sequence[int], store: str) -> None:
        """It comes from the holder's lease, whatever the caller's own."""
        with held_elsewhere(KEY, expire=expire):
            assert int(Client().get("/view/")["Retry-After"]) in expected


class TestLog:
    def test_contention_is_one_line(self, caplog: pytest.LogCaptureFixture) -> None:
        """[D26] A contended request is normal: one line of ours, at INFO, with the name and not the key."""
        with caplog.at_level(logging.DEBUG, "django_redis_locks"), held_elsewhere(KEY, name="patient"):
            caplog.clear()
            Client().get("/view/")
            ours = [record for record in caplog.records if record.name.startswith("django_redis_locks")]
        (record,) = ours
        assert (record.levelname, record.name) == ("INFO", "django_redis_locks.acquire")
        assert re.fullmatch(r"Lock patient is busy, given up after \d+\.\d{3} s", record.getMessage())
        assert "jane" not in record.getMessage()


class TestStoreDown:
    @pytest.mark.parametrize("path", ["/view/", "/async-view/"])
    @pytest.mark.parametrize("accept", ["text/plain", "application/json"])
    def test_in_a_view(self, path: str, accept: str, store_down: str, seen: Events) -> None:
        """A store that can't be reached is 503 with Retry-After, at once, and the view doesn't run."""
        begin = clock.now()
        response = Client().get(path, headers={"accept": accept})
        assert clock.now() - begin < AT_ONCE
        assert (response.status_code, response["Retry-After"], response["Cache-Control"]) == (503, "5", "no-store")
        if accept == "text/plain":
            assert response.content == DOWN
        else:
            assert json.loads(response.content)["title"] == "Service Unavailable"
            assert json.loads(response.content)["status"] == 503
        shown = f"{response.serialize()!r}"
        for secret in ("hunter2", "operator", "127.0.0.1", "redis", KEY, "patient"):
            assert secret not in shown
        (event,) = seen.of(events.BackendFailed)
        assert (event.key, event.name, event.alias) == (KEY, "patient", "default")
        assert event.doing == "acquire, answered with 503"
        assert "hunter2" not in event.problem

    def test_elsewhere(self, store_down: str) -> None:
        """Outside of views it is a LockBackendError that names lock, alias, address and what to do, and no password."""
        with pytest.raises(LockBackendError) as raised:
            in_thread(lambda: work(5))
        error = raised.value
        assert (error.key, error.name, error.alias) == ("order:5", "order:{pk}", "default")
        message = str(error)
        assert message.startswith("lock 'order:{pk}', alias 'default': can't reach redis://operator:***@127.0.0.1:")
        assert "Start that server, or correct LOCATION in REDIS_LOCKS" in message
        assert "hunter2" not in f"{error!r} {message}"
        assert "order:5" not in message

    def test_of_a_lock_object(self, store_down: str) -> None:
        """So it is with a lock object, and a wait in vain ends in time."""
        begin = clock.now()
        for ask in (
            lambda: locks.lock("order:5", wait=0).acquire(),
            lambda: locks.lock("order:5").acquire(timeout=0.1),
            lambda: locks.lock("order:5").acquire(blocking=False),
            lambda: locks.lock("order:5").locked(),
            lambda: locks.lock("order:5").force_release(),
        ):
            with pytest.raises(LockBackendError, match="lock 'order', alias 'default': can't reach"):
                in_thread(ask)
        assert clock.now() - begin < AT_ONCE

    def test_open(self, store_down: str, seen: Events, caplog: pytest.LogCaptureFixture) -> None:
        """[F14] With "open" the view runs without a lock, with a signal and an ERROR in the log."""
        with caplog.at_level(logging.ERROR, "django_redis_locks"):
            assert Client().get("/open-view/").content == b"done"
        (event,) = seen.of(events.BackendFailed)
        assert event.doing == "acquire, going on unlocked"
        (record,) = [record for record in caplog.records if record.name == "django_redis_locks.backend"]
        assert record.levelname == "ERROR"
        assert "hunter2" not in record.getMessage()

    def test_gone_during_the_call(self, settings: Any, make_server: Callable[..., RedisServer], seen: Events) -> None:
        """[F12] A store that goes while the view runs spoils nothing: its answer stands, the release goes on behind."""
        server = make_server()
        settings.REDIS_LOCKS = {"default": {"LOCATION": server.url()}}

        @redis_lock("order", expire=20)
        def work() -> str:
            server.kill()
            return "done"

        assert in_thread(work) == "done"
        (event,) = seen.of(events.BackendFailed)
        assert (event.doing, event.name) == ("release", "order")


@redis_lock("order:{pk}")
def work(pk: int) -> None:
    pass


class TestWhoIsAnswered:
    @pytest.mark.parametrize("name", SERVICES)
    def test_a_service_raises(self, name: str) -> None:
        """[D 2.5] A service that is handed the request raises; it doesn't hand a response to who expects something else."""
        with held_elsewhere("service"):
            response = Client().get(f"/{name}/")
        assert (response.status_code, response.content) == (418, b"LockNotAcquired")
        assert Client().get(f"/{name}/").content == b"served"

    @pytest.mark.parametrize("name", [name for name in SERVICES if "async" in name])
    def test_a_service_raises_under_asgi(self, name: str) -> None:
        """[D 2.5] Under ASGI too."""

        async def ask() -> HttpResponse:
            return await AsyncClient().get(f"/{name}/")

        with held_elsewhere("service"):
            assert asyncio.run(ask()).content == b"LockNotAcquired"
        assert asyncio.run(ask()).content == b"served"

    def test_a_service_raises_when_the_store_is_down(self, store_down: str) -> None:
        """The same holds for LockBackendError."""
        assert Client().get("/undecorated/").content == b"LockBackendError"

    def test_request_factory(self, rf: RequestFactory) -> None:
        """A view that a test calls by hand, with a request that went through no URL, answers."""
        with held_elsewhere(KEY):
            assert view(rf.get("/")).status_code == 409
            assert asyncio.run(aview(rf.get("/"))).status_code == 409
            assert view(request=rf.get("/")).status_code == 409

    @pytest.mark.parametrize("view_class", [HelperOfClass, AsyncHelperOfClass])
    def test_request_factory_and_a_helper(self, rf: RequestFactory, view_class: type[View]) -> None:
        """A helper among a view's methods raises there too: it is none of the view's handlers."""
        with held_elsewhere("service"):
            response = view_class.as_view()(rf.get("/"))
            if asyncio.iscoroutine(response):
                response = asyncio.run(response)
        assert response.content == b"LockNotAcquired"

    def test_no_request(self) -> None:
        """Without a request there is nobody to answer."""
        with held_elsewhere("order:5"), pytest.raises(LockNotAcquired):
            work(5)

    def test_a_wrong_key_is_an_error(self, rf: RequestFactory) -> None:
        """A key that can't be filled is a mistake of the program: an exception, and nothing is locked."""
        keyed = redis_lock("order:{request.GET[pk]}")(lambda request: HttpResponse())
        with pytest.raises(LockKeyError):
            keyed(rf.get("/"))

    def test_the_message_of_a_refusal(self) -> None:
        """The exception names the lock and its holder, and keeps the key to itself."""
        with held_elsewhere("order:5", name="order"), pytest.raises(LockNotAcquired) as raised:
            work(5)
        error = raised.value
        assert error.key == "order:5"
        assert error.holder is not None
        assert (error.holder.host, error.holder.pid) == (socket.gethostname(), os.getpid())
        assert str(error).startswith("lock 'order:{pk}' is busy, held by ")
        assert "order:5" not in str(error)


class DrfRequest:
    """Django REST framework wraps Django's request."""

    def __init__(self, request: HttpRequest) -> None:
        self._request = request


def test_a_wrapped_request(rf: RequestFactory) -> None:
    """The request of Django REST framework is a request too."""
    request: Any = DrfRequest(rf.get("/", headers={"accept": "application/json"}))
    with held_elsewhere("get of service"):
        response = DecoratedGet().get(request)
    assert (response.status_code, response["Content-Type"]) == (409, "application/problem+json")


def already_held() -> None:
    with locks.lock("order:5"):
        locks.lock("order:5").acquire()


def released_twice() -> None:
    with locks.lock("order:5") as grant:
        grant.release()
        grant.ensure_held()


class TestMessages:
    @pytest.mark.parametrize(
        ("kind", "fail"),
        [
            (LockAlreadyHeld, already_held),
            (LockNotOwned, lambda: locks.lock("order:5").release()),
            (LockLost, released_twice),
            (LockNotAcquired, lambda: in_thread(locks.lock("order:5", wait=0).acquire)),
        ],
    )
    def test_name_and_no_key(self, kind: type[LockError], fail: Callable[[], object], store: str) -> None:
        """Every error of a lock has its key, name and alias; its message has the name only."""
        other = held_elsewhere("order:5") if kind is LockNotAcquired else nullcontext()
        with other, pytest.raises(kind) as raised:
            fail()
        error = raised.value
        assert (error.key, error.name, error.alias) == ("order:5", "order", "default")
        assert "'order'" in str(error)
        assert "order:5" not in f"{error} {error!r}"

    def test_of_a_foreign_key(self, redis_locks: str) -> None:
        """[F6] So has the one that found something else under the key; it says what, and what to do."""
        with redis.Redis.from_url(redis_locks) as client:
            client.set("lock:{0}:k:order:5", "x")
        with pytest.raises(LockKeyError, match=r"can't lock 'order' of alias 'default': its key holds") as raised:
            locks.lock("order:5").acquire()
        assert (raised.value.key, raised.value.name, raised.value.alias) == ("order:5", "order", "default")
        assert "order:5" not in str(raised.value)


class TestLostLease:
    """A lease that ran out during the call: the result stands, and it is told."""

    @staticmethod
    def outlive() -> None:
        grant = current_grant()
        assert grant is not None
        until(lambda: grant.lost)
        until(lambda: not locks.lock("order").locked())  # the store's own clock comes a bit later

    def check(self, seen: Events, caplog: pytest.LogCaptureFixture) -> None:
        (lost,) = seen.of(events.Lost)
        assert (lost.key, lost.name, lost.alias, lost.why) == ("order", "order", "default", "expired")
        assert lost.fence
        assert LEASE * 0.9 < lost.held < PATIENCE
        assert not seen.of(events.Released)
        (record,) = [record for record in caplog.records if record.name == "django_redis_locks.lost"]
        assert record.levelname == "ERROR"
        assert record.getMessage().startswith("Lock order was lost while it was held (expired)")
        about = {"lock_key": "order", "lock_name": "order", "lock_alias": "default", "lock_why": "expired"}
        assert about.items() <= vars(record).items()
        assert record.__dict__["lock_fence"] == lost.fence

    def test_of_a_call(self, seen: Events, caplog: pytest.LogCaptureFixture, store: str) -> None:
        """[D30] The decorator returns the result, with signal and ERROR; the lock of a successor isn't touched."""

        @redis_lock("order", expire=LEASE, wait=PATIENCE)
        def slow() -> str:
            self.outlive()
            successor.append(in_thread(locks.lock("order").acquire))
            return "done"

        successor: list[Any] = []
        assert slow() == "done"
        successor[0].ensure_held(confirm=True)
        successor[0].release()
        assert isinstance(seen.pop(), events.Released)
        self.check(seen, caplog)

    def test_of_an_async_call(self, seen: Events, caplog: pytest.LogCaptureFixture) -> None:
        """[D30] So does that of an async one."""

        @redis_lock("order", expire=LEASE, wait=PATIENCE)
        async def slow() -> str:
            await asyncio.to_thread(self.outlive)
            return "done"

        assert asyncio.run(slow()) == "done"
        self.check(seen, caplog)

    def test_of_a_view(self, seen: Events, rf: RequestFactory, caplog: pytest.LogCaptureFixture) -> None:
        """[D30] A view's answer is its own."""

        @redis_lock("order", expire=LEASE, wait=PATIENCE)
        def slow(request: HttpRequest) -> HttpResponse:
            self.outlive()
            return HttpResponse("done", status=201)

        assert slow(rf.get("/")).status_code == 201
        self.check(seen, caplog)

    def test_its_own_exception_wins(self, seen: Events, caplog: pytest.LogCaptureFixture) -> None:
        """[L4] A body that raises raises that, and the loss is told all the same."""

        @redis_lock("order", expire=LEASE, wait=PATIENCE)
        def slow() -> None:
            self.outlive()
            raise LookupError

        with pytest.raises(LookupError):
            slow()
        self.check(seen, caplog)

    def test_with_raises(self, seen: Events, caplog: pytest.LogCaptureFixture) -> None:
        """[L4] `with` raises LockLost at its end …"""
        with pytest.raises(LockLost) as raised, locks.lock("order", expire=LEASE, wait=PATIENCE):
            self.outlive()
        assert (raised.value.key, raised.value.name, raised.value.alias) == ("order", "order", "default")
        self.check(seen, caplog)

    def test_with_doesnt_mask(self, seen: Events, caplog: pytest.LogCaptureFixture) -> None:
        """[L4] … only if the body raised nothing."""

        def slow() -> None:
            with locks.lock("order", expire=LEASE, wait=PATIENCE):
                self.outlive()
                raise LookupError

        with pytest.raises(LookupError):
            slow()
        self.check(seen, caplog)


def test_two_aliases_answer_by_themselves(settings: Any, closed_port: int) -> None:
    """An alias whose store is down doesn't harm another one."""
    settings.REDIS_LOCKS = {
        "default": {"BACKEND": MEMORY},
        "down": {"LOCATION": f"redis://127.0.0.1:{closed_port}/0"},
    }
    with pytest.raises(LockBackendError, match="alias 'down'"):
        redis_lock("order", using="down")(lambda: None)()
    assert redis_lock("order")(lambda: "done")() == "done"

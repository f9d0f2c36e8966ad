"""`auto_release=False`: the lock stays until its lease ends, so that a call can be made at most once in a while."""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.http import HttpRequest, HttpResponse
from django.test import RequestFactory

from django_redis_locks import LockLost, LockNotAcquired, clock, current_grant, locks, redis_lock
from tests.django.helpers import LEASE, MEMORY, PATIENCE, Events, held_elsewhere, in_thread, until
from tests.probes.django import events, holds_of_this_process

TEXT = "This was done not long ago. Try again later."


@pytest.fixture(autouse=True)
def cooled() -> Iterator[None]:
    yield
    try:
        locks.lock("sms").force_release()
    except Exception:  # noqa: BLE001 - the store of that test is down
        pass


def sms() -> str:
    return "sent"


async def asms() -> str:
    return "sent"


def outcome(function: Callable[..., Any], *args: Any) -> Any:
    result = function(*args)
    return asyncio.run(result) if asyncio.iscoroutine(result) else result


def brief_call(function: Callable[..., Any], seen: Events, *, told: bool = False) -> list[object]:
    """A call with a brief lease, which was over before its lease was: else it would have lost it. What `on_lost` hears."""
    while True:
        lost: list[object] = []
        terms = {"on_lost": lost.append} if told else {}
        outcome(redis_lock("sms", expire=LEASE, wait=PATIENCE, auto_release=False, **terms)(function))
        if not seen.of(events.Lost):
            return lost
        until(lambda: not locks.lock("sms").locked())
        seen.clear()


BOTH = pytest.mark.parametrize("function", [sms, asms])
cool = redis_lock("sms", expire=20, auto_release=False)


@BOTH
class TestCalls:
    def test_the_second_one_is_refused(self, function: Callable[..., Any], store: str) -> None:
        """In the same thread too it is busy and not "already held"; what is left of the lease is told."""
        decorated = cool(function)
        assert outcome(decorated) == "sent"
        for call in (lambda: outcome(decorated), lambda: in_thread(lambda: outcome(decorated))):
            with pytest.raises(LockNotAcquired) as raised:
                call()
            assert 5 < raised.value.retry_after <= 20
        holder = locks.lock("sms").holder()
        assert holder is not None
        assert 5 < holder.lease_left <= 20

    def test_in_one_task(self, function: Callable[..., Any]) -> None:
        """So it is within one task."""

        async def twice() -> None:
            await cool(asms)()
            await cool(asms)()

        with pytest.raises(LockNotAcquired):
            asyncio.run(twice())

    def test_when_the_lease_is_over(self, function: Callable[..., Any], store: str) -> None:
        """The lease ends although the thread that took it lives and RENEW says otherwise; then it is free for one call."""
        decorated = redis_lock("sms", expire=LEASE, wait=PATIENCE, auto_release=False)(function)
        begin = clock.now()
        outcome(decorated)
        until(lambda: not locks.lock("sms").locked())
        assert clock.now() - begin >= LEASE * 0.9
        assert outcome(decorated) == "sent"

    def test_waiting_for_it(self, function: Callable[..., Any], store: str) -> None:
        """Who has a wait waits until the lease is over, in this process too."""
        decorated = redis_lock("sms", expire=LEASE, wait=PATIENCE, auto_release=False)(function)
        begin = clock.now()
        for _ in range(3):
            assert outcome(decorated) == "sent"
        assert clock.now() - begin >= 2 * LEASE * 0.9

    def test_a_call_that_fails(self, function: Callable[..., Any]) -> None:
        """Whatever becomes of the call, it was one."""

        def fail() -> None:
            raise LookupError

        async def afail() -> None:
            raise LookupError

        with pytest.raises(LookupError):
            outcome(cool(fail if function is sms else afail))
        with pytest.raises(LockNotAcquired):
            outcome(cool(function))

    def test_nothing_is_left_here(self, function: Callable[..., Any], seen: Events) -> None:
        """This process has neither grant nor hold of it, and tells of no release and no loss."""
        brief_call(function, seen)
        assert current_grant() is None
        assert not locks.lock("sms").owned()
        assert holds_of_this_process() == 0
        until(lambda: not locks.lock("sms").locked())
        locks["default"].engine.settle(5)
        assert seen.kinds() == ["Acquired"]

    def test_the_thread_ends(self, function: Callable[..., Any]) -> None:
        """Neither its end nor the collector frees the lock."""
        in_thread(lambda: outcome(cool(function)))
        gc.collect()
        locks["default"].engine.settle(5)
        assert locks.lock("sms").locked()

    def test_on_lost(self, function: Callable[..., Any], seen: Events) -> None:
        """The end of the lease is no loss."""
        lost = brief_call(function, seen, told=True)
        until(lambda: not locks.lock("sms").locked())
        locks["default"].engine.settle(5)
        assert lost == []

    def test_the_store_is_down(self, function: Callable[..., Any], store_down: str) -> None:
        """[F14] With "open" there is no lock to stay, and nothing to let go."""
        decorated = redis_lock("sms", expire=5, auto_release=False, on_backend_error="open")(function)
        assert outcome(decorated) == outcome(decorated) == "sent"
        assert holds_of_this_process() == 0


class TestInside:
    def test_the_grant(self) -> None:
        """Inside the call it is a grant like others, with a fixed lease."""

        @cool
        def work() -> None:
            grant = current_grant()
            assert grant is not None
            grant.ensure_held(confirm=True)
            assert grant.fence
            assert not grant.hold.renew_until

        work()

    def test_given_back_by_hand(self) -> None:
        """A call that wasn't made after all gives it back."""

        @cool
        def work() -> None:
            grant = current_grant()
            assert grant is not None
            grant.release()

        work()
        work()
        assert not locks.lock("sms").locked()

    def test_a_grant_that_is_kept(self) -> None:
        """Once the call is over its grant holds nothing, and can't free what cools down."""
        kept: list[Any] = []
        redis_lock("sms", expire=20, auto_release=False)(lambda: kept.append(current_grant()))()
        (grant,) = kept
        assert grant.remaining() == 0.0
        assert not grant.lost
        with pytest.raises(LockLost, match="released"):
            grant.ensure_held()
        grant.release()
        assert locks.lock("sms").locked()

    def test_entered_again(self) -> None:
        """An inner `rlock` frees nothing, and the lease isn't renewed because of it once the call is over."""

        @redis_lock("sms", expire=4, auto_release=False)
        def work() -> None:
            with locks.rlock("sms", expire=4, renew=True):
                pass

        work()
        assert locks.lock("sms").locked()
        until(lambda: not locks.lock("sms").locked())

    def test_it_outlasts_the_lease(self, seen: Events) -> None:
        """[D30] A call that is still at it when the lease ends may run beside another one: that is a loss, and told."""

        @redis_lock("sms", expire=LEASE, wait=PATIENCE, auto_release=False)
        def work() -> None:
            grant = current_grant()
            assert grant is not None
            until(lambda: grant.lost)

        work()
        (lost,) = seen.of(events.Lost)
        assert (lost.key, lost.why) == ("sms", "expired")


class TestAnswers:
    @pytest.mark.parametrize(("expire", "least"), [(30, 2), (900, 870)])
    def test_in_a_view(self, expire: float, least: int, rf: RequestFactory, store: str) -> None:
        """429, to be tried again when the lease is over and not before, however long it is."""
        view = redis_lock("sms", expire=expire, auto_release=False)(lambda request: HttpResponse("sent"))
        assert view(rf.post("/")).text == "sent"
        refused = view(rf.post("/"))
        assert (refused.status_code, refused.reason_phrase) == (429, "Too Many Requests")
        assert refused.text == TEXT + "\n"
        assert least <= int(refused["Retry-After"]) <= expire
        assert refused["Cache-Control"] == "no-store"

    def test_in_an_async_view(self, rf: RequestFactory) -> None:
        """The same under ASGI, in JSON."""

        @cool
        async def view(request: HttpRequest) -> HttpResponse:
            return HttpResponse("sent")

        def post() -> Any:
            return outcome(view, rf.post("/", headers={"accept": "application/json"}))

        assert post().text == "sent"
        refused = post()
        problem = {"type": "about:blank", "title": "Too Many Requests", "status": 429, "detail": TEXT}
        assert json.loads(refused.content) == problem

    def test_other_statuses(self, rf: RequestFactory) -> None:
        """`status` and `retry_after` say otherwise."""
        view = redis_lock("sms", expire=900, auto_release=False, status=403, retry_after=5)(
            lambda request: HttpResponse()
        )
        view(rf.get("/"))
        refused = view(rf.get("/"))
        assert (refused.status_code, refused["Retry-After"]) == (403, "5")

    def test_held_by_another_one(self, rf: RequestFactory) -> None:
        """Who is refused doesn't know whether the holder gives it back: his own lock tells."""
        with held_elsewhere("sms", expire=900):
            refused = cool(lambda request: HttpResponse())(rf.get("/"))
        assert refused.status_code == 429
        assert int(refused["Retry-After"]) > 60


class TestRefusals:
    @pytest.mark.parametrize(
        "options", [{}, {"expire": 5, "renew": True}, {"expire": 5, "reentrant": True}, {"expire": None}]
    )
    def test_at_decoration(self, options: dict[str, Any]) -> None:
        """A cool-down needs a lease of its own, which nothing renews and nobody enters again."""
        with pytest.raises(TypeError, match=r"stays until its lease ends: give it an expire=, and neither"):
            redis_lock("sms", auto_release=False, **options)

    def test_released_as_usual(self) -> None:
        """True is what it always was."""
        decorated = redis_lock("sms", auto_release=True)(sms)
        assert decorated() == decorated() == "sent"


class TestInTheSettings:
    def test_a_cooldown(self, settings: Any, rf: RequestFactory) -> None:
        """AUTO_RELEASE and EXPIRE of LOCKS make one, and RENEW elsewhere doesn't count for it."""
        settings.REDIS_LOCKS = {
            "default": {"BACKEND": MEMORY, "LOCKS": {"sms": {"AUTO_RELEASE": False, "EXPIRE": 900}}}
        }
        view = redis_lock("sms")(lambda request: HttpResponse())
        assert view(rf.get("/")).status_code == 200
        assert 870 < int(view(rf.get("/"))["Retry-After"]) <= 900
        locks.lock("sms").force_release()
        often = redis_lock("sms", auto_release=True)(lambda request: HttpResponse())
        assert [often(rf.get("/")).status_code for _ in range(2)] == [200, 200]

    def test_no_renewal(self, settings: Any) -> None:
        """What the call site says of its lease isn't renewed, whatever RENEW and REENTRANT say of the name."""
        settings.REDIS_LOCKS = {"default": {"BACKEND": MEMORY, "LOCKS": {"sms": {"RENEW": True, "REENTRANT": True}}}}

        @cool
        def work() -> float:
            grant = current_grant()
            assert grant is not None
            return grant.hold.renew_until

        assert work() == 0.0
        with pytest.raises(LockNotAcquired):
            work()

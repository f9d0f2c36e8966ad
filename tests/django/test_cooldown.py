"""`auto_release=False`: the lock stays until its lease ends, so that calls are limited to one per lease."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.http import HttpResponse
from django.test import RequestFactory

from django_redis_locks import LockLost, LockNotAcquired, clock, current_grant, locks, redis_lock
from django_redis_locks.testing import ManualClock
from tests.django.helpers import LEASE, MEMORY, PATIENCE, Events, in_thread, result_of, wait_until
from tests.probes.django import events, holds_of_this_process

TEXT = "This was done not long ago. Try again later."


@pytest.fixture(autouse=True)
def cooled() -> Iterator[None]:
    yield
    try:
        locks.lock("sms").force_release()
    except Exception:  # noqa: BLE001 - in tests with an unreachable store
        pass


def sms() -> str:
    return "sent"


async def asms() -> str:
    return "sent"


BOTH = pytest.mark.parametrize("function", [sms, asms])
cool = redis_lock("sms", expire=20, auto_release=False)


@BOTH
class TestCalls:
    def test_second_call_is_refused_until_the_lease_ends(self, function: Callable[..., Any], store: str) -> None:
        """Also in the same thread, with LockNotAcquired and not LockAlreadyHeld. The end of the thread frees
        nothing."""
        decorated = cool(function)
        assert result_of(decorated) == "sent"
        for call in (lambda: result_of(decorated), lambda: in_thread(lambda: result_of(decorated))):
            with pytest.raises(LockNotAcquired) as raised:
                call()
            assert 5 < raised.value.retry_after <= 20
        holder = locks.lock("sms").holder()
        assert 5 < holder.lease_left <= 20
        locks.lock("sms").force_release()
        in_thread(lambda: result_of(decorated))
        gc.collect()
        locks["default"].engine.wait_until_idle(5)
        assert locks.lock("sms").locked()

    def test_call_with_a_wait_waits_for_the_end_of_the_lease(self, function: Callable[..., Any], store: str) -> None:
        """Also in the same process, with the acquiring thread alive, and with RENEW set."""
        decorated = redis_lock("sms", expire=LEASE, wait=PATIENCE, auto_release=False)(function)
        begin = clock.now()
        for _ in range(3):
            assert result_of(decorated) == "sent"
        assert clock.now() - begin >= 2 * LEASE * 0.9
        wait_until(lambda: not locks.lock("sms").locked())
        assert clock.now() - begin >= 3 * LEASE * 0.9
        assert result_of(decorated) == "sent"

    def test_call_that_raises_starts_the_cool_down(self, function: Callable[..., Any]) -> None:
        def fail() -> None:
            raise LookupError

        async def afail() -> None:
            raise LookupError

        with pytest.raises(LookupError):
            result_of(cool(fail if function is sms else afail))
        with pytest.raises(LockNotAcquired):
            result_of(cool(function))

    def test_cool_down_leaves_neither_grant_nor_hold_in_the_process(
        self, function: Callable[..., Any], received: Events, manual_clock: ManualClock
    ) -> None:
        """At the end of the lease neither a release nor a loss is sent."""
        lost: list[object] = []
        result_of(redis_lock("sms", expire=20, auto_release=False, on_lost=lost.append)(function))
        assert current_grant() is None
        assert not locks.lock("sms").owned()
        assert holds_of_this_process() == 0
        manual_clock.advance(21)
        assert not locks.lock("sms").locked()
        assert received.kinds() == ["Acquired"]
        assert lost == []


class TestInside:
    def test_release_inside_of_the_call_ends_the_cool_down_and_one_after_it_does_not(self) -> None:
        work = cool(lambda: current_grant().release())
        work()
        work()
        grant = cool(current_grant)()
        assert (grant.remaining(), grant.lost) == (0.0, False)
        with pytest.raises(LockLost, match="released"):
            grant.ensure_held()
        grant.release()
        assert locks.lock("sms").locked()

    def test_call_that_outlasts_its_lease_sends_a_loss(self, received: Events, manual_clock: ManualClock) -> None:
        """[D30] Another call may have run at the same time."""
        redis_lock("sms", expire=20, auto_release=False)(lambda: manual_clock.advance(21))()
        (lost,) = received.of(events.Lost)
        assert (lost.key, lost.why) == ("sms", "expired")


class TestAnswers:
    def test_view_responds_429_with_the_rest_of_the_lease(self, rf: RequestFactory, store: str) -> None:
        for expire, least in ((30, 2), (900, 870)):
            view = redis_lock("sms", expire=expire, auto_release=False)(lambda request: HttpResponse("sent"))
            assert view(rf.post("/")).text == "sent"
            refused = view(rf.post("/"))
            assert (refused.status_code, refused.reason_phrase) == (429, "Too Many Requests")
            assert refused.text == TEXT + "\n"
            assert least <= int(refused["Retry-After"]) <= expire
            assert refused["Cache-Control"] == "no-store"
            own = redis_lock("sms", expire=9, auto_release=False, status=403, retry_after=5)(lambda request: None)
            assert (own(rf.get("/")).status_code, own(rf.get("/"))["Retry-After"]) == (403, "5")
            locks.lock("sms").force_release()


class TestOptions:
    def test_cool_down_without_a_fixed_lease_raises_TypeError(self) -> None:
        """It needs a lease without renewal and without re-entry."""
        options: dict[str, Any]
        for options in ({}, {"expire": 5, "renew": True}, {"expire": 5, "reentrant": True}, {"expire": None}):
            with pytest.raises(TypeError, match=r"stays until its lease ends: give it an expire=, and neither"):
                redis_lock("sms", auto_release=False, **options)

    def test_cool_down_of_the_call_site_ignores_RENEW_and_REENTRANT(self, settings: Any) -> None:
        settings.REDIS_LOCKS = {"default": {"BACKEND": MEMORY, "LOCKS": {"sms": {"RENEW": True, "REENTRANT": True}}}}
        work = cool(lambda: current_grant().hold.renew_until)
        assert work() == 0.0
        with pytest.raises(LockNotAcquired):
            work()

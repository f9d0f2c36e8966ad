"""A lease that ran out during the call: the result stands, and the loss is sent as a signal and logged."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from django.http import HttpRequest, HttpResponse
from django.test import RequestFactory

from django_redis_locks import LockLost, current_grant, locks, redis_lock
from django_redis_locks.testing import ManualClock
from tests.django.helpers import LEASE, PATIENCE, Events, in_thread, until
from tests.probes.django import events

order = redis_lock("order", expire=30)


@pytest.fixture(autouse=True)
def one_loss(seen: Events, caplog: pytest.LogCaptureFixture) -> Any:
    """Each test loses the lock `order` once; it is never released."""
    yield
    (lost,) = seen.of(events.Lost)
    assert (lost.key, lost.name, lost.alias, lost.why) == ("order", "order", "default", "expired")
    assert lost.fence
    assert LEASE * 0.9 < lost.held < PATIENCE + 2
    assert lost.fence not in [event.fence for event in seen.of(events.Released)]
    (record,) = [record for record in caplog.get_records("call") if record.name == "django_redis_locks.lost"]
    assert record.levelname == "ERROR"
    assert record.getMessage().startswith("Lock order was lost while it was held (expired)")
    about = {"lock_key": "order", "lock_name": "order", "lock_alias": "default", "lock_why": "expired"}
    assert {**about, "lock_fence": lost.fence}.items() <= vars(record).items()


def test_call_returns_its_result_on_redis(redis_locks: str) -> None:
    """[D30] The lock of a successor isn't touched."""
    successor: list[Any] = []

    @redis_lock("order", expire=LEASE, wait=PATIENCE)
    def slow() -> str:
        grant = current_grant()
        until(lambda: grant.lost and not locks.lock("order").locked())  # the server's clock comes a bit later
        successor.append(in_thread(locks.lock("order").acquire))
        return "done"

    assert slow() == "done"
    successor[0].ensure_held(confirm=True)
    successor[0].release()


def test_call_returns_its_result(manual_clock: ManualClock) -> None:
    """[D30] The lock of a successor isn't touched."""
    successor: list[Any] = []

    @order
    def slow() -> str:
        manual_clock.advance(31)
        successor.append(in_thread(locks.lock("order").acquire))
        return "done"

    assert slow() == "done"
    successor[0].ensure_held(confirm=True)
    successor[0].release()


def test_async_call_returns_its_result(manual_clock: ManualClock) -> None:
    """[D30]"""

    @order
    async def slow() -> str:
        manual_clock.advance(31)
        return "done"

    assert asyncio.run(slow()) == "done"


def test_view_returns_its_own_answer(manual_clock: ManualClock, rf: RequestFactory) -> None:
    """[D30]"""

    @order
    def slow(request: HttpRequest) -> HttpResponse:
        manual_clock.advance(31)
        return HttpResponse("done", status=201)

    assert slow(rf.get("/")).status_code == 201


def test_exception_of_a_call_is_raised(manual_clock: ManualClock) -> None:
    """[L4]"""

    @order
    def slow() -> None:
        manual_clock.advance(31)
        raise LookupError

    with pytest.raises(LookupError):
        slow()


def test_with_block_raises_LockLost_at_its_end(manual_clock: ManualClock) -> None:
    """[L4]"""
    with pytest.raises(LockLost) as raised, locks.lock("order", expire=30):
        manual_clock.advance(31)
    assert (raised.value.key, raised.value.name, raised.value.alias) == ("order", "order", "default")


def test_exception_of_a_with_block_is_not_masked(manual_clock: ManualClock) -> None:
    """[L4]"""
    with pytest.raises(LookupError), locks.lock("order", expire=30):  # noqa: PT012
        manual_clock.advance(31)
        raise LookupError

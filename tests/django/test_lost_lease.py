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


@pytest.mark.parametrize("on_redis", [True, False], ids=["redis", "memory"])
def test_call_returns_its_result(on_redis: bool, request: pytest.FixtureRequest) -> None:
    """[D30] The lock of a successor isn't touched."""
    successor: list[Any] = []
    time: Any = request.getfixturevalue("redis_locks" if on_redis else "manual_clock")

    @redis_lock("order", expire=LEASE if on_redis else 30, wait=PATIENCE)
    def slow() -> str:
        grant = current_grant()
        if not on_redis:
            time.advance(31)
        until(lambda: grant.lost and not locks.lock("order").locked())  # the server's clock comes a bit later
        successor.append(in_thread(locks.lock("order").acquire))
        return "done"

    assert slow() == "done"
    successor[0].ensure_held(confirm=True)
    successor[0].release()


def raises(*_: object) -> None:
    raise LookupError


@pytest.mark.parametrize("kind", ["coroutine", "view", "exception", "block", "end"])
def test_result_or_exception_outlives_the_loss(kind: str, manual_clock: ManualClock, rf: RequestFactory) -> None:
    """[D30] [L4] Of a call, of a view its own answer; an exception isn't masked, and the end of a block raises one."""

    def slow(request: HttpRequest) -> HttpResponse:
        manual_clock.advance(31)
        return raises() if kind == "exception" else HttpResponse("done", status=201)

    async def aslow() -> str:
        manual_clock.advance(31)
        return "done"

    if kind == "coroutine":
        assert asyncio.run(order(aslow)()) == "done"
    elif kind == "view":
        assert order(slow)(rf.get("/")).status_code == 201
    elif kind == "exception":
        with pytest.raises(LookupError):
            order(slow)(rf.get("/"))
    elif kind == "block":
        with pytest.raises(LookupError), locks.lock("order", expire=30):
            raises(manual_clock.advance(31))
    else:
        with pytest.raises(LockLost) as raised, locks.lock("order", expire=30):
            manual_clock.advance(31)
        assert (raised.value.key, raised.value.name, raised.value.alias) == ("order", "order", "default")

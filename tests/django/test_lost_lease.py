"""A lease that ran out during the call: the result stands, and the loss is sent as a signal and logged."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from django.http import HttpRequest, HttpResponse
from django.test import RequestFactory

from django_redis_locks import LockLost, current_grant, locks, redis_lock
from tests.django.helpers import LEASE, PATIENCE, Events, in_thread, until
from tests.probes.django import events

brief = redis_lock("order", expire=LEASE, wait=PATIENCE)


def outlive() -> None:
    grant = current_grant()
    assert grant is not None
    until(lambda: grant.lost)
    until(lambda: not locks.lock("order").locked())  # the store's own clock comes a bit later


def check(seen: Events, caplog: pytest.LogCaptureFixture) -> None:
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


def test_call_returns_its_result(seen: Events, caplog: pytest.LogCaptureFixture, store: str) -> None:
    """[D30] The lock of a successor isn't touched."""
    successor: list[Any] = []

    @brief
    def slow() -> str:
        outlive()
        successor.append(in_thread(locks.lock("order").acquire))
        return "done"

    assert slow() == "done"
    successor[0].ensure_held(confirm=True)
    successor[0].release()
    assert isinstance(seen.pop(), events.Released)
    check(seen, caplog)


def test_async_call_returns_its_result(seen: Events, caplog: pytest.LogCaptureFixture) -> None:
    """[D30]"""

    @brief
    async def slow() -> str:
        await asyncio.to_thread(outlive)
        return "done"

    assert asyncio.run(slow()) == "done"
    check(seen, caplog)


def test_view_returns_its_own_answer(seen: Events, rf: RequestFactory, caplog: pytest.LogCaptureFixture) -> None:
    """[D30]"""

    @brief
    def slow(request: HttpRequest) -> HttpResponse:
        outlive()
        return HttpResponse("done", status=201)

    assert slow(rf.get("/")).status_code == 201
    check(seen, caplog)


def slow_and_raises() -> None:
    outlive()
    raise LookupError


def test_exception_of_a_call_is_raised(seen: Events, caplog: pytest.LogCaptureFixture) -> None:
    """[L4]"""
    with pytest.raises(LookupError):
        brief(slow_and_raises)()
    check(seen, caplog)


def test_with_block_raises_LockLost_at_its_end(seen: Events, caplog: pytest.LogCaptureFixture) -> None:
    """[L4]"""
    with pytest.raises(LockLost) as raised, locks.lock("order", expire=LEASE, wait=PATIENCE):
        outlive()
    assert (raised.value.key, raised.value.name, raised.value.alias) == ("order", "order", "default")
    check(seen, caplog)


def test_exception_of_a_with_block_is_not_masked(seen: Events, caplog: pytest.LogCaptureFixture) -> None:
    """[L4]"""
    with pytest.raises(LookupError), locks.lock("order", expire=LEASE, wait=PATIENCE):
        slow_and_raises()
    check(seen, caplog)

"""A lease that ran out during the call: the result stands, and the loss is sent as a signal and logged."""

from __future__ import annotations

import asyncio

import pytest
from django.http import HttpRequest, HttpResponse
from django.test import RequestFactory

from django_redis_locks import redis_lock
from django_redis_locks.testing import ManualClock
from tests.django.helpers import Events
from tests.probes.django import events


@pytest.mark.parametrize("kind", ["coroutine", "view", "exception"])
def test_result_or_exception_outlives_the_loss(
    kind: str, manual_clock: ManualClock, rf: RequestFactory, seen: Events, caplog: pytest.LogCaptureFixture
) -> None:
    """[D30] Of a call, of a view its own answer; an exception isn't masked. The lock is lost once and never released."""
    order = redis_lock("order", expire=30)

    @order
    def slow(request: HttpRequest) -> HttpResponse:
        manual_clock.advance(31)
        if kind == "exception":
            raise LookupError
        return HttpResponse("done", status=201)

    @order
    async def aslow() -> str:
        manual_clock.advance(31)
        return "done"

    if kind == "coroutine":
        assert asyncio.run(aslow()) == "done"
    elif kind == "view":
        assert slow(rf.get("/")).status_code == 201
    else:
        with pytest.raises(LookupError):
            slow(rf.get("/"))
    (lost,) = seen.of(events.Lost)
    assert (lost.key, lost.name, lost.alias, lost.why) == ("order", "order", "default", "expired")
    assert lost.fence
    assert 30 < lost.held < 32
    assert seen.of(events.Released) == []
    (record,) = [record for record in caplog.records if record.name == "django_redis_locks.lost"]
    assert record.levelname == "ERROR"
    assert record.getMessage().startswith("Lock order was lost while it was held (expired)")
    about = {"lock_name": "order", "lock_alias": "default", "lock_why": "expired"}
    assert {**about, "lock_fence": lost.fence}.items() <= vars(record).items()

"""A lease that expired during the call: the result is returned, and the loss is sent as a signal and logged."""

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
def test_result_or_exception_of_a_call_is_kept_when_its_lease_is_lost(
    kind: str, manual_clock: ManualClock, rf: RequestFactory, received: Events, caplog: pytest.LogCaptureFixture
) -> None:
    """[D30] A view's own response is sent, and an exception isn't masked. One loss is sent, and no release."""
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
    (lost,) = received.of(events.Lost)
    assert (lost.key, lost.name, lost.alias, lost.why) == ("order", "order", "default", "expired")
    assert lost.fence
    assert 30 < lost.held < 32
    assert received.of(events.Released) == []
    (record,) = [record for record in caplog.records if record.name == "django_redis_locks.lost"]
    assert record.levelname == "ERROR"
    assert record.getMessage().startswith("Lock order was lost while it was held (expired)")
    about = {"lock_name": "order", "lock_alias": "default", "lock_why": "expired"}
    assert {**about, "lock_fence": lost.fence}.items() <= vars(record).items()

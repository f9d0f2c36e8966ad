"""`status=` and `retry_after=`: how a view answers when its lock is busy."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from django.http import HttpRequest, HttpResponse
from django.test import RequestFactory

from django_redis_locks import LockNotAcquired, redis_lock
from tests.django.helpers import held_elsewhere


def refused(rf: RequestFactory, expire: float = 900, accept: str = "text/plain", **options: Any) -> Any:
    view = redis_lock("order", **options)(lambda request: HttpResponse("done"))
    with held_elsewhere("order", expire=expire):
        return view(rf.get("/", headers={"accept": accept}))


def test_status_and_its_title_are_answered(rf: RequestFactory) -> None:
    for status, title in (
        (400, "Bad Request"),
        (409, "Conflict"),
        (423, "Locked"),
        (429, "Too Many Requests"),
        (503, "Service Unavailable"),
        (499, "Refused"),
    ):
        for accept in ("text/plain", "application/json"):
            response = refused(rf, accept=accept, status=status)
            assert (response.status_code, title) == (status, "Refused" if status == 499 else response.reason_phrase)
            assert (response["Retry-After"], response["Cache-Control"]) == ("60", "no-store")
        problem = json.loads(response.content)
        assert (problem["status"], problem["title"]) == (status, title)


def test_async_view_answers_with_the_status(rf: RequestFactory) -> None:
    @redis_lock("order", status=423)
    async def view(request: HttpRequest) -> HttpResponse:
        return HttpResponse("done")

    with held_elsewhere("order"):
        assert asyncio.run(view(rf.get("/"))).status_code == 423


def test_store_that_is_down_stays_503(rf: RequestFactory, store_down: str) -> None:
    """The options are for a busy lock."""
    response = redis_lock("order", status=423, retry_after=False)(lambda request: HttpResponse())(rf.get("/"))
    assert (response.status_code, response["Retry-After"]) == (503, "5")


def test_call_that_is_no_view_raises(rf: RequestFactory) -> None:
    with held_elsewhere("order"), pytest.raises(LockNotAcquired):
        redis_lock("order", status=423)(lambda: None)()


def test_retry_after_is_the_rest_of_the_lease_or_the_given_seconds(rf: RequestFactory) -> None:
    """True is the default, False sends none; the rest of a lease is 60 at most."""
    for retry_after, expire, expected in (
        (None, 29.5, range(2, 31)),
        (True, 29.5, range(2, 31)),
        (True, 900, [60]),
        (7, 900, [7]),
        (900, 30, [900]),
        (False, 900, [0]),
    ):
        response = refused(rf, expire, retry_after=retry_after)
        assert (response.status_code, "Retry-After" in response) == (409, retry_after is not False)
        assert int(response.get("Retry-After", 0)) in expected, retry_after

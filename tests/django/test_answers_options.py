"""How a refusal is answered, where the call site says so: `status=` and `retry_after=`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
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


class TestStatus:
    @pytest.mark.parametrize(
        ("status", "title"),
        [
            (400, "Bad Request"),
            (409, "Conflict"),
            (423, "Locked"),
            (429, "Too Many Requests"),
            (503, "Service Unavailable"),
        ],
    )
    @pytest.mark.parametrize("accept", ["text/plain", "application/json"])
    def test_of_a_conflict(self, status: int, title: str, accept: str, rf: RequestFactory) -> None:
        """The status and its title are those that were asked for, in the text and in the JSON."""
        response = refused(rf, accept=accept, status=status)
        assert (response.status_code, response.reason_phrase) == (status, title)
        assert (response["Retry-After"], response["Cache-Control"]) == ("60", "no-store")
        if accept == "application/json":
            problem = json.loads(response.content)
            assert (problem["status"], problem["title"]) == (status, title)

    def test_without_a_name(self, rf: RequestFactory) -> None:
        """A status of one's own has a title too."""
        assert json.loads(refused(rf, accept="application/json", status=499).content)["title"] == "Refused"

    def test_of_an_async_view(self, rf: RequestFactory) -> None:
        """In an async view too."""

        @redis_lock("order", status=423)
        async def view(request: HttpRequest) -> HttpResponse:
            return HttpResponse("done")

        with held_elsewhere("order"):
            assert asyncio.run(view(rf.get("/"))).status_code == 423  # type: ignore[arg-type]

    def test_the_store_is_down(self, rf: RequestFactory, store_down: str) -> None:
        """It is for a busy lock: a store that is down stays 503."""
        response = redis_lock("order", status=423, retry_after=False)(lambda request: HttpResponse())(rf.get("/"))
        assert (response.status_code, response["Retry-After"]) == (503, "5")

    def test_elsewhere(self) -> None:
        """Outside of views there is no answer to have one."""
        with held_elsewhere("order"), pytest.raises(LockNotAcquired):
            redis_lock("order", status=423)(lambda: None)()


class TestRetryAfter:
    @pytest.mark.parametrize(
        ("retry_after", "expire", "expected"),
        [
            (None, 29.5, range(2, 31)),
            (True, 29.5, range(2, 31)),
            (True, 900, [60]),
            (7, 900, [7]),
            (900, 30, [900]),
        ],
    )
    def test_seconds(self, retry_after: bool | int | None, expire: float, expected: Sequence[int], rf: Any) -> None:
        """True, the default, is what is left of the lease, 60 at most; a number is that number."""
        assert int(refused(rf, expire, retry_after=retry_after)["Retry-After"]) in expected

    def test_none(self, rf: RequestFactory) -> None:
        """False is no such header."""
        response = refused(rf, retry_after=False)
        assert response.status_code == 409
        assert "Retry-After" not in response

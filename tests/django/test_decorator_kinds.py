"""`@redis_lock` with a kind: the sides of a read-write lock, and a semaphore with its limit."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.test import RequestFactory

from django_redis_locks import LockAlreadyHeld, LockNotAcquired, current_grant, locks, redis_lock
from tests.django.helpers import in_thread, result_of


@redis_lock("geocoder", kind="semaphore", limit=2, expire=40)
def geocode(inner: Callable[[], Any] = lambda: None) -> Any:
    return inner()


@redis_lock("geocoder", kind="semaphore", limit=2, expire=40)
async def ageocode(inner: Callable[[], Any] = lambda: None) -> Any:
    return inner()


class Geocoder:
    @redis_lock("geocoder", kind="semaphore", limit=2, expire=40)
    def call(self, inner: Callable[[], Any] = lambda: None) -> Any:
        return inner()


@redis_lock("geocoder", kind="semaphore", limit=2, expire=40, reentrant=True)
def recurse(depth: int) -> int:
    return recurse(depth - 1) if depth else available()


@redis_lock("geocoder", kind="semaphore", limit=2)
def view(request: HttpRequest) -> HttpResponse:
    return HttpResponse(str(available()))


@redis_lock("geocoder", kind="semaphore", limit=2, expire=60, auto_release=False)
def twice_a_minute(request: HttpRequest) -> HttpResponse:
    return HttpResponse()


def available() -> int:
    return locks.semaphore("geocoder", limit=2).available()


@contextmanager
def holders(*leases: float) -> Any:
    """Permits that other threads hold."""
    with ExitStack() as stack:
        for lease in leases:
            semaphore = locks.semaphore("geocoder", limit=2, expire=lease)
            stack.callback(in_thread(semaphore.acquire).release)
        yield


class TestSemaphore:
    @pytest.mark.parametrize("call", [geocode, ageocode, Geocoder().call], ids=["sync", "async", "method"])
    def test_calls_up_to_the_limit_run_at_a_time(self, call: Any, store: str) -> None:
        """[L37]"""
        assert result_of(call, lambda: in_thread(lambda: geocode(available))) == 0
        with holders(40):
            with pytest.raises(LockNotAcquired, match="geocoder"):
                result_of(call, lambda: in_thread(geocode))
            assert available() == 1
        assert available() == 2

    def test_refused_view_names_the_permit_that_is_free_first(self, store: str, rf: RequestFactory) -> None:
        with holders(40):
            assert view(rf.get("/")).content == b"0"
        with holders(50, 20):
            refused = view(rf.get("/"))
            assert (refused.status_code, refused["Retry-After"]) == (409, "20")

    def test_view_without_release_is_served_limit_times_in_a_lease(self, manual_clock: Any, rf: RequestFactory) -> None:
        def statuses() -> list[int]:
            return [twice_a_minute(rf.get("/")).status_code for _ in range(3)]

        assert statuses() == [200, 200, 429]
        assert twice_a_minute(rf.get("/"))["Retry-After"] == "60"
        manual_clock.advance(61)
        assert statuses() == [200, 200, 429]
        manual_clock.advance(61)

    def test_nested_call_takes_a_permit_of_its_own_unless_it_is_reentrant(self, store: str) -> None:
        assert geocode(lambda: geocode(available)) == 0
        with pytest.raises(LockNotAcquired):
            geocode(lambda: geocode(geocode))
        assert recurse(5) == 1
        assert available() == 2
        assert asyncio.run(ageocode(recurse_in_thread)) == 0

    @pytest.mark.databases("sqlite")
    def test_calls_of_one_transaction_share_a_permit_until_COMMIT(self, log: Any) -> None:
        """[D2] The permit of the first call is kept for the transaction, so the third call would find none."""
        with transaction.atomic():
            for _ in range(5):
                geocode()
            assert available() == 1
        assert available() == 2


def recurse_in_thread() -> int:
    """A permit of its own, though the caller's task has one: that would be `LockAlreadyHeld` of a mutex."""
    return in_thread(lambda: recurse(1))


class TestSides:
    def test_readers_run_at_a_time_and_a_writer_alone(self, store: str, rf: RequestFactory) -> None:
        """[L35]"""
        read = redis_lock("stock", kind="read", expire=20)(lambda request, inner: inner())
        write = redis_lock("stock", kind="write", expire=20)(lambda request, inner: inner())
        request = rf.get("/")

        def status(call: Any) -> int:
            return in_thread(lambda: call(rf.get("/"), HttpResponse)).status_code  # type: ignore[no-any-return]

        assert read(request, lambda: (status(read), status(write))) == (200, 409)
        assert write(request, lambda: (status(read), status(write))) == (409, 409)
        assert write(request, lambda: read(request, lambda: write(request, lambda: "in"))) == "in"
        with pytest.raises(LockAlreadyHeld, match="acquire the write lock before the read lock"):
            read(request, lambda: write(request, HttpResponse))

    @pytest.mark.databases("sqlite")
    def test_side_is_kept_until_COMMIT_and_entered_again(self, log: Any) -> None:
        """[D2] [L35]"""
        for side, other_reader in (("read", True), ("write", False)):
            call = redis_lock("stock", kind=side)(lambda: None)  # type: ignore[call-overload]
            with transaction.atomic():
                for _ in range(3):
                    call()
                grant = in_thread(lambda: locks.rwlock("stock").read.acquire(blocking=False, timeout=None))
                assert (grant is not None) == other_reader
                if grant is not None:
                    grant.release()
            assert not locks.rwlock("stock").write.locked()
            assert not locks.rwlock("stock").read.locked()


class TestRefusals:
    def test_kind_and_limit_need_each_other(self) -> None:
        """[D53]"""
        for options in ({"kind": "semaphore"}, {"limit": 3}, {"kind": "fair", "limit": 3}):
            with pytest.raises(TypeError, match=re.escape('kind="semaphore" and limit=, the number of its permits')):
                redis_lock("geocoder", **options)
        for limit in (0, -1, 2.5, True, "3"):
            with pytest.raises(ValueError, match="limit is a whole number from 1 to"):
                redis_lock("geocoder", kind="semaphore", limit=limit)  # type: ignore[call-overload]

    def test_kind_and_limit_of_LOCKS(self, memory_locks: Any) -> None:
        """[D53] Those of a call site win over both."""
        memory_locks(LOCKS={"geocoder": {"KIND": "semaphore", "LIMIT": 2}})

        def kind_and_limit(**options: Any) -> tuple[str, int]:
            def lock() -> Any:
                return current_grant().lock

            made = redis_lock("geocoder", **options)(lock)()
            return type(made).__name__, getattr(made.spec.steps, "limit", 0)

        assert kind_and_limit() == ("Semaphore", 2)
        assert kind_and_limit(kind="semaphore", limit=3) == ("Semaphore", 3)
        assert kind_and_limit(kind="fair") == ("FairLock", 0)

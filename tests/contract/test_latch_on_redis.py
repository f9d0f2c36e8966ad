"""Latches on Redis: their format, late copies of requests, lost data, and a full server."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
import redis

from django_redis_locks import Latch, LockLost, locks
from tests.contract.matrix import PATIENCE, eventually
from tests.probes.engine import all_registered, waiters
from tests.probes.tuning import Tune
from tests.proxy import Proxy

pytestmark = pytest.mark.needs("latches")

LATCH, PARTICIPANTS, REQUESTS = "lock:{0}:k:import", "lock:{0}:p:import", "lock:{0}:n:import"


@pytest.fixture
def latch(redis_url: str, settings: Any) -> Latch:
    settings.REDIS_LOCKS = {"default": {"LOCATION": redis_url}}
    return locks.latch("import")


@pytest.fixture
def waiting(latch: Latch, tune: Tune) -> Iterator[Future[bool]]:
    """A caller that waits for the latch, and polls soon."""
    tune(max_poll_interval=0.2)
    latch.try_set(3)
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(latch.wait, PATIENCE)
        eventually(lambda: waiters(latch) and all_registered(latch))
        yield future


def test_latch_is_a_string_and_two_sorted_sets(latch: Latch, direct: redis.Redis) -> None:
    """Its participants are forgotten when it opens, and its requests when no copy of them can come any more."""
    latch.try_set(3, 60)
    latch.count_down("a")
    latch.count_down()
    assert re.fullmatch(rb"1 latch \S+ (\d{16}) 1 1 60000 \1", direct.get(LATCH))
    assert direct.zrange(PARTICIPANTS, 0, -1) == [b"a"]
    assert direct.zcard(REQUESTS) == 3
    assert 30_000 < direct.pttl(LATCH) <= 60_000
    assert 0 < direct.pttl(PARTICIPANTS) <= 60_000
    assert 60_000 < direct.pttl(REQUESTS) <= 70_000
    latch.count_down()
    assert re.fullmatch(rb"1 latch \S+ (\d{16}) 0 0 60000 \1", direct.get(LATCH))
    assert not direct.exists(PARTICIPANTS)


def test_old_requests_are_forgotten(latch: Latch, direct: redis.Redis) -> None:
    direct.zadd(REQUESTS, {f"old {number}": number for number in range(50)})
    latch.try_set(1)
    assert direct.zcard(REQUESTS) == 1


@pytest.mark.parametrize("participant", [None, "a"])
def test_late_copy_of_a_count_does_not_count_for_the_next_latch(
    proxy: Proxy, redis_url: str, settings: Any, latch: Latch, participant: str | None
) -> None:
    """[L40] It comes after the latch was set again. Nor does a late copy of that set the latch once more when it is
    open."""
    settings.REDIS_LOCKS = {"default": {"LOCATION": proxy.url}}
    latch = locks.latch("import")
    latch.try_set(2)
    latch.count_down("before")
    proxy.plan("late copy", "request", of="latch/count_down", behind="latch/set")
    proxy.plan("late copy", "request", of="latch/set", behind="latch/get")
    assert latch.count_down(participant) == 0
    assert latch.try_set(2)
    assert [latch.count_down(), latch.count_down(), latch.count(), latch.count()] == [1, 0, 0, 0]
    proxy.reset()


def test_late_copy_of_a_request_that_changed_nothing_changes_nothing(
    proxy: Proxy, settings: Any, direct: redis.Redis
) -> None:
    """[L40] A count on a latch that is not set or is open, a participant's second count, and a try_set that returned
    False: the latch was set or has opened when the copy comes."""
    settings.REDIS_LOCKS = {"default": {"LOCATION": proxy.url}}
    latch = locks.latch("import")

    def copied(name: str, call: Callable[..., object], *arguments: object) -> object:
        proxy.plan("late copy", of=name)
        return call(*arguments)

    for call in (partial(latch.try_set, 1), latch.count_down, latch.count):  # loads the scripts
        call()
    direct.delete(LATCH)
    assert copied("latch/count_down", latch.count_down) == 0
    assert latch.try_set(2)
    proxy.deliver()
    assert copied("latch/set", latch.try_set, 5) is False
    assert [latch.count_down(), latch.count_down()] == [1, 0]
    proxy.deliver()
    assert latch.count() == 0
    assert latch.try_set(2)
    assert latch.count_down("a") == 1
    assert copied("latch/count_down", latch.count_down, "a") == 1
    assert latch.count_down() == 0
    assert copied("latch/count_down", latch.count_down) == 0
    assert latch.try_set(3)
    proxy.deliver()
    assert latch.count() == 3


def test_latch_that_is_deleted_is_lost_for_its_waiters(
    latch: Latch, waiting: Future[bool], direct: redis.Redis
) -> None:
    direct.delete(LATCH)
    with pytest.raises(LockLost):
        waiting.result(PATIENCE)
    assert latch.wait()


def test_latch_whose_participants_were_evicted_ends(latch: Latch, waiting: Future[bool], direct: redis.Redis) -> None:
    """Otherwise a participant could count twice, and open it early."""
    latch.count_down("a")
    direct.delete(PARTICIPANTS)
    assert latch.count_down("a") == 0
    with pytest.raises(LockLost):
        waiting.result(PATIENCE)


def test_full_server_counts_down(latch: Latch, direct: redis.Redis) -> None:
    latch.try_set(2)
    direct.config_set("maxmemory", "1kb")
    try:
        assert not latch.try_set(5)
        assert [latch.count_down("a"), latch.count_down("a"), latch.count_down(), latch.count_down()] == [1, 1, 0, 0]
        assert latch.wait()
    finally:
        direct.config_set("maxmemory", "0")

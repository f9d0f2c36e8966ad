"""Many callers that wait for one lock."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import redis

from django_redis_locks.client import Locks
from tests.chaos import jobs
from tests.chaos.jobs import acquire, order, release
from tests.chaos.workers import AT_ONCE, CAP, Worker, connected, wait_until_registered
from tests.proxy import Proxy
from tests.waiting import eventually

Start = Callable[..., Worker]

SIZE = 500


def scripts(direct: redis.Redis) -> int:
    """Return the number of scripts that the server has run, by hash or by source."""
    stats = direct.info("commandstats")
    return sum(stats.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in ("eval", "evalsha"))


@pytest.mark.chaos
@pytest.mark.parametrize("gather", [jobs.gather, jobs.agather], ids=["threads", "tasks"])
def test_many_waiters_of_one_process_send_few_commands(
    workers: Start, direct: redis.Redis, gather: Callable[..., object]
) -> None:
    """[L26] [L27] [X1] At most three connections, no command during the wait, and about one per hold: the lock is
    handed over in the order of arrival."""
    holder, crowd = workers("holder", max_poll_interval=CAP), workers("crowd", max_poll_interval=CAP)
    assert holder.call(acquire, "a")
    crowd.call(gather, "a", SIZE)
    wait_until_registered(direct, 1)
    before = scripts(direct)
    threading.Event().wait(0.7)  # long enough to poll
    assert crowd.call(jobs.queued, "a") == SIZE
    assert connected(direct, "crowd") <= 3
    assert scripts(direct) - before <= 5, "an earlier test's janitor may still be sweeping"
    holder.call(release, "a")
    assert crowd.call(order, "a") == list(range(SIZE))
    assert connected(direct, "crowd") <= 3
    assert scripts(direct) - before <= 1.5 * SIZE
    assert crowd.call(jobs.queued, "a") == 0
    wait_until_registered(direct, 0)
    assert holder.call(acquire, "a", timeout=AT_ONCE)


def test_simultaneous_callers_send_one_request(proxied: Locks, proxy: Proxy) -> None:
    """[H12] [L25] While the first request has no reply, later callers queue locally: one request and one connection,
    not one per thread."""
    proxy.plan("delay", "reply", of="lock/acquire")
    begin = threading.Barrier(24)

    def enter() -> None:
        begin.wait()
        with proxied.lock("a", wait=20):
            pass

    with ThreadPoolExecutor(24) as pool:
        futures = [pool.submit(enter) for _ in range(24)]
        eventually(lambda: proxy.holds)
        threading.Event().wait(0.3)  # time for all callers to arrive; the test asserts how few sent a request
        asked = len(proxy.fates("lock/acquire"))
        proxy.deliver()
        for future in futures:
            future.result(20)
    assert asked == 1

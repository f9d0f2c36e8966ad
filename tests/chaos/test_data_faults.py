"""A server that restarts without its data, or with old data, during a hold and two waits."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

import pytest

from django_redis_locks import LockLost, clock
from tests.chaos.crowd import pair, wait_until_registered
from tests.probes.tuning import Tune
from tests.waiting import BUSY, eventually
from tools.redis_server import RedisServer

Make = Callable[..., RedisServer]
Open = Callable[..., list[Any]]

LEASE = 30.0
"""Seconds of a lease. Waiters try when it ends, so a waiter that acquires long before has noticed the fault."""


@pytest.mark.usefixtures("frequent_renewal")
@pytest.mark.parametrize("fault", ["restart", "flush"])
def test_lost_data_frees_the_lock_and_is_reported_as_a_loss(
    make_server: Make, open_lock: Open, tune: Tune, fault: str
) -> None:
    """[H1] [L3] [L22] [L24] Waiters acquire when they reconnect, or, since FLUSHALL sends no message, at the next poll;
    the holder is notified by its next renewal."""
    tune(max_poll_interval=60.0 if fault == "restart" else 0.5)
    server = make_server()
    theirs, ours = open_lock(server.url(), expire=LEASE, renew=True)
    grant = theirs.acquire()
    waiters = pair(ours)
    wait_until_registered(server)
    begin = clock.now()
    getattr(server, fault)()
    passed = [waiter.result(20) for waiter in waiters]
    assert max(had.at for had in passed) < begin + LEASE - 10, "before its lease would have been over"
    assert len({grant.fence, *(had.fence for had in passed)}) == 3
    assert min(had.fence for had in passed) >= grant.fence
    eventually(lambda: grant.lost)
    with pytest.raises(LockLost, match="taken"):
        grant.release()


@pytest.mark.usefixtures("frequent_renewal", "no_polling")
def test_older_snapshot_keeps_fences_rising(make_server: Make, open_both: Open) -> None:
    """[H1] [L41] After a restart with old data fences still rise, a lock that was released since exists again until its
    lease ends, and the holder of a lock that was acquired since is notified of the loss."""
    server = make_server()
    there, here = open_both(server.url())
    old = there.lock("old", expire=60)
    grant = old.acquire()
    server.command("SAVE")
    shutil.copy(server.folder / "dump.rdb", server.folder / "older.rdb")
    grant.release()
    for _ in range(300):
        with here.lock("b") as other:
            last = other.fence
    grant = there.lock("a", expire=LEASE, renew=True).acquire()
    waiters = pair(here.lock("a"))
    wait_until_registered(server)
    server.kill()
    shutil.move(server.folder / "older.rdb", server.folder / "dump.rdb")
    server.restart(keep_data=True)
    with here.lock("b") as other:
        assert other.fence > last
    assert old.locked()
    begin = clock.now()
    server.command("PEXPIRE", "lock:{0}:k:old", 1500)  # its lease ends soon
    ends = [waiter.result(20).at - begin for waiter in pair(old)]
    assert 1.4 < min(ends) < 1.5 + BUSY, "when its lease ends, since no holder renews it"
    assert min(waiter.result(20).fence for waiter in waiters) > grant.fence
    eventually(lambda: grant.lost)
    with pytest.raises(LockLost, match="taken"):
        grant.release()

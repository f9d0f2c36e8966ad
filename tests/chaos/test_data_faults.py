"""A server that comes back without its data, or with those of yesterday, while one holds a lock and two wait."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

import pytest

from django_redis_locks import LockLost, clock
from tests.chaos.crowd import lined_up, pair
from tests.probes.tuning import Tune
from tests.waiting import BUSY, eventually
from tools.redis_server import RedisServer

Make = Callable[..., RedisServer]
Open = Callable[..., list[Any]]

LEASE = 30.0
"""Waiters ask when it is over: who has the lock long before that has noticed something. Who is renewed asks `often`."""


@pytest.mark.usefixtures("often")
@pytest.mark.parametrize("fault", ["restart", "flush"])
def test_lost_data_free_the_lock_and_report_the_loss(
    make_server: Make, open_lock: Open, tune: Tune, fault: str
) -> None:
    """[H1] [L3] [L22] [L24] Waiters have it as soon as they see the server again, or at the cap, as nobody hears of FLUSHALL;
    the holder is told by its next renewal."""
    tune(max_poll_interval=60.0 if fault == "restart" else 0.5)
    server = make_server()
    theirs, ours = open_lock(server.url(), expire=LEASE, renew=True)
    grant = theirs.acquire()
    waiters = pair(ours)
    lined_up(server)
    begin = clock.now()
    getattr(server, fault)()
    passed = [waiter.result(20) for waiter in waiters]
    assert max(had.at for had in passed) < begin + LEASE - 10, "before its lease would have been over"
    assert len({grant.fence, *(had.fence for had in passed)}) == 3
    assert min(had.fence for had in passed) >= grant.fence
    eventually(lambda: grant.lost)
    with pytest.raises(LockLost, match="taken"):
        grant.release()


@pytest.mark.usefixtures("often", "no_polling")
def test_older_snapshot_keeps_fences_rising(make_server: Make, open_both: Open) -> None:
    """[H1] [L41] Killed, and back with the data of some hundred locks ago: fences still rise, a lock that was released
    since comes back and ends with its lease, one that was acquired since is gone and its holder told."""
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
    lined_up(server)
    server.kill()
    shutil.move(server.folder / "older.rdb", server.folder / "dump.rdb")
    server.restart(keep_data=True)
    with here.lock("b") as other:
        assert other.fence > last
    assert old.locked()
    begin = clock.now()
    server.command("PEXPIRE", "lock:{0}:k:old", 1500)  # little is left of it
    ends = [waiter.result(20).at - begin for waiter in pair(old)]
    assert 1.4 < min(ends) < 1.5 + BUSY, "when its lease is over: nobody holds it who could prolong it"
    assert min(waiter.result(20).fence for waiter in waiters) > grant.fence
    eventually(lambda: grant.lost)
    with pytest.raises(LockLost, match="taken"):
        grant.release()

"""The server comes back with its data, without them, or with those of yesterday, while one holds a lock and two wait."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import time
from collections.abc import Callable
from typing import Any

import pytest

from django_redis_locks import LockLost, clock
from tests.chaos.crowd import KEY, lined_up, listening, pair, start
from tests.probes.events import Event, Lost, Released
from tests.probes.tuning import Tune
from tests.waiting import BUSY, eventually
from tools.redis_server import RedisServer

Make = Callable[..., RedisServer]
Open = Callable[..., list[Any]]

LEASE = 30.0
"""Waiters ask when it is over: who has the lock long before that has noticed something. Who is renewed asks `often`."""


@pytest.fixture
def no_polling(tune: Tune) -> None:
    """Who gets a lock within a minute was told."""
    tune(max_poll_interval=60.0)


@pytest.mark.parametrize("persistence", ["snapshot", "log"])
def test_restart_with_data_keeps_the_lock_held(
    make_server: Make, open_lock: Open, no_polling: None, persistence: str
) -> None:
    """[L22] [H1] Nothing has happened to holders and waiters: the lock is held, and its release is heard of."""
    log = {"appendonly": "yes", "appendfsync": "always"} if persistence == "log" else {}
    server = make_server(**log)
    theirs, ours = open_lock(server.url(), expire=LEASE, renew=True)
    grant = theirs.acquire()
    waiters = pair(ours)
    lined_up(server)
    if log:
        server.kill()
    server.restart(keep_data=True)
    listening(server)
    lined_up(server)
    grant.ensure_held(confirm=True)
    assert not any(waiter.done() for waiter in waiters)
    begin = clock.now()
    grant.release()
    fences = sorted(waiter.result(20).fence for waiter in waiters)
    assert clock.now() - begin < BUSY, "told, both of them"
    assert grant.fence < fences[0] < fences[1]
    eventually(lambda: not server.command("EXISTS", KEY))


@pytest.mark.usefixtures("often")
def test_restart_without_data_frees_the_lock_and_reports_the_loss(
    make_server: Make, open_lock: Open, no_polling: None
) -> None:
    """[H1] [L3] [L22] The lock is free: waiters have it as soon as they see the server, with larger fences; the holder
    is told."""
    server = make_server()
    theirs, ours = open_lock(server.url(), expire=LEASE, renew=True)
    grant = theirs.acquire()
    waiters = pair(ours)
    lined_up(server)
    server.restart()
    begin = clock.now()
    for waiter in waiters:
        had = waiter.result(20)
        assert had.at < begin + LEASE - 10, "before its lease would have been over"
        assert had.fence > grant.fence
    eventually(lambda: grant.lost)
    with pytest.raises(LockLost, match="taken"):
        grant.release()


@pytest.mark.usefixtures("often")
def test_flush_frees_the_lock_for_waiters_at_the_cap(make_server: Make, open_lock: Open, tune: Tune) -> None:
    """[L24] [L3] Nobody hears of FLUSHALL: waiters ask at the cap, and line up again if they find it taken already."""
    tune(max_poll_interval=0.5)
    server = make_server()
    theirs, ours = open_lock(server.url(), expire=LEASE, renew=True)
    grant = theirs.acquire()
    waiters = pair(ours)
    lined_up(server)
    begin = clock.now()
    server.flush()
    fences = [grant.fence]
    for waiter in waiters:
        had = waiter.result(20)
        assert had.at < begin + LEASE - 10, "before its lease would have been over"
        fences.append(had.fence)
    assert min(fences) == grant.fence
    assert len(set(fences)) == 3
    eventually(lambda: grant.lost)
    with pytest.raises(LockLost, match="taken"):
        grant.release()


@pytest.mark.usefixtures("often")
def test_an_older_snapshot(make_server: Make, open_both: Open, no_polling: None) -> None:
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
    assert 0 < server.command("PTTL", "lock:{0}:k:old") <= 60_000
    begin = clock.now()
    server.command("PEXPIRE", "lock:{0}:k:old", 1500)  # little is left of it
    (had_old, also) = (waiter.result(20) for waiter in pair(old))
    assert 1.4 < min(had_old.at, also.at) - begin < 1.5 + BUSY, (
        "when its lease is over: nobody holds it who could prolong it"
    )
    fences = [waiter.result(20).fence for waiter in waiters]
    assert min(fences) > grant.fence
    eventually(lambda: grant.lost)
    with pytest.raises(LockLost, match="taken"):
        grant.release()


def test_flushed_before_it_was_handed_over(
    make_server: Make, open_lock: Open, no_polling: None, heard: list[Event]
) -> None:
    """[H3] [L3] A holder that hands its lock over asks nobody. The heir finds out that a neighbour has it: the holder is
    told by the signal, and the heir goes on waiting."""
    server = make_server()
    theirs, ours = open_lock(server.url(), expire=60)
    grant = ours.acquire()
    heir = start(lambda: ours.acquire(timeout=20))
    lined_up(server, 1)
    server.flush()
    theft = theirs.acquire()
    grant.release()
    eventually(lambda: [event.fence for event in heard if isinstance(event, Lost)] == [grant.fence])
    lined_up(server, 1)
    assert not heir.done()
    begin = clock.now()
    theft.release()
    heir.result(20).release()
    assert clock.now() - begin < BUSY


@pytest.mark.parametrize("kept", [True, False], ids=["kept", "empty"])
def test_the_first_word_after_a_restart_is_a_release(
    make_server: Make, open_locks: Open, heard: list[Event], kept: bool
) -> None:
    """[H15] [H24] The connection was closed while it lay idle. That leaves nothing in doubt: released and confirmed, or
    lost and told, although it was held for too short a time to be renewed."""
    server = make_server()
    client = open_locks(server.url())
    told = contextlib.nullcontext() if kept else pytest.raises(LockLost)

    def restart() -> None:
        server.restart(keep_data=kept)
        time.sleep(0.1)  # connections that were used a moment ago aren't looked at

    async def task() -> None:
        grant = await client.lock("b", expire=60).aacquire()
        await asyncio.to_thread(restart)
        with told:
            await grant.arelease()

    grant = client.lock("a", expire=60).acquire()
    restart()
    with told:
        grant.release()
    asyncio.run(task())
    ends = [event for event in heard if isinstance(event, Lost | Released)]
    assert [getattr(event, "confirmed", "lost") for event in ends] == [True if kept else "lost"] * 2

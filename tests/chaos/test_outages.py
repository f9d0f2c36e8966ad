"""The server is down, or says that it can't just now, for shorter and for longer than its callers wait."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from math import inf
from typing import Any

import pytest
import redis

from django_redis_locks import Lock, LockBackendError, LockLost, clock
from django_redis_locks.client import Locks
from tests.chaos.crowd import KEY, LINE, asked, lined_up, listening, pair, start
from tests.chaos.helpers import LEASE
from tests.probes.tuning import Tune
from tests.waiting import BUSY, eventually
from tools.redis_server import RedisServer

Make = Callable[..., RedisServer]
Open = Callable[..., Any]

LONG = 30.0
"""Of a lock that is held, and renewed `often`, while servers come and go: each may take seconds to start, or to follow."""


@pytest.fixture
def no_polling(tune: Tune) -> None:
    """Who gets a lock within a minute was told."""
    tune(max_poll_interval=60.0)


def failed(waiter: Future[object]) -> float:
    """It ended with the store's failure; returns when."""
    with pytest.raises(LockBackendError, match=r"can't reach|no answer"):
        waiter.result(20)
    return clock.now()


def told_at_once(server: RedisServer, theirs: Lock, ours: Lock) -> None:
    """Two wait, and are told of a neighbour's release. With `no_polling` that is the only way."""
    grant = theirs.acquire()
    waiters = pair(ours)
    lined_up(server)
    begin = clock.now()
    grant.release()
    assert all(waiter.result(20) for waiter in waiters)
    assert clock.now() - begin < BUSY


@pytest.mark.chaos
@pytest.mark.parametrize("silent", [False, True], ids=["gone", "silent"])
def test_down_for_longer_than_they_wait(make_server: Make, open_lock: Open, no_polling: None, silent: bool) -> None:
    """[L22] [F15] It is told at the deadline, or one answer that doesn't come later. Afterwards the same process locks as
    ever, and the inbox is back: a release is heard of."""
    server = make_server(appendonly="yes", appendfsync="always")
    theirs, ours = open_lock(server.url(), expire=60, OPTIONS={"socket_timeout": 2 if silent else 5})
    grant = theirs.acquire()
    begin = -inf
    while clock.now() > begin + 1.9:  # not yet, or a busy machine was too slow: they may have asked for the last time
        if begin > -inf:
            server.resume() if silent else server.restart(keep_data=True)
        begin, waiters = clock.now(), pair(ours, timeout=2)
        eventually(lambda: server.command("ZCARD", LINE) == 2 or clock.now() > begin + 1.9)  # noqa: B023 - of this round
        server.pause() if silent else server.kill()
    for waiter in waiters:
        assert 1.9 < failed(waiter) - begin < 2 + (4 if silent else 0) + BUSY
    with pytest.raises(LockBackendError):
        grant.release()
    if silent:
        server.resume()
    else:
        server.restart()
    eventually(lambda: server.command("EXISTS", KEY) == 0)
    assert not ours.locked()
    told_at_once(server, theirs, ours)


def test_down_while_they_go_on_waiting(make_server: Make, open_lock: Open, no_polling: None) -> None:
    """[L22] [H10] Waiters and their inbox outlive it, and hear of the next release; what was published meanwhile isn't
    missed, since everybody asks once when the inbox is back."""
    server = make_server(appendonly="yes", appendfsync="always")
    theirs, ours = open_lock(server.url(), expire=60)
    grant = theirs.acquire()
    waiters = pair(ours)
    lined_up(server)
    server.kill()
    with pytest.raises(LockBackendError):
        ours.locked()
    server.restart(keep_data=True)
    listening(server)
    lined_up(server)
    begin = clock.now()
    grant.release()
    assert all(waiter.result(20) for waiter in waiters)
    assert clock.now() - begin < BUSY


def test_endless_wait_ends_when_the_server_stays_down(make_server: Make, open_lock: Open, tune: Tune) -> None:
    """[L22] There is an end to that: TROUBLE, once for all who stand in one queue. Then the process locks as ever."""
    cap, trouble = 0.3, 0.8
    tune(max_poll_interval=cap)
    tune(down_after=trouble)
    server = make_server()
    theirs, ours = open_lock(server.url(), expire=60)
    grant = theirs.acquire()
    waiters = [*pair(ours, timeout=-1), *(start(lambda: ours.acquire(timeout=-1)) for _ in range(5))]
    lined_up(server)
    begin = clock.now()
    server.kill()
    for waiter in waiters:
        failed(waiter)
    assert trouble - cap < clock.now() - begin < cap + trouble + BUSY
    tune(max_poll_interval=60.0)
    server.restart()
    with pytest.raises(LockLost):
        grant.release()
    told_at_once(server, theirs, ours)


@pytest.mark.chaos
def test_waiter_behind_the_head_fails_with_the_outage(make_server: Make, open_locks: Open, tune: Tune) -> None:
    """[H22] [F14] Only the first in a queue asks. Those behind him, whose wait ends first, don't take it for a busy lock;
    and if they would rather go on without one, they do."""
    tune(max_poll_interval=0.2)
    server = make_server()
    client = open_locks(server.url())
    lock = client.lock("a", expire=60)
    lock.acquire()
    first = start(lambda: lock.acquire(timeout=60))
    lined_up(server, 1)
    begin = clock.now()
    second = start(lambda: lock.acquire(timeout=2))
    third = start(lambda: client.lock("a", on_backend_error="open").acquire(timeout=2))
    server.kill()
    assert 1.9 < failed(second) - begin < 2 + BUSY
    assert third.result(20).held is False
    assert not first.done()
    server.restart()
    first.result(20).release()


# Down in a way of its own


def refused(client: Locks, why: str) -> None:
    with pytest.raises(LockBackendError, match=why):
        client.lock("b", expire=1).acquire(timeout=0)


@pytest.mark.usefixtures("often")
def test_read_only_server_is_waited_for(
    make_server: Make, open_both: Open, no_polling: None, caplog: pytest.LogCaptureFixture
) -> None:
    """[L22] A server that was demoted to a replica refuses, in words that say so; waiters and renewals are patient until
    it is promoted again. What couldn't be released is released then."""
    server, other = make_server(**REPLICATED), make_server(**REPLICATED)
    there, here = open_both(server.url())
    grant = there.lock("a", expire=LONG, renew=True).acquire()
    left = there.lock("left", expire=60).acquire()
    waiters = pair(here.lock("a", expire=60))
    lined_up(server)
    follow(other, server)
    other.command("REPLICAOF", "NO", "ONE")
    follow(server, other)
    refused(here, "READONLY")
    with pytest.raises(LockBackendError, match="READONLY"):
        grant.extend(60)
    with pytest.raises(LockBackendError, match="READONLY"):
        left.release()
    assert here.lock("a").acquire(timeout=0) is None, "busy is answered as ever"
    before = asked(server)
    patient = pair(here.lock("c"))
    eventually(lambda: asked(server) >= before + 4)
    eventually(lambda: "couldn't be renewed" in caplog.text)
    server.command("REPLICAOF", "NO", "ONE")
    grant.extend(60)
    assert all(waiter.result(20) for waiter in patient)
    eventually(lambda: not server.command("EXISTS", "lock:{0}:k:left"))
    assert not any(waiter.done() for waiter in waiters)
    begin = clock.now()
    grant.release()
    assert all(waiter.result(20) for waiter in waiters)
    assert clock.now() - begin < BUSY


REPLICATED = {"repl_diskless_sync_delay": 0}


def follow(server: RedisServer, master: RedisServer) -> None:
    """Make it a replica, and wait until it has its master's data."""
    server.command("REPLICAOF", "127.0.0.1", master.port)
    eventually(lambda: "master_link_status:up" in server.command("INFO", "replication"))


@pytest.mark.usefixtures("often")
def test_loading_server_is_waited_for(make_server: Make, open_both: Open, no_polling: None) -> None:
    """[L22] A server that reads its data answers that it does: waiters and renewals are patient."""
    server = make_server(rdbcompression="no")
    there, here = open_both(server.url())
    grant = there.lock("a", expire=LONG, renew=True).acquire()
    waiters = pair(here.lock("a"))
    lined_up(server)
    for number in range(12):  # it looks up from its reading every 2 MB
        server.command("SET", f"much:{number}", "x" * 1_000_000)
    server.config["key-load-delay"] = 60_000  # us for each key
    seen = start(lambda: eventually(lambda: "LOADING" in complaint(here)))
    while not seen.done():  # one that a busy machine misses is followed by another one
        server.restart(keep_data=True)
    seen.result()
    grant.ensure_held(confirm=True)
    assert not any(waiter.done() for waiter in waiters)
    begin = clock.now()
    grant.release()
    assert all(waiter.result(20) for waiter in waiters)
    assert clock.now() - begin < BUSY


def complaint(client: Locks) -> str:
    try:
        client.lock("b").locked()
    except LockBackendError as failure:
        return str(failure)
    return ""


@contextlib.contextmanager
def crowded(server: RedisServer) -> Iterator[None]:
    """No more clients are let in, and those that were in are out."""
    with redis.Redis.from_url(server.url(), single_connection_client=True) as admin:
        admin.config_set("maxclients", 1)
        for kind in ("normal", "pubsub"):
            admin.client_kill_filter(_type=kind, skipme=True)
        yield
        admin.config_set("maxclients", 1000)


@pytest.mark.usefixtures("often")
def test_no_more_clients(make_server: Make, open_both: Open, no_polling: None) -> None:
    """A server that is full of clients says so; waiters and renewals are patient, and the inbox comes back."""
    server = make_server()
    there, here = open_both(server.url())
    grant = there.lock("a", expire=LEASE, renew=True).acquire()
    waiters = pair(here.lock("a"))
    lined_up(server)
    with crowded(server):
        refused(here, "max number of clients reached. Raise its maxclients")
        with pytest.raises(LockBackendError, match="max number of clients reached"):
            grant.extend(60)
    listening(server)
    grant.ensure_held(confirm=True)
    begin = clock.now()
    grant.release()
    assert all(waiter.result(20) for waiter in waiters)
    assert clock.now() - begin < BUSY


def test_idle_connections_are_closed(make_server: Make, open_lock: Open, no_polling: None) -> None:
    """[H24] By the server's `timeout`: nobody notices, and the inbox of those who wait isn't idle."""
    server = make_server()
    theirs, ours = open_lock(server.url(), expire=60)
    grant = theirs.acquire()
    waiters = pair(ours)
    lined_up(server)
    server.command("CONFIG", "SET", "timeout", 1)
    eventually(lambda: not clients(server, "normal"))
    server.command("CONFIG", "SET", "timeout", 0)  # what comes new may stand still for longer than that
    assert len(clients(server, "pubsub")) == 1
    begin = clock.now()
    grant.release()
    assert all(waiter.result(20) for waiter in waiters)
    assert clock.now() - begin < BUSY


def clients(server: RedisServer, kind: str) -> list[str]:
    try:
        answer = server.command("CLIENT", "LIST", "TYPE", kind)
    except ConnectionError:  # who asks is a client too, and may have been idle
        answer = server.command("CLIENT", "LIST", "TYPE", kind)
    lines = answer.splitlines()
    return [line for line in lines if "cmd=client" not in line]

"""The server is down, or returns temporary errors, for shorter and for longer than its callers wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from math import inf
from typing import Any

import pytest

from django_redis_locks import LockBackendError, clock, locks
from django_redis_locks.client import Locks
from tests.chaos.crowd import (
    CHANNELS,
    KEY,
    WAITERS,
    pair,
    release_and_collect,
    script_calls,
    start,
    wait_until_registered,
    wait_until_subscribed,
)
from tests.chaos.helpers import LEASE, renewed
from tests.probes.tuning import Tune
from tests.proxy import Proxy
from tests.waiting import BUSY, eventually
from tools.redis_server import RedisServer

Make = Callable[..., RedisServer]
Open = Callable[..., Any]

LONG = 30.0
"""Seconds of the lease of a lock that is renewed with `frequent_renewal` while servers restart, which may take
seconds."""

CAP = 0.4


def failed(waiter: Future[object]) -> float:
    """Wait until it fails with a LockBackendError; return the time."""
    with pytest.raises(LockBackendError, match=r"can't reach|no answer"):
        waiter.result(20)
    return clock.now()


def test_call_to_an_unreachable_server_raises_LockBackendError_in_time(
    open_locks: Callable[..., Locks], make_server: Make
) -> None:
    """[F15] Without a wait at once, otherwise when it ends; the message names the alias and a fix."""
    server = make_server()
    server.kill()
    lock = open_locks(server.url()).lock("a")
    for wait in (0, 0.4):
        for call in (lambda: lock.acquire(timeout=wait), lambda: asyncio.run(lock.aacquire(timeout=wait))):  # noqa: B023
            begin = clock.now()
            with pytest.raises(
                LockBackendError, match=r"'default'.*can't reach.*Start that server, or correct LOCATION"
            ):
                call()
            assert wait - 0.1 <= clock.now() - begin <= BUSY


@pytest.mark.chaos
@pytest.mark.usefixtures("no_polling")
@pytest.mark.parametrize("silent", [False, True], ids=["gone", "silent"])
def test_outage_longer_than_a_wait_ends_it_with_an_error(make_server: Make, open_lock: Open, silent: bool) -> None:
    """[L22] [F15] The error is raised at the deadline, or one socket timeout later. Afterwards the process locks again,
    and its subscriber receives messages."""
    server = make_server(appendonly="yes", appendfsync="always")
    theirs, ours = open_lock(server.url(), expire=60, BACKEND_WAIT=4, OPTIONS={"socket_timeout": 2 if silent else 5})
    grant = theirs.acquire()
    begin = -inf
    while clock.now() > begin + 1.9:  # on a slow machine they may have sent their last request already
        if begin > -inf:
            server.resume() if silent else server.restart(keep_data=True)
        begin, waiters = clock.now(), pair(ours, timeout=2)
        eventually(lambda: server.command("ZCARD", WAITERS) == 2 or clock.now() > begin + 1.9)  # noqa: B023 - of this round
        server.pause() if silent else server.kill()
    for waiter in waiters:
        assert 1.9 < failed(waiter) - begin < 2 + (4 if silent else 0) + BUSY
    with pytest.raises(LockBackendError):
        grant.release()
    server.resume() if silent else server.restart()
    eventually(lambda: server.command("EXISTS", KEY) == 0)
    eventually(lambda: not complaint(locks["localhost"]) and not complaint(locks["127.0.0.1"]))
    grant, waiters = theirs.acquire(), pair(ours)
    wait_until_registered(server)
    release_and_collect(grant, waiters)


@pytest.mark.usefixtures("no_polling", "frequent_renewal")
def test_outage_shorter_than_a_wait_is_waited_for(make_server: Make, open_lock: Open) -> None:
    """[E12] [L22] [H1] [H10] [L20] Holds, waiters, the subscriber and the scripts survive it. Lost messages do no harm,
    since every waiter tries once when the subscriber is back."""
    server = make_server(appendonly="yes", appendfsync="always")
    theirs, ours = open_lock(server.url(), expire=LONG, renew=True, BACKEND_WAIT=LONG)
    grant = theirs.acquire()
    waiters = pair(ours)
    wait_until_registered(server)
    server.kill()
    looks = start(ours.locked)
    server.restart(keep_data=True)
    assert looks.result(20)
    wait_until_subscribed(server)
    wait_until_registered(server)
    renewed(grant)
    assert not any(waiter.done() for waiter in waiters)
    fences = release_and_collect(grant, waiters)
    assert fences == sorted(set(fences))


def test_endless_wait_ends_when_the_server_stays_down(make_server: Make, open_lock: Open, tune: Tune) -> None:
    """[L22] For all waiters of one queue."""
    cap, backend_wait = 0.3, 0.8
    tune(max_poll_interval=cap)
    server = make_server()
    theirs, ours = open_lock(server.url(), expire=60, BACKEND_WAIT=backend_wait)
    theirs.acquire()
    waiters = [*pair(ours, timeout=-1), *(start(lambda: ours.acquire(timeout=-1)) for _ in range(5))]
    wait_until_registered(server)
    begin = clock.now()
    server.kill()
    for waiter in waiters:
        failed(waiter)
    assert backend_wait - cap < clock.now() - begin < cap + backend_wait + BUSY


@pytest.mark.chaos
def test_waiter_behind_the_head_fails_with_the_outage(
    make_server: Make, open_locks: Callable[..., Locks], tune: Tune
) -> None:
    """[H22] [F14] Only the head of a queue sends requests. A later waiter with a shorter wait doesn't report a busy
    lock, and goes on without the lock if it is configured so."""
    tune(max_poll_interval=0.2)
    server = make_server()
    client = open_locks(server.url(), BACKEND_WAIT=60)
    lock = client.lock("a", expire=60)
    lock.acquire()
    first = start(lambda: lock.acquire(timeout=60))
    wait_until_registered(server, 1)
    begin = clock.now()
    second = start(lambda: lock.acquire(timeout=2))
    third = start(lambda: client.lock("a", on_backend_error="open").acquire(timeout=2))
    server.kill()
    assert 1.9 < failed(second) - begin < 2 + BUSY
    assert third.result(20).protected is False
    assert not first.done()
    server.restart()
    first.result(20).release()


# Temporary errors


def follow(server: RedisServer, master: RedisServer) -> None:
    """Make a server a replica, and wait until it has its master's data."""
    server.command("REPLICAOF", "127.0.0.1", master.port)
    eventually(lambda: "master_link_status:up" in server.command("INFO", "replication"))


@pytest.mark.usefixtures("frequent_renewal", "no_polling")
def test_read_only_server_is_waited_for(make_server: Make, open_both: Open, caplog: pytest.LogCaptureFixture) -> None:
    """[L22] A server that was demoted to a replica returns errors; waiters and renewals retry until it is promoted
    again. Locks that couldn't be released are released then."""
    server, other = make_server(repl_diskless_sync_delay=0), make_server(repl_diskless_sync_delay=0)
    there, here = open_both(server.url())
    grant = there.lock("a", expire=LONG, renew=True).acquire()
    left = there.lock("left", expire=60).acquire()
    waiters = pair(here.lock("a", expire=60))
    wait_until_registered(server)
    follow(other, server)
    other.command("REPLICAOF", "NO", "ONE")
    follow(server, other)
    for attempt in (lambda: here.lock("b").acquire(timeout=0), lambda: grant.extend(60), left.release):
        with pytest.raises(LockBackendError, match="READONLY"):
            attempt()
    assert here.lock("a").acquire(timeout=0) is None, "busy is answered as ever"
    before = script_calls(server)
    patient = pair(here.lock("c"))
    eventually(lambda: script_calls(server) >= before + 4)
    eventually(lambda: "couldn't be renewed" in caplog.text)
    server.command("REPLICAOF", "NO", "ONE")
    grant.extend(60)
    assert all(waiter.result(20) for waiter in patient)
    eventually(lambda: not server.command("EXISTS", "lock:{0}:k:left"))
    assert not any(waiter.done() for waiter in waiters)
    release_and_collect(grant, waiters)


@pytest.mark.usefixtures("frequent_renewal", "no_polling")
def test_loading_server_is_waited_for(make_server: Make, open_both: Open) -> None:
    """[L22] A server that loads its data returns LOADING: waiters and renewals retry."""
    server = make_server(rdbcompression="no")
    there, here = open_both(server.url(), BACKEND_WAIT=LONG)
    grant = there.lock("a", expire=LONG, renew=True).acquire()
    waiters = pair(here.lock("a"))
    wait_until_registered(server)
    for number in range(20):  # it handles requests every 2 MB
        server.command("SET", f"much:{number}", "x" * 1_000_000)
    server.config["key-load-delay"] = 300_000  # us for each key: longer in all than the requests of a new connection
    seen = start(lambda: eventually(lambda: "LOADING" in complaint(here)))
    while not seen.done():  # a slow machine may miss one restart
        server.restart(keep_data=True)
    seen.result()
    grant.ensure_held(confirm=True)
    assert not any(waiter.done() for waiter in waiters)
    release_and_collect(grant, waiters)


def complaint(client: Locks) -> str:
    """Return the error of an acquire, or "" if the server replies. Nothing is released: a server that is restarted would
    delay that."""
    try:
        client.lock("b", expire=60, auto_release=False).acquire(timeout=0)
    except LockBackendError as failure:
        return str(failure)
    return ""


@pytest.mark.usefixtures("frequent_renewal")
def test_full_server_keeps_what_is_held(make_server: Make, open_locks: Callable[..., Locks], tune: Tune) -> None:
    """[E14] [H11] [E5] [L24] [H3] [L43] A held lock is renewed, and handed over within its local queue, since a full
    server allows the first write of both. A later waiter can't be registered and polls. A free lock can't be acquired
    until there is memory; a wait that ends before raises, with the reason and a fix."""
    tune(max_poll_interval=CAP)
    server = make_server(maxmemory_policy="noeviction")
    lock = open_locks(server.url()).lock("a", expire=LEASE, renew=True)
    grant = lock.acquire()
    waiter = start(lambda: lock.acquire(timeout=60))
    wait_until_registered(server, 1)
    server.command("CONFIG", "SET", "maxmemory", "1kb")
    before = script_calls(server)
    thread, task = pair(lock)
    renewed(grant)
    eventually(lambda: script_calls(server) >= before + 12 and not server.command("EXISTS", WAITERS))
    grant.release()
    handed_over = waiter.result(20)
    assert handed_over.fence > grant.fence
    assert not task.done()
    handed_over.release()
    assert thread.result(20)
    with pytest.raises(LockBackendError, match=r"OOM.*at maxmemory; raise it"):
        lock.acquire(timeout=CAP)
    assert not task.done()
    assert server.command("EXISTS", KEY) == 0
    server.command("CONFIG", "SET", "maxmemory", "0")
    assert all(waiter.result(20) for waiter in (task, *pair(lock)))


def test_half_open_subscription_is_replaced_within_two_poll_intervals(
    make_server: Make, open_lock: Open, tune: Tune
) -> None:
    """[H10] [L24] Messages are sent to a dead connection: the waiters poll. While there is a waiter the silence is
    noticed within two poll intervals, and the next message arrives."""
    tune(max_poll_interval=CAP)
    server = make_server()

    def heard_by() -> int:
        """Return the number of subscribed connections, dead ones too."""
        (channel,) = server.command("PUBSUB", "CHANNELS", CHANNELS)
        return int(server.command("PUBSUB", "NUMSUB", channel)[1])

    with Proxy(server.port) as proxy:
        theirs, ours = open_lock(proxy.url, expire=60)
        grant, waiters = theirs.acquire(), pair(ours)
        wait_until_registered(server)
        dead = heard_by()
        proxy.freeze("SUBSCRIBE")
        begin = clock.now()
        grant.release()
        assert max(waiter.result(20).at for waiter in waiters) - begin < CAP + locks.tuning.max_jitter + BUSY

        grant, waiters = theirs.acquire(), pair(ours)
        assert eventually(lambda: heard_by() > dead) < 3 * CAP + BUSY
        grant.release()
        assert all(waiter.result(20) for waiter in waiters)

        tune(max_poll_interval=60.0)
        grant, waiters = theirs.acquire(), pair(ours)
        wait_until_registered(server)
        release_and_collect(grant, waiters)

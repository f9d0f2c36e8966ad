"""Forks and signals during operations. What a child may do with a grant of its parent is in tests/contract."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator

import pytest
import redis

from django_redis_locks import locks
from django_redis_locks.client import Locks
from tests.chaos.conftest import SILENCE
from tests.chaos.helpers import LEASE, renewed
from tests.chaos.workers import Worker
from tests.forks import in_child
from tests.probes import client as probes
from tests.probes.client import mutexes_held, queue_count, token_prefix
from tests.proxy import Proxy
from tests.waiting import eventually

SOCKET_TIMEOUT = SILENCE
KEY = "lock:{0}:k:a"


@pytest.mark.usefixtures("frequent_renewal")
def test_fork_in_the_middle_leaves_parent_and_child_independent(
    open_locks: Callable[..., Locks], redis_url: str, direct: redis.Redis
) -> None:
    """[H18] [L47] [E16] The process forks while a lock is renewed, a thread and a loop have connections, and mutexes
    are held. The child has no waiters, waits under its own name, and locks in threads and tasks; the parent's lock is
    still renewed, and its waiter is still woken."""
    client = open_locks(redis_url)
    lock = client.lock("a", expire=LEASE, renew=True)
    grant = lock.acquire()
    prefix = token_prefix()
    got: list[bool] = []
    waiter = threading.Thread(target=lambda: got.append(bool(lock.acquire(timeout=60))))
    waiter.start()
    eventually(lambda: direct.zcard("lock:{0}:w:a") == 1)

    async def alone(key: str) -> None:
        async with client.lock(key):
            pass

    def child() -> None:
        asyncio.events._set_running_loop(None)
        assert token_prefix() != prefix
        assert queue_count(client) == 0
        assert lock.acquire(timeout=0.3) is None, "it waits, is in line, and leaves"
        with client.lock("b", expire=LEASE, renew=True) as mine:
            renewed(mine)
            mine.ensure_held(confirm=True)
        asyncio.run(alone("c"))
        client.engine.wait_until_idle(20)

    async def main() -> None:
        await alone("d")
        with mutexes_held(client):
            in_child(child)
        await alone("d")

    asyncio.run(main())
    assert direct.zcard("lock:{0}:w:a") == 1, "the parent's"
    renewed(grant)
    grant.release()
    waiter.join(30)
    assert got == [True]


def test_child_opens_an_alias_that_its_parent_was_opening(redis_url: str, open_locks: Callable[..., Locks]) -> None:
    """[H18] A thread of the parent, which doesn't exist in the child, held the mutex of the aliases."""
    open_locks(redis_url)
    held, done = threading.Event(), threading.Event()

    def opening() -> None:
        with probes.aliases_mutex_held():
            held.set()
            done.wait(60)

    thread = threading.Thread(target=opening)
    thread.start()
    assert held.wait(20)

    def child() -> None:
        probes.forget_aliases()
        assert locks["default"]

    try:
        in_child(child)
    finally:
        done.set()
        thread.join(20)


class Interrupted(BaseException):
    """Stands for the exceptions of signal handlers: KeyboardInterrupt, SoftTimeLimitExceeded."""


@contextlib.contextmanager
def interrupt_after(seconds: float) -> Iterator[None]:
    def ring(*_: object) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_interrupted_read_affects_no_later_reply(proxied: Locks, proxy: Proxy, direct: redis.Redis) -> None:
    """[H21] [H15] The connection with the unread reply is closed, and a lock that the request left is deleted."""
    proxy.plan("drop", "reply", of="lock/acquire")
    with pytest.raises(Interrupted), interrupt_after(0.1):
        proxied.lock("a", expire=60).acquire(timeout=0)
    for number in range(3):
        with proxied.lock(f"other:{number}") as grant:
            assert grant.fence
    eventually(lambda: not direct.exists(KEY))


def test_killed_holder_frees_its_lock_by_the_lease(
    open_locks: Callable[..., Locks], redis_url: str, direct: redis.Redis, holder: Worker
) -> None:
    """[D29] After kill -9 the lock is neither released nor renewed; the next waiter acquires it when the lease ends."""
    lock = open_locks(redis_url).lock("a")
    assert lock.acquire(timeout=0) is None
    os.kill(holder.pid, signal.SIGKILL)
    assert lock.acquire(timeout=0) is None
    assert direct.pexpire(KEY, 300)
    assert lock.acquire(timeout=20)

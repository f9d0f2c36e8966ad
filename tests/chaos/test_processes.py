"""Forks, signals and cancellation in the middle of everything."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator

import pytest
import redis

from django_redis_locks.client import Locks
from tests.chaos.conftest import SILENCE
from tests.chaos.helpers import LEASE, renewed
from tests.forks import in_child
from tests.probes.client import mutexes_held, queue_count, token_prefix
from tests.probes.tuning import Tune
from tests.proxy import Proxy
from tests.waiting import eventually

SOCKET_TIMEOUT = SILENCE

Open = Callable[..., Locks]
KEY = "lock:{0}:k:a"


def test_a_forked_child_has_no_hold_of_its_parent(open_locks: Open, redis_url: str, direct: redis.Redis) -> None:
    """[H18] [F16] [E16] [L47] In the child the grant is lost, its release does nothing and warns, `with` ends quietly."""
    client = open_locks(redis_url)
    lock = client.lock("a", expire=60, renew=True)
    grant = lock.acquire()

    def child() -> None:
        assert grant.lost
        assert not lock.owned()
        with pytest.warns(RuntimeWarning, match="forked"):
            grant.release()
        grant.release()  # warns once
        assert lock.acquire(timeout=0) is None, "the parent's, as for any other process"
        assert direct_exists(redis_url)

    in_child(child)
    grant.ensure_held(confirm=True)
    grant.release()
    assert not direct.exists(KEY)


def direct_exists(url: str) -> bool:
    with redis.Redis.from_url(url) as client:
        return bool(client.exists(KEY))


def test_a_fork_inside_with_leaves_the_parents_lock_alone(
    open_locks: Open, redis_url: str, direct: redis.Redis
) -> None:
    """[F16] The child leaves the `with` block too; no exception, no release."""
    client = open_locks(redis_url)

    def child() -> None:
        with pytest.warns(RuntimeWarning, match="forked"):
            stack.close()

    with contextlib.ExitStack() as stack:
        stack.enter_context(client.lock("a", expire=60))
        in_child(child)
        assert direct.exists(KEY)
    assert not direct.exists(KEY)


def test_a_fork_while_threads_wait(open_locks: Open, redis_url: str, direct: redis.Redis) -> None:
    """[H18] [L47] The child has none of the waiters, and waits in its own name; the parent's are woken as ever."""
    client = open_locks(redis_url)
    lock = client.lock("a", expire=30)
    grant = lock.acquire()
    got: list[bool] = []
    waiter = threading.Thread(target=lambda: got.append(bool(lock.acquire(timeout=60))))
    waiter.start()
    eventually(lambda: direct.zcard("lock:{0}:w:a") == 1)

    def child() -> None:
        assert queue_count(client) == 0
        assert lock.acquire(timeout=0.3) is None, "it waits, is in line, and leaves"
        with client.lock("b") as mine:
            mine.ensure_held(confirm=True)
        client.engine.settle(20)

    in_child(child)
    assert direct.zcard("lock:{0}:w:a") == 1, "the parent's"
    grant.release()
    waiter.join(30)
    assert got == [True]


@pytest.mark.usefixtures("often")
def test_a_child_has_tokens_connections_and_a_janitor_of_its_own(
    open_locks: Open, redis_url: str, direct: redis.Redis
) -> None:
    """[H18] Parent and child go on locking, with mutexes that were held while the process forked."""
    client = open_locks(redis_url)
    grant = client.lock("a", expire=LEASE, renew=True).acquire()
    connections = direct.info("clients")["connected_clients"]
    prefix = token_prefix()

    def child() -> None:
        assert token_prefix() != prefix
        with client.lock("b", expire=LEASE, renew=True) as mine:
            renewed(mine)
            mine.ensure_held(confirm=True)

        async def alone() -> None:
            async with client.lock("c"):
                pass

        asyncio.run(alone())

    with mutexes_held(client):
        in_child(child)
    time.sleep(0.3)
    grant.ensure_held(confirm=True)
    grant.release()
    eventually(lambda: direct.info("clients")["connected_clients"] <= connections + 1)  # two may ask at once here too


def test_an_async_fork_closes_nothing_of_the_parents(open_locks: Open, redis_url: str) -> None:
    """[H18] The loop's connection is the parent's: the child closes its copy without a word."""
    client = open_locks(redis_url)

    async def main() -> None:
        async with client.lock("a"):
            in_child(lambda: None)
            async with client.lock("b"):
                pass

    asyncio.run(main())


class Interrupted(BaseException):
    """What a signal handler raises: KeyboardInterrupt, SoftTimeLimitExceeded."""


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


def test_an_interrupted_read_spoils_no_later_answer(proxied: Locks, proxy: Proxy, direct: redis.Redis) -> None:
    """[H21] [H15] The connection with the unread reply is gone, and so is what the request left."""
    proxy.plan("drop", "reply", of="lock/acquire")
    with pytest.raises(Interrupted), interrupt_after(0.1):
        proxied.lock("a", expire=60).acquire(timeout=0)
    for number in range(3):
        with proxied.lock(f"other:{number}") as grant:
            assert grant.fence
    eventually(lambda: not direct.exists(KEY))


def test_a_cancelled_acquire_leaves_nothing_behind(proxied: Locks, proxy: Proxy, direct: redis.Redis) -> None:
    """[E7] [H2] Cancelled between the request and its answer, twice: the janitor deletes what it left."""

    async def main() -> None:
        async with proxied.lock("warm up"):
            pass
        proxy.plan("drop", "reply", of="lock/acquire")
        task = asyncio.create_task(proxied.lock("a", expire=60).aacquire(timeout=20))
        await asyncio.to_thread(eventually, lambda: "drop reply" in proxy.fates())
        task.cancel()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with proxied.lock("b"):
            pass

    asyncio.run(main())
    eventually(lambda: not direct.exists(KEY))


def test_a_cancelled_waiter_leaves_the_queue(open_locks: Open, redis_url: str, tune: Tune) -> None:
    """[H9] [L29] The one behind it is next."""
    tune(max_poll_interval=60.0)  # it is no cap that ends its wait
    lock = open_locks(redis_url).lock("a")

    async def main() -> None:
        holder = await asyncio.create_task(lock.aacquire())
        first = asyncio.create_task(lock.aacquire(timeout=60))
        await asyncio.sleep(0.05)
        second = asyncio.create_task(lock.aacquire(timeout=60))
        await asyncio.sleep(0.05)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        await holder.arelease()
        grant = await asyncio.wait_for(second, 20)
        await grant.arelease()

    asyncio.run(main())


def test_a_cancelled_release_is_finished_by_the_janitor(proxied: Locks, proxy: Proxy, direct: redis.Redis) -> None:
    """[D40] Cancelled twice in the release: the lock is free all the same."""

    async def main() -> None:
        entered = asyncio.Event()

        async def section() -> None:
            async with proxied.lock("a", expire=60):
                entered.set()
                proxy.plan("drop", "request", of="lock/free")

        task = asyncio.create_task(section())
        await entered.wait()
        await asyncio.to_thread(eventually, lambda: "drop request" in proxy.fates())
        task.cancel()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    eventually(lambda: not direct.exists(KEY))


@pytest.mark.usefixtures("often")
def test_a_killed_holder_frees_its_lock_by_the_lease(open_locks: Open, redis_url: str, direct: redis.Redis) -> None:
    """[D29] kill -9: nobody releases, nobody renews, the next one comes within the lease, of which little is left."""
    client = open_locks(redis_url)
    ready, told = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        try:
            renewed(client.lock("a", expire=LEASE, renew=True).acquire())
            os.write(told, b"x")
            time.sleep(60)
        finally:
            os._exit(1)  # it must not run on into pytest
    os.close(told)
    assert os.read(ready, 1), "the child failed"
    assert client.lock("a").acquire(timeout=0) is None, "it is renewed while it lives"
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    os.close(ready)
    assert 0 < direct.pttl(KEY) <= 1000 * LEASE
    direct.pexpire(KEY, 300)
    eventually(lambda: client.lock("a").acquire(timeout=0))
    client.lock("a").release()


def test_loops_that_end_leave_no_connections(open_locks: Open, redis_url: str, direct: redis.Redis) -> None:
    """[D39] [H20] Each `asyncio.run` has connections of its own, closed with its loop; warnings are errors here."""
    client = open_locks(redis_url)
    before = direct.info("clients")["connected_clients"]

    async def main() -> None:
        await asyncio.gather(*(client.lock(f"k:{number}").aacquire() for number in range(10)))

    for _ in range(5):
        asyncio.run(main())
        direct.flushdb()
    eventually(lambda: direct.info("clients")["connected_clients"] <= before + 1)


def test_threads_and_tasks_of_one_process_exclude_each_other(open_locks: Open, redis_url: str) -> None:
    """[H12] A blocked loop at the head of its queue holds up no thread."""
    lock = open_locks(redis_url).lock("a", wait=30)
    blocked = threading.Event()
    go_on = threading.Event()

    async def main() -> None:
        task = asyncio.create_task(lock.aacquire())
        await asyncio.sleep(0.1)
        blocked.set()
        go_on.wait(60)  # a blocked loop
        grant = await task
        await grant.arelease()

    grant = lock.acquire()
    loop = threading.Thread(target=lambda: asyncio.run(main()))
    loop.start()
    blocked.wait(20)
    got: list[object] = []
    thread = threading.Thread(target=lambda: got.append(lock.acquire(timeout=20)))
    thread.start()
    grant.release()
    thread.join(20)
    assert got[0], "the loop's waiter was woken and can't move; the thread goes on"
    got[0].release()
    go_on.set()
    loop.join(30)

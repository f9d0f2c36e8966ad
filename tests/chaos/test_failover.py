"""A failover behind one address, as with managed servers: new connections lead to the new master, open ones to the old
master, which is now a read-only replica."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, get_ident

import pytest
import redis

from django_redis_locks import Grant
from django_redis_locks.client import Locks
from tests.chaos.helpers import Async, Sync, renewed
from tests.probes.client import registered_queues
from tests.proxy import Proxy
from tests.waiting import eventually
from tools.redis_server import RedisServer


class Address:
    """An address that leads to a master with a replica."""

    def __init__(self, make_server: Callable[..., RedisServer]) -> None:
        self.master, self.replica = (make_server(repl_diskless_sync_delay=0) for _ in range(2))
        self._follow(self.replica, self.master)
        with redis.Redis(port=self.replica.port) as client:
            eventually(lambda: client.info("replication")["master_link_status"] == "up")
        self.proxy = Proxy(self.master.port)

    @staticmethod
    def _follow(server: RedisServer, master: RedisServer) -> None:
        with redis.Redis(port=server.port) as client:
            client.replicaof("127.0.0.1", master.port)

    def fail_over(self) -> None:
        """Promote the replica, which has all previous writes; no connection is cut."""
        with redis.Redis(port=self.master.port) as client:
            client.set("before", "failover")  # WAIT covers writes on its own connection only
            client.execute_command("WAIT", 1, 20_000)
        with redis.Redis(port=self.replica.port) as client:
            client.replicaof("NO", "ONE")
        self.proxy.redirect_to(self.replica.port)
        self._follow(self.master, self.replica)


@pytest.fixture
def address(make_server: Callable[..., RedisServer]) -> Iterator[Address]:
    address = Address(make_server)
    with address.proxy:
        yield address


def test_acquire_after_a_failover_reaches_the_new_master(
    address: Address, open_locks: Callable[..., Locks], face: Sync | Async
) -> None:
    """[E1] The call is repeated at once, also without a wait."""
    client = open_locks(address.proxy.url)
    face.release(face.acquire(client.lock("before")))
    held = face.acquire(client.lock("held", expire=30))
    address.fail_over()
    grant = face.acquire(client.lock("after"), timeout=0)
    assert grant is not None
    face.release(grant)
    face.release(held)
    with redis.Redis(port=address.replica.port) as server:
        assert server.keys("*:k:*") == []


def test_acquires_of_many_callers_after_a_failover_all_reach_the_new_master(
    address: Address, open_locks: Callable[..., Locks]
) -> None:
    """[E1] Concurrent requests on one connection, and callers with a connection each."""
    client = open_locks(address.proxy.url)

    async def acquire_all(wave: str) -> list[Grant | None]:
        return await asyncio.gather(*(client.lock(f"{wave} {n}").aacquire(timeout=0) for n in range(20)))

    async def main() -> list[Grant | None]:
        await acquire_all("before")
        address.fail_over()
        return await acquire_all("after")

    with ThreadPoolExecutor(8) as pool:
        ready = Barrier(8)

        def acquire(wave: str) -> Grant | None:
            ready.wait(30)
            return client.lock(f"{wave} {get_ident()}").acquire(timeout=0)

        list(pool.map(acquire, ["before"] * 8))
        assert all(asyncio.run(main()))
        assert all(pool.map(acquire, ["after"] * 8))


@pytest.mark.usefixtures("frequent_renewal")
def test_renewal_after_a_failover_continues_on_the_new_master(
    address: Address, open_locks: Callable[..., Locks], face: Sync | Async
) -> None:
    """[E1] A lock that exists on the new master isn't lost."""
    client = open_locks(address.proxy.url, EXPIRE=9)
    grant = face.acquire(client.lock("import"))
    renewed(grant)
    address.fail_over()
    renewed(grant)
    assert not grant.lost
    face.release(grant)


@pytest.mark.usefixtures("no_polling")
def test_waiter_after_a_failover_is_woken_by_the_new_master(
    address: Address, open_both: Callable[..., list[Locks]]
) -> None:
    """[E1] The subscriber reconnects as well: messages of the new master don't reach the old one."""
    here, there = open_both(address.proxy.url)
    grant = here.lock("import").acquire()
    with ThreadPoolExecutor() as pool:
        lock = there.lock("import", wait=60)
        first = pool.submit(lock.acquire)
        eventually(lambda: registered_queues(there, lock))
        address.fail_over()
        there.lock("other").acquire(timeout=0).release()
        grant.release()
        first.result(30).release()

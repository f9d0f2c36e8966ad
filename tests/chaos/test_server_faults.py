"""Servers that are full, forbidden, elsewhere, restarted or gone."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest
import redis

from django_redis_locks import LockBackendError, LockKeyError, LockLost, clock
from django_redis_locks.client import Locks
from tests.chaos.helpers import LEASE, renewed
from tests.chaos.test_rights import RIGHTS
from tests.waiting import BUSY
from tools.redis_server import RedisServer

Make = Callable[..., RedisServer]
Open = Callable[..., Locks]


@pytest.mark.parametrize(
    ("build", "found"),
    [
        (lambda server, key: server.set(key, "x"), "a string"),
        (lambda server, key: server.rpush(key, "x"), "a list"),
        (lambda server, key: server.hset(key, "other", "x"), "a hash"),
        (lambda server, key: server.set(key, "1 fair x 1", ex=100), "a lock of kind fair"),
        (lambda server, key: server.set(key, "1 lock x 1"), "a lock without expiry"),
    ],
)
def test_something_else_under_the_key_is_named(
    redis_url: str, open_locks: Open, direct: redis.Redis, build: Callable[..., object], found: str
) -> None:
    """[F6] [L45] No overwriting, no waiting: the error says what lives there and how to go on."""
    client = open_locks(redis_url)
    build(direct, "lock:{0}:k:a")
    for attempt in (client.lock("a").acquire, client.lock("a").locked):
        with pytest.raises(LockKeyError, match=f"{found}. Delete that, or choose another key"):
            attempt()
    assert direct.exists("lock:{0}:k:a")


def test_an_unreachable_server_is_an_error_in_time(open_locks: Open, make_server: Make) -> None:
    """Nothing hangs: without a wait at once, with one when it is over; the message names alias and way out."""
    server = make_server()
    server.kill()
    client = open_locks(server.url())
    for wait, least, most in ((0, 0, BUSY), (0.4, 0.3, BUSY)):
        begin = clock.now()
        with pytest.raises(
            LockBackendError, match=r"alias 'default'.*can't reach.*Start that server, or correct LOCATION"
        ):
            client.lock("a", wait=wait).acquire()
        assert least <= clock.now() - begin <= most
        begin = clock.now()
        with pytest.raises(LockBackendError, match="can't reach"):
            asyncio.run(client.lock("a", wait=wait).aacquire())
        assert least <= clock.now() - begin <= most


def test_a_waiter_outlives_a_restart(make_server: Make, open_locks: Open) -> None:
    """[L22] The server goes and comes back within the wait: the lock is acquired, scripts and all."""
    server = make_server()
    client = open_locks(server.url())
    with client.lock("warm up"):
        pass
    server.kill()
    got: list[object] = []
    waiter = threading.Thread(target=lambda: got.append(client.lock("a").acquire(timeout=30)))
    waiter.start()
    server.restart()
    waiter.join(30)
    assert got[0]


@pytest.mark.usefixtures("often")
def test_flushed_scripts_are_sent_again(redis_url: str, open_locks: Open, direct: redis.Redis) -> None:
    """[L20] NOSCRIPT is no error of the user's, in the janitor's pipeline neither."""
    client = open_locks(redis_url)
    grant = client.lock("a", expire=LEASE, renew=True).acquire()
    assert grant is not None
    direct.script_flush()
    renewed(grant)
    direct.script_flush()
    grant.release()

    async def both() -> None:
        async with client.lock("a"):
            direct.script_flush()

    asyncio.run(both())
    assert not direct.exists("lock:{0}:k:a")


def test_fail_open_is_a_choice(make_server: Make, open_locks: Open) -> None:
    """[F14] [S12] The section runs without a lock; the grant says so, and ensure_held() raises."""
    server = make_server()
    server.kill()
    client = open_locks(server.url(), ON_BACKEND_ERROR="open")
    with client.lock("a", wait=0) as grant:
        assert (grant.held, grant.fence, grant.lost, grant.remaining()) == (False, None, False, 0.0)
        with pytest.raises(LockBackendError, match="there is no lock"):
            grant.ensure_held()

    async def alone() -> None:
        async with client.lock("a", wait=0) as grant:
            assert not grant.held

    asyncio.run(alone())
    with pytest.raises(LockBackendError):
        client.lock("a", wait=0, on_backend_error="closed").acquire()


def test_a_flushed_server_is_a_loss_that_is_noticed(redis_url: str, open_locks: Open, direct: redis.Redis) -> None:
    """[L3] [D31] The next renewal finds it out and tells; nobody waits for the release."""
    client = open_locks(redis_url)
    told = threading.Event()
    grant = client.lock("a", expire=0.6, renew=True, on_lost=lambda grant: told.set()).acquire()
    assert grant is not None
    direct.flushdb()
    assert told.wait(20)
    assert grant.lost
    with pytest.raises(LockLost):
        grant.release()


def test_commands_are_counted(make_server: Make, open_locks: Open) -> None:
    """An uncontended acquire is one round trip, a release is one, and nothing else is sent."""
    server = make_server()
    client = open_locks(server.url())
    with redis.Redis.from_url(server.url()) as direct, asyncio.Runner() as runner:

        def sent() -> tuple[int, int]:
            """Script calls, and all commands that arrived: those of a script don't count as calls of a client."""
            stats = direct.info("commandstats")
            calls = {name: entry["calls"] for name, entry in stats.items()}
            inside = sum(calls.get(f"cmdstat_{name}", 0) for name in RIGHTS if not name.startswith("eval"))
            total = sum(calls.values()) - inside - calls.get("cmdstat_info", 0)
            return calls.get("cmdstat_evalsha", 0), total

        async def pair() -> None:
            async with client.lock("b"):
                pass

        with client.lock("a"):
            pass
        runner.run(pair())
        before = sent()
        with client.lock("a"):
            pass
        between = sent()
        runner.run(pair())
        after = sent()
    assert (between[0] - before[0], between[1] - before[1]) == (2, 2)
    assert (after[0] - between[0], after[1] - between[1]) == (2, 2)


def test_the_index_is_pruned_by_acquires(redis_url: str, open_locks: Open, direct: redis.Redis) -> None:
    """[H16] Entries stay an hour after their lease; then one acquire in ten takes twenty away, and a release its own."""
    client = open_locks(redis_url)
    index = "lock:{0}:index"
    long_ago = 1_000_000
    direct.zadd(index, {f"lock:{{0}}:k:old{number}": long_ago + number for number in range(25)})
    seconds, _ = direct.time()
    direct.zadd(index, {"lock:{0}:k:crashed": (seconds - 60) * 1000})
    direct.set("lock:{0}:fence", 9_007_199_254_740_009)  # the next one ends with a 0
    with client.lock("a"):
        assert direct.zcard(index) == 7
    assert direct.zrange(index, 0, -1) == [
        *(f"lock:{{0}}:k:old{number}" for number in range(20, 25)),
        "lock:{0}:k:crashed",
    ]
    for _ in range(10):
        with client.lock("a"):
            pass
    assert direct.zrange(index, 0, -1) == ["lock:{0}:k:crashed"]

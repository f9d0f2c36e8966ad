"""Servers that are full, forbidden, elsewhere, restarted or gone."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable

import pytest
import redis

from django_redis_locks import LockBackendError, LockKeyError, LockLost
from django_redis_locks.client import Locks
from django_redis_locks.core import clock
from tests.chaos.helpers import elsewhere, eventually
from tools.redis_server import RedisServer

Make = Callable[..., RedisServer]
Open = Callable[..., Locks]


def test_a_full_server_releases_and_renews(make_server: Make, open_locks: Open) -> None:
    """[H11] [E5] [L43] At maxmemory a lock can be held, prolonged and freed; a new one is refused with a reason."""
    server = make_server(maxmemory="3mb", maxmemory_policy="noeviction")
    client = open_locks(server.url())
    grant = client.lock("a", expire=30).acquire()
    assert grant is not None
    with redis.Redis.from_url(server.url()) as filler:
        with contextlib.suppress(redis.ResponseError):
            for number in range(10_000):
                filler.set(f"filler:{number}", "x" * 10_000)
        filler.config_set("maxmemory", "1mb")
        grant.extend(60)
        with pytest.raises(LockBackendError, match="maxmemory; raise it"):
            client.lock("b").acquire()
        assert elsewhere(lambda: client.lock("a").acquire(timeout=0)) is None, "busy is answered as ever"
        grant.release()
        assert not [key for key in filler.keys("lock:*") if b":k:" in key]


@pytest.mark.parametrize("password", ["", "wrong"])
def test_a_wrong_password_says_so(make_server: Make, open_locks: Open, password: str) -> None:
    """The message names the alias, the server without its password, and what to correct."""
    server = make_server(requirepass="right")
    login = f":{password}@" if password else ""
    client = open_locks(f"redis://{login}127.0.0.1:{server.port}/0")
    begin = clock.now()
    with pytest.raises(LockBackendError) as caught:
        client.lock("a", wait=5).acquire()
    assert clock.now() - begin < 1, "it can't pass, so nobody waits for it"
    text = str(caught.value)
    assert "alias 'default'" in text
    assert "password" in text
    assert "LOCATION" in text
    assert "wrong" not in text.replace("WRONGPASS", "")
    with pytest.raises(LockBackendError, match="password"):
        asyncio.run(client.lock("a", wait=5).aacquire())


def test_a_user_without_script_rights_says_so(make_server: Make, open_locks: Open) -> None:
    """The message lists what the user needs."""
    server = make_server()
    with redis.Redis.from_url(server.url()) as admin:
        admin.execute_command("ACL", "SETUSER", "app", "on", ">pw", "~*", "+@all", "-@scripting")
    client = open_locks(f"redis://app:pw@127.0.0.1:{server.port}/0")
    with pytest.raises(LockBackendError, match=r"alias 'default'.*NOPERM.*\+evalsha") as caught:
        client.lock("a").acquire()
    assert "pw" not in str(caught.value)


RIGHTS = [
    "eval",
    "evalsha",
    "del",
    "get",
    "hget",
    "hmget",
    "hset",
    "pexpire",
    "pttl",
    "set",
    "time",
    "type",
    "zadd",
    "zrangebyscore",
    "zrem",
]


def limited(server: RedisServer, rights: list[str]) -> str:
    """The URL of a user who has these rights only."""
    with redis.Redis.from_url(server.url()) as admin:
        commands = [f"+{command}" for command in (*rights, "hello", "client")]
        admin.execute_command("ACL", "SETUSER", "app", "reset", "on", ">pw", "~lock:*", "-@all", *commands)
    return f"redis://app:pw@127.0.0.1:{server.port}/0"


def test_the_rights_that_the_message_lists_are_enough(make_server: Make, open_locks: Open) -> None:
    """Whoever follows the advice can do everything with a lock."""
    lock = open_locks(limited(make_server(), RIGHTS)).lock("a")
    with lock as grant:
        grant.extend(60)
        assert lock.locked()
        assert lock.force_release()
        with pytest.raises(LockLost):
            grant.release()


def test_a_missing_right_is_no_loss(make_server: Make, open_locks: Open) -> None:
    """A denial inside a script is told as what it is, and not as "not mine"."""
    server = make_server()
    url = limited(server, RIGHTS)
    client = open_locks(url)
    grant = client.lock("a", expire=30).acquire()
    limited(server, [right for right in RIGHTS if right != "hget"])
    for attempt in (lambda: grant.ensure_held(confirm=True), lambda: grant.extend(60), grant.release):
        with pytest.raises(LockBackendError, match=r"NOPERM.*\+hget"):
            attempt()
    limited(server, RIGHTS)
    grant.release()


@pytest.mark.parametrize(
    ("build", "found"),
    [
        (lambda server, key: server.set(key, "x"), "a string"),
        (lambda server, key: server.rpush(key, "x"), "a list"),
        (lambda server, key: server.hset(key, "other", "x"), "a hash without token"),
        (lambda server, key: server.hset(key, mapping={"kind": "fair", "token": "x"}), "a lock of kind fair"),
        (lambda server, key: server.hset(key, mapping={"kind": "lock", "token": "x"}), "a lock without expiry"),
    ],
)
def test_something_else_under_the_key_is_named(
    redis_url: str, open_locks: Open, direct: redis.Redis, build: Callable[..., object], found: str
) -> None:
    """[F6] [L45] No overwriting, no waiting: the error says what lives there and how to go on."""
    client = open_locks(redis_url)
    build(direct, "lock:{0}:k:a")
    if found == "a lock of kind fair":
        direct.expire("lock:{0}:k:a", 100)
    for attempt in (client.lock("a").acquire, client.lock("a").locked):
        with pytest.raises(LockKeyError, match=f"{found}. Delete that, or choose another key"):
            attempt()
    assert direct.exists("lock:{0}:k:a")


def test_an_unreachable_server_is_an_error_in_time(open_locks: Open, make_server: Make) -> None:
    """Nothing hangs: without a wait at once, with one when it is over; the message names alias and way out."""
    server = make_server()
    server.kill()
    client = open_locks(server.url())
    for wait, least, most in ((0, 0, 0.5), (0.4, 0.3, 1.5)):
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
    waiter = threading.Thread(target=lambda: got.append(client.lock("a").acquire(timeout=10)))
    waiter.start()
    server.restart()
    waiter.join(10)
    assert got[0]


def test_flushed_scripts_are_sent_again(redis_url: str, open_locks: Open, direct: redis.Redis) -> None:
    """[L20] NOSCRIPT is no error of the user's, in the janitor's pipeline neither."""
    client = open_locks(redis_url)
    grant = client.lock("a", expire=0.6, renew=True).acquire()
    assert grant is not None
    direct.script_flush()
    eventually(lambda: grant.remaining() > 0.45 and direct.pttl("lock:{0}:k:a") > 450)
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
    assert told.wait(2)
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
    """[H16] Entries stay an hour after their lease; then each acquire takes two away, and a release its own."""
    client = open_locks(redis_url)
    index = "lock:{0}:index"
    long_ago = 1_000_000
    direct.zadd(index, {f"lock:{{0}}:k:old{number}": long_ago + number for number in range(5)})
    seconds, _ = direct.time()
    direct.zadd(index, {"lock:{0}:k:crashed": (seconds - 60) * 1000})
    with client.lock("a"):
        assert direct.zcard(index) == 5
    assert direct.zrange(index, 0, -1) == [*(f"lock:{{0}}:k:old{number}" for number in (2, 3, 4)), "lock:{0}:k:crashed"]
    for _ in range(3):
        with client.lock("a"):
            pass
    assert direct.zrange(index, 0, -1) == ["lock:{0}:k:crashed"]

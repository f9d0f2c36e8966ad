"""Rounds of synchronous callers on real servers: what the caller reads itself, and what it leaves to threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from django_redis_locks import clock, locks
from django_redis_locks.backends.redlock import fence_clock, thread_rounds
from django_redis_locks.backends.redlock.backend import RedlockBackend
from django_redis_locks.backends.redlock.fence_clock import FenceClock
from tests.probes.engine import engine
from tests.proxy import Proxy
from tests.waiting import eventually
from tools.redis_server import RedisServer

pytestmark = pytest.mark.usefixtures("redlock_location")


@pytest.fixture
def proxy(redlock_servers: list[RedisServer], settings: Any) -> Iterator[Proxy]:
    """In front of the first server."""
    with Proxy(redlock_servers[0].port) as proxy:
        use(settings, [proxy.url, *(server.url() for server in redlock_servers[1:])])
        warm_up(redlock_servers)
        eventually(lambda: not proxy.unanswered)
        yield proxy


def use(settings: Any, location: list[str]) -> None:
    settings.REDIS_LOCKS = {
        "default": {
            "BACKEND": "django_redis_locks.backends.redlock.RedlockBackend",
            "LOCATION": location,
            "OPTIONS": {"socket_timeout": 5},
            "EXPIRE": 60,
        }
    }


def warm_up(servers: list[RedisServer]) -> None:
    """Open the connections, and store the scripts."""
    for _ in range(3):
        with locks.lock("a"):
            eventually(lambda: all(server.command("EXISTS", "lock:{0}:k:a") for server in servers))
        eventually(lambda: nothing_left(servers))


def nothing_left(servers: list[RedisServer]) -> bool:
    return not any(server.command("KEYS", "*:k:*") for server in servers)


def count_jobs(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], object]]:
    """Return a list that gets what threads do from now on."""
    jobs: list[Callable[[], object]] = []
    backend = engine().backend
    assert isinstance(backend, RedlockBackend)
    threads, start = backend._starter, backend._starter.start

    def counted(job: Callable[[], object]) -> None:
        jobs.append(job)
        start(job)

    monkeypatch.setattr(threads, "start", counted)
    return jobs


def test_usual_round_needs_no_thread(
    settings: Any, redlock_servers: list[RedisServer], redlock_location: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thread_rounds, "GRACE", 5.0)
    use(settings, redlock_location)
    warm_up(redlock_servers)
    jobs = count_jobs(monkeypatch)

    def fifty_pairs_need_none() -> bool:
        jobs.clear()
        for _ in range(50):
            with locks.lock("a"):
                pass
        return not jobs

    eventually(fifty_pairs_need_none)  # what an earlier test left to a thread may need a moment


def test_script_that_a_server_forgot_is_sent_again(
    settings: Any, redlock_servers: list[RedisServer], redlock_location: list[str]
) -> None:
    use(settings, redlock_location)
    warm_up(redlock_servers)
    for server in redlock_servers:
        server.command("SCRIPT", "FLUSH")
    with locks.lock("a"):
        pass
    eventually(lambda: nothing_left(redlock_servers))


@pytest.mark.parametrize("direction", ["request", "reply"])
def test_late_reply_delays_no_caller(proxy: Proxy, redlock_servers: list[RedisServer], direction: str) -> None:
    """[L39] The release waits for the acquire of that server, and its connection for the reply."""
    proxy.plan("delay", direction, of="lock/acquire")
    begin = clock.now()
    with locks.lock("a"):
        assert clock.now() - begin < 2
        eventually(lambda: proxy.fates("lock/acquire")[-1] == f"delay {direction}")
    assert clock.now() - begin < 4
    released = len(proxy.fates("lock/release"))
    with locks.lock("b"):
        pass  # on another connection
    proxy.deliver()
    eventually(lambda: len(proxy.fates("lock/release")) == released + 2)
    eventually(lambda: nothing_left(redlock_servers))
    for _ in range(20):
        with locks.lock("a") as grant:
            assert grant.fence


def test_lost_reply_leaves_nothing(proxy: Proxy, redlock_servers: list[RedisServer]) -> None:
    proxy.plan("cut", "reply", of="lock/acquire")
    with locks.lock("a"):
        eventually(lambda: "cut reply" in proxy.fates("lock/acquire"))
    eventually(lambda: nothing_left(redlock_servers))


def test_fences_of_all_servers_are_the_same(
    settings: Any, redlock_servers: list[RedisServer], redlock_location: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once the clocks are known, without a second round."""
    use(settings, redlock_location)
    warm_up(redlock_servers)
    monkeypatch.setattr(fence_clock, "MARGIN", 1_000_000)
    monkeypatch.setattr(FenceClock, "begin", lambda clock: pytest.fail("a second round"))
    fences = []
    for _ in range(5):
        with locks.lock("a") as grant:
            eventually(lambda: all(server.command("EXISTS", "lock:{0}:k:a") for server in redlock_servers))
            stored = [server.command("GET", "lock:{0}:k:a") for server in redlock_servers]
            assert all(str(grant.fence) in str(value) for value in stored)
            assert grant.fence is not None
            fences.append(grant.fence)
    assert fences == sorted(set(fences))

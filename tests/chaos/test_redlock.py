"""Servers of a Redlock are killed, stopped and restarted empty."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, Self

import pytest

from django_redis_locks import LockBackendError, LockLost, clock, inspection, locks
from tests.waiting import eventually
from tools.redis_server import RedisServer

pytestmark = pytest.mark.chaos

TIMEOUT = 0.3


@pytest.fixture
def servers(redis_executable: None, settings: Any) -> Iterator[list[RedisServer]]:
    with ExitStack() as stack:
        servers = [stack.enter_context(RedisServer()) for _ in range(5)]
        settings.REDIS_LOCKS = {
            "default": {
                "BACKEND": "django_redis_locks.backends.redlock.RedlockBackend",
                "LOCATION": [server.url() for server in servers],
                "OPTIONS": {"socket_timeout": TIMEOUT},
                "EXPIRE": 3,
                "BACKEND_WAIT": 1,
            }
        }
        yield servers


class Counter:
    """Threads that count under a lock, with a read and a later write."""

    def __init__(self, threads: int) -> None:
        self.number = self.visits = 0
        self.fences: list[int] = []
        self._stop = threading.Event()
        self._mutex = threading.Lock()
        self._threads = [threading.Thread(target=self._work) for _ in range(threads)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        while not self._stop.is_set():
            try:
                with locks.lock("counter", wait=5) as grant:
                    number = self.number
                    time.sleep(0.001)
                    self.number = number + 1
                    assert grant.fence is not None
                    self.fences.append(grant.fence)
                with self._mutex:
                    self.visits += 1
            except LockBackendError:
                pass

    def wait_for_more(self, visits: int = 20) -> None:
        least = self.visits + visits
        eventually(lambda: self.visits >= least)


def nothing_stuck(servers: list[RedisServer]) -> bool:
    return not any(server.command("KEYS", "*:k:*") for server in servers if server.running)


def test_two_of_five_may_fail(servers: list[RedisServer]) -> None:
    """One is killed, one is silent; both come back, and two others fail."""
    with Counter(3) as counter:
        counter.wait_for_more()
        for away in (0, 1), (2, 3):
            servers[away[0]].kill()
            servers[away[1]].pause()
            counter.wait_for_more()
            servers[away[0]].restart(keep_data=True)
            servers[away[1]].resume()
            time.sleep(3)  # a server that comes back without data stays away for the longest lease
            counter.wait_for_more()
    assert counter.number == counter.visits
    assert counter.fences == sorted(set(counter.fences))
    eventually(lambda: nothing_stuck(servers), 4)


def test_silent_servers_are_waited_for_once(servers: list[RedisServer]) -> None:
    for server in servers[:2]:
        server.pause()
    for _ in range(2):
        with locks.lock("a"):
            pass
    begin = clock.now()
    for _ in range(20):
        with locks.lock("a"):
            pass
    assert clock.now() - begin < 20 * TIMEOUT / 2
    for server in servers[:2]:
        server.resume()
    eventually(lambda: nothing_stuck(servers), 4)


@pytest.mark.parametrize("silent", [False, True], ids=["killed", "stopped"])
def test_without_a_majority_no_lock_is_granted(servers: list[RedisServer], silent: bool) -> None:
    """The error comes within the wait and time-outs, and names the servers; nothing is left when they are back."""
    grant = locks.lock("held").acquire()
    assert grant
    for server in servers[:3]:
        server.pause() if silent else server.kill()
    begin = clock.now()
    with pytest.raises(LockBackendError, match="2 of the 5 servers") as failed:
        locks.lock("a").acquire()
    assert clock.now() - begin < 1 + 6 * TIMEOUT
    assert all(f":{server.port}/0" in str(failed.value) for server in servers[:3])
    with pytest.raises(LockBackendError):
        locks.lock("a").acquire()
    eventually(lambda: grant.lost, 4)
    with pytest.raises(LockLost):
        grant.release()
    for server in servers[:3]:
        server.resume() if silent else server.restart()

    def granted() -> bool:
        try:
            with locks.lock("a", wait=0):
                return True
        except LockBackendError:
            return False

    assert eventually(granted) < 4
    eventually(lambda: nothing_stuck(servers), 4)


def test_server_that_restarts_empty_gets_the_lock_again(servers: list[RedisServer]) -> None:
    """[L39] Two lose the lock of a holder, whose renewal acquires it there again. Then two others may lose it."""
    with locks.lock("a", renew=True) as grant:
        for pair in servers[:2], servers[2:4]:
            for server in pair:
                server.kill()
                server.restart()
            eventually(lambda pair=pair: all(server.command("KEYS", "*:k:a") for server in pair), 4)  # type: ignore[misc]
        grant.ensure_held(confirm=True)
        assert not locks.lock("a", wait=0).acquire(blocking=False)
        assert inspection.find("a").fence == grant.fence
    eventually(lambda: nothing_stuck(servers), 4)


def test_moved_servers_keep_fences_growing(servers: list[RedisServer]) -> None:
    """Servers restart empty, two at a time."""
    fences: list[int] = []
    for number in range(20):
        with locks.lock("a", wait=5) as grant:
            assert grant.fence is not None
            fences.append(grant.fence)
        for server in (servers[number % 5], servers[(number + 1) % 5]):
            server.kill()
            server.restart()
    assert fences == sorted(set(fences))

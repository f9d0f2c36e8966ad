"""Servers of an ensemble and processes with locks are killed, stopped and restarted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Self

import pytest

from django_redis_locks import Grant, LockBackendError, LockLost, clock, inspection, locks
from tests.forks import in_child
from tests.probes.tuning import Tune
from tests.servers import unavailable
from tests.waiting import eventually
from tools.processes import ServerNotFound
from tools.zookeeper_server import ZooKeeperEnsemble

pytestmark = pytest.mark.chaos

EXPIRE = 3.0
SESSION = EXPIRE * 4 / 3
LATE = 3.0
"""The seconds that a slow machine may add."""


@pytest.fixture(scope="module")
def shared_ensemble() -> Iterator[ZooKeeperEnsemble]:
    try:
        with ZooKeeperEnsemble(3) as ensemble:
            yield ensemble
    except ServerNotFound as error:
        unavailable(str(error))


@pytest.fixture
def ensemble(shared_ensemble: ZooKeeperEnsemble, settings: Any, request: pytest.FixtureRequest) -> ZooKeeperEnsemble:
    """Three servers with two aliases, which have a session each, like two processes."""
    shared_ensemble.start()
    path = f"/{request.node.name}"
    entry = {
        "BACKEND": "django_redis_locks.backends.zookeeper.ZooKeeperBackend",
        "LOCATION": shared_ensemble.location(path),
        "EXPIRE": EXPIRE,
        "WAIT": 30,
        "BACKEND_WAIT": 5,
    }
    settings.REDIS_LOCKS = {"default": entry, "other": {**entry, "EXPIRE": EXPIRE + 0.01}}
    return shared_ensemble


CHILD = """
import sys
from django.conf import settings
settings.configure(REDIS_LOCKS={table!r})
from django_redis_locks import locks
def say(*words):
    print(*words, flush=True)
{program}
"""


class Child:
    """A process that says what it does, a line for each step, and reads lines to go on."""

    def __init__(self, settings: Any, program: str) -> None:
        code = CHILD.format(table=dict(settings.REDIS_LOCKS), program=program)
        self._process = subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._process.kill()
        self._process.communicate()

    def line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def wait(self) -> None:
        assert self._process.wait(30) == 0


class Counter:
    """Threads of two sessions that count under a lock, with a read and a later write."""

    def __init__(self) -> None:
        self.number = self.visits = 0
        self.fences: list[int] = []
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._work, args=[alias]) for alias in ("default", "other", "other")]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _work(self, alias: str) -> None:
        while not self._stop.is_set():
            try:
                with locks[alias].lock("counter") as grant:
                    number = self.number
                    time.sleep(0.001)
                    self.number = number + 1
                    self.visits += 1
                    assert grant.fence is not None
                    self.fences.append(grant.fence)
            except (LockBackendError, LockLost):
                pass

    def wait_for_more(self, visits: int = 20) -> None:
        least = self.visits + visits
        eventually(lambda: self.visits >= least)


def until(condition: Callable[[], Any]) -> float:
    begin = clock.now()
    eventually(condition)
    return clock.now() - begin


def test_lock_of_a_killed_holder_is_free_after_its_session(ensemble: ZooKeeperEnsemble, settings: Any) -> None:
    with Child(settings, "grant = locks.lock('a').acquire()\nsay(grant.fence)\nsys.stdin.read()") as holder:
        fence = int(holder.line())
        holder.signal(signal.SIGKILL)
        begin = clock.now()
        with locks.lock("a") as grant:
            assert SESSION / 2 < clock.now() - begin < SESSION + LATE
            assert grant.fence is not None
            assert grant.fence > fence


def test_stopped_holder_learns_that_its_session_has_expired(ensemble: ZooKeeperEnsemble, settings: Any) -> None:
    """Its own deadline has passed before, so that two never hold the lock. It can lock again, in a new session."""
    program = "grant = locks.lock('a', on_lost=lambda grant: say('lost')).acquire()\nsay('held')\nsys.stdin.read()"
    with Child(settings, program) as holder:
        assert holder.line() == "held"
        holder.signal(signal.SIGSTOP)
        begin = clock.now()
        with locks.lock("a"):
            assert SESSION / 2 < clock.now() - begin < SESSION + LATE
            holder.signal(signal.SIGCONT)
            assert holder.line() == "lost"


def test_waiter_of_an_expired_session_joins_the_line_again(ensemble: ZooKeeperEnsemble, settings: Any) -> None:
    """[L16] A stopped waiter delays the others for its session at most."""
    grant = locks.lock("a").acquire()
    with Child(settings, "say('started')\nwith locks.lock('a') as grant:\n    say('held')") as waiter:
        assert waiter.line() == "started"
        for number, waiting in (signal.SIGCONT, 1), (signal.SIGSTOP, 0), (signal.SIGCONT, 1):
            waiter.signal(number)
            eventually(lambda waiting=waiting: inspection.find("a").waiting == waiting)  # type: ignore[misc]
        grant.release()
        assert waiter.line() == "held"
        waiter.wait()


def test_exit_of_a_process_frees_its_locks_at_once(ensemble: ZooKeeperEnsemble, settings: Any) -> None:
    """[L18] Not only after its session."""
    with Child(settings, "grant = locks.lock('a').acquire()\nsay('held')") as holder:
        assert holder.line() == "held"
        holder.wait()
        assert locks.lock("a", wait=0).acquire(blocking=False)


def test_killed_leader_loses_no_update_and_no_fence(ensemble: ZooKeeperEnsemble) -> None:
    with Counter() as counter:
        counter.wait_for_more()
        for _ in range(2):
            leader = ensemble.leader()
            leader.kill()
            counter.wait_for_more()
            leader.launch()
            leader.await_service()
            counter.wait_for_more()
    assert counter.number == counter.visits
    assert counter.fences == sorted(set(counter.fences))


def test_locks_survive_a_restart_of_all_servers(ensemble: ZooKeeperEnsemble) -> None:
    """Within the session's timeout: meanwhile nobody can say whether the lock is held."""
    grant = locks.lock("a", expire=None).acquire()
    with Counter() as counter:
        counter.wait_for_more()
        for server in ensemble.servers:
            server.kill()
        ensemble.start()
        counter.wait_for_more()
    assert counter.number == counter.visits
    assert counter.fences == sorted(set(counter.fences))
    assert_no_other_has(grant)


def assert_no_other_has(grant: Grant) -> None:
    """Either the session went on, or the holder knows that its lease has ended, and then its node is deleted."""
    if not grant.lost:
        grant.ensure_held(confirm=True)
        assert not locks["other"].lock("a", wait=0).acquire(blocking=False)
    else:
        assert locks["other"].lock("a").acquire()


def test_a_minority_of_servers_grants_nothing(ensemble: ZooKeeperEnsemble, tune: Tune) -> None:
    """A holder can't be sure of its lock, and ends it before the ensemble may."""
    tune(socket_timeout=1.0)
    lost: list[float] = []
    grant = locks.lock("a", on_lost=lambda _: lost.append(clock.now())).acquire()
    for server in ensemble.servers[:2]:
        server.kill()
    killed = clock.now()
    eventually(lambda: ensemble.servers[2].mode() == "")
    with pytest.raises(LockBackendError, match="ZooKeeper at"):
        grant.ensure_held(confirm=True)
    with pytest.raises(LockBackendError, match="ZooKeeper at"):
        locks["other"].lock("b", wait=0, on_backend_error="closed").acquire()
    eventually(lambda: lost)
    assert lost[0] - killed < EXPIRE + LATE
    ensemble.start()

    def granted() -> bool:
        try:
            return bool(locks["other"].lock("a").acquire())
        except LockBackendError:
            return False

    eventually(granted)


def test_forced_release_notifies_the_holder_at_once(ensemble: ZooKeeperEnsemble, settings: Any) -> None:
    """Not only at its next renewal."""
    settings.REDIS_LOCKS["default"]["EXPIRE"] = 300
    settings.REDIS_LOCKS = dict(settings.REDIS_LOCKS)
    lost = threading.Event()
    grant = locks.lock("a", on_lost=lambda _: lost.set()).acquire()
    time.sleep(1.5)  # a lock that is held for a second has a watch
    assert locks["other"].lock("a").force_release(fence=grant.fence)
    assert lost.wait(15)
    assert locks["other"].lock("a", wait=0).acquire(blocking=False)


def test_forked_child_has_a_session_of_its_own(ensemble: ZooKeeperEnsemble) -> None:
    """[L47] It holds none of its parent's locks, and its end doesn't free them."""
    grant = locks.lock("a").acquire()

    def story() -> None:
        assert not locks.lock("a", wait=0).acquire(blocking=False)
        with locks.lock("b") as own:
            own.ensure_held(confirm=True)

    in_child(story)
    grant.ensure_held(confirm=True)
    assert inspection.find("a").holder.pid == os.getpid()
    grant.release()


def test_fences_grow_although_the_sequence_begins_again(ensemble: ZooKeeperEnsemble) -> None:
    """[L29] The node of a free lock is deleted, and with it the counter of its line."""
    fences = []
    for _ in range(5):
        with locks.lock("a") as grant:
            fences.append(grant.fence)
    assert fences == sorted(set(fences))

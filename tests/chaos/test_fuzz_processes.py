"""[L2] [L5] [E16] Mutual exclusion where processes are killed and stopped at any moment.

Eight processes of four threads or tasks contend for one key. Every second one of them gets SIGKILL and is replaced, or
SIGSTOP for longer than the lease, or for less. A history on another server has every entry and exit, and a checker
looks for violations afterwards. The checker is tested with broken locks.

    FUZZ_SECONDS=60   all variants, for so long each; otherwise some of them, for ten seconds
    FUZZ_SEED=123     the choices of another run
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic as now

import pytest

from django_redis_locks.client import Locks
from tests.chaos.fuzz.broken_locks import LOCKS
from tests.chaos.fuzz.checker import Result, check
from tests.chaos.fuzz.history import History
from tests.chaos.fuzz.nemesis import Nemesis, Scenario, WorkerFailed
from tests.chaos.fuzz.worker import LEASE, Config, make_lock
from tests.waiting import BUSY
from tools.redis_server import RedisServer

SECONDS = float(os.environ.get("FUZZ_SECONDS", "10"))
LONG = SECONDS >= 30
"""In a short run a few unlucky signals are a large part of it."""

VARIANTS = [
    ("lock", "threads", "fixed"),
    ("lock", "tasks", "renewed"),
    ("fair_lock", "tasks", "fixed"),
    ("write", "threads", "renewed"),
]
MORE = [
    ("lock", "threads", "renewed"),
    ("lock", "tasks", "fixed"),
    ("fair_lock", "threads", "renewed"),
    ("write", "tasks", "fixed"),
    ("semaphore", "threads", "fixed"),
    ("semaphore", "tasks", "renewed"),
]

Run = Callable[..., Result]


@pytest.fixture
def history(make_server: Callable[..., RedisServer]) -> Iterator[History]:
    history = History(make_server().url())
    yield history
    history.close()


@pytest.fixture
def run(history: History, tmp_path: Path) -> Run:
    """`run(scenario, holder)`: the result of the checker, printed with the seed."""

    def run(scenario: Scenario, holder: Callable[[], int | None], *, grants: int = 0) -> Result:
        violations = []
        with (tmp_path / "stderr").open("wb") as stderr, Nemesis(scenario, history, holder, stderr) as nemesis:
            try:
                nemesis.run()
            except WorkerFailed as failure:
                violations.append(str(failure))
        result = check(history.records(), LEASE, grants=grants)
        result.violations[:0] = violations
        print(f"FUZZ_SEED={scenario.seed}", result, sep="\n")  # noqa: T201 - shown if the test fails
        print((tmp_path / "stderr").read_text()[-3000:])  # noqa: T201
        return result

    return run


@pytest.mark.chaos
@pytest.mark.parametrize(("kind", "face", "lease_kind"), [*VARIANTS, *(MORE if LONG else ())])
def test_processes_killed_and_stopped_keep_mutual_exclusion(
    kind: str, face: str, lease_kind: str, run: Run, history: History, open_locks: Callable[..., Locks], redis_url: str
) -> None:
    """[L2] [L5] [L32] [L37] [L41] [E16] Holds don't overlap, fences rise, losses are reported, no wait is long."""
    seed = int(os.environ.get("FUZZ_SEED") or random.getrandbits(32))
    config = Config(0, redis_url, history.url, face, renew=lease_kind == "renewed", kind=kind)
    lock = make_lock(open_locks(redis_url, OPTIONS={"socket_timeout": 2}), kind, expire=LEASE)

    def holder() -> int | None:
        found = lock.holder()
        first = next(iter(found), None) if isinstance(found, list) else found
        return first.pid if first else None

    # all but the mutex register each of their callers; those of a fair lock are skipped after two grants
    grants = {"lock": 0, "fair_lock": 2}.get(kind, config.callers)
    result = run(Scenario(config, SECONDS, seed), holder, grants=grants)
    assert not result.violations
    assert result.counts["hits"] >= SECONDS / 10 or not LONG, "the signals missed the holders"

    begin = now()
    with lock.acquire(timeout=30) as grant:
        assert now() - begin < LEASE + BUSY, "what is left is free within the lease"
        assert grant.fence > result.fence


@pytest.mark.chaos
@pytest.mark.parametrize("name", LOCKS if LONG else ["Brief", "PlainLock"])
def test_only_a_broken_lock_has_violations(name: str, run: Run, history: History, redis_url: str) -> None:
    """The fuzz can fail, and by a lock's defects only. Few processes, stopped often and for longer than the lease."""
    config = Config(0, redis_url, history.url, "threads", callers=2, broken=name)
    signals = {"pause": (0.1, 0.3), "aimed": 1.0, "kills": 0.0, "long_stops": 1.0}
    scenario = Scenario(config, 6.0 if LONG else 2.5, random.getrandbits(32), workers=4, **signals)
    assert bool(run(scenario, LOCKS[name](redis_url).holder).violations) is (name != "PlainLock")

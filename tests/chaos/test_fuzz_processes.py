"""[L2] [L5] [E16] Mutual exclusion where processes are killed and stopped at any moment.

Eight processes of four threads or tasks contend for one key. Every second one of them gets SIGKILL and is replaced, or
SIGSTOP for longer than the lease, or for less. A journal on another server has every entry and exit, and a referee
judges it afterwards. The referee is judged too: by broken locks.

    FUZZ_SECONDS=60   all variants, for so long each; otherwise the half of them, for ten seconds
    FUZZ_SEED=123     the choices of another run
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from math import inf
from pathlib import Path
from time import monotonic as now

import pytest

from django_redis_locks.client import Locks
from tests.chaos.fuzz.broken import LOCKS
from tests.chaos.fuzz.journal import Journal
from tests.chaos.fuzz.referee import PACE, Rules, Verdict, judge
from tests.chaos.fuzz.stage import Play, Stage, Stopped
from tests.chaos.fuzz.worker import LEASE, Orders
from tests.waiting import BUSY
from tools.redis_server import RedisServer

SECONDS = float(os.environ.get("FUZZ_SECONDS", "10"))
LONG = SECONDS >= 30
"""In a short run a few unlucky signals are a large part of it."""

VARIANTS = [("threads", "fixed"), ("tasks", "renewed"), ("threads", "renewed"), ("tasks", "fixed")]

FLAWS = ["Brief", "Careless", "Eager", "Open", "Silent"]

Run = Callable[..., Verdict]


@pytest.fixture
def journal(make_server: Callable[..., RedisServer]) -> Iterator[Journal]:
    journal = Journal(make_server().url())
    yield journal
    journal.close()


@pytest.fixture
def run(journal: Journal, tmp_path: Path) -> Run:
    """`run(play, holder, rules)`: what the referee says, with all that is worth printing."""

    def run(play: Play, holder: Callable[[], int | None], rules: Rules) -> Verdict:
        complaints = []
        with (tmp_path / "stderr").open("wb") as stderr, Stage(play, journal, holder, stderr) as stage:
            try:
                stage.run()
            except Stopped as failure:
                complaints.append(str(failure))
        verdict = judge(journal.records(), rules)
        verdict.complaints[:0] = complaints
        print(f"FUZZ_SEED={play.seed}", verdict, sep="\n")  # noqa: T201 - shown if the test fails
        print((tmp_path / "stderr").read_text()[-3000:])  # noqa: T201
        return verdict

    return run


@pytest.mark.chaos
@pytest.mark.parametrize(("face", "terms"), VARIANTS if LONG else VARIANTS[:2])
def test_kill_and_stop(
    face: str, terms: str, run: Run, journal: Journal, open_locks: Callable[..., Locks], redis_url: str
) -> None:
    """[L2] [L5] [L41] [E16] Nobody is inside with another, fences rise, whoever loses is told, nobody waits for long."""
    seed = int(os.environ.get("FUZZ_SEED") or random.getrandbits(32))
    orders = Orders(0, redis_url, journal.url, face, renew=terms == "renewed")
    lock = open_locks(redis_url, OPTIONS={"socket_timeout": 2}).lock("fuzz", expire=LEASE)

    def holder() -> int | None:
        found = lock.holder()
        return found.pid if found else None

    verdict = run(Play(orders, SECONDS, seed), holder, Rules(LEASE, PACE if LONG else PACE / 20))
    assert not verdict.complaints
    assert verdict.counts["hits"] >= SECONDS / 10 or not LONG, "the signals went to bystanders: that proves little"

    begin = now()
    with lock.acquire(timeout=30) as grant:
        assert now() - begin < LEASE + BUSY, "whatever was left behind, it is free within the lease"
        assert grant.fence > verdict.fence


@pytest.mark.chaos
@pytest.mark.parametrize("name", FLAWS if LONG else FLAWS[:1])
def test_a_broken_lock_is_seen(name: str, run: Run, journal: Journal, redis_url: str) -> None:
    """A fuzz that can't fail proves nothing."""
    assert run(*plain(name, redis_url, journal)).complaints


@pytest.mark.chaos
def test_a_plain_lock_passes(run: Run, journal: Journal, redis_url: str) -> None:
    """What the broken ones are seen for is their flaw, and nothing else about them."""
    assert not run(*plain("PlainLock", redis_url, journal)).complaints


def plain(name: str, url: str, journal: Journal) -> tuple[Play, Callable[[], int | None], Rules]:
    """Few processes, stopped often and for longer than the lease. Some flaws show only when one goes on."""
    orders = Orders(0, url, journal.url, "threads", callers=2, broken=name)
    seconds = 6.0 if LONG else 2.0
    signals = {"pause": (0.1, 0.3), "aimed": 1.0, "kills": 0.0, "long_stops": 1.0}
    play = Play(orders, seconds, random.getrandbits(32), workers=4, **signals)
    return play, LOCKS[name](url).holder, Rules(LEASE, pace=0, bypass=inf)

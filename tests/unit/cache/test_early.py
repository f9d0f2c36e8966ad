"""When a value that is still fresh is due for an early refresh, and the threads that load in the background."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from django_redis_locks.cache import XFetch, background, early
from tests.contract.matrix import PATIENCE


@pytest.fixture(autouse=True)
def nothing_learned() -> Iterator[None]:
    early._seconds.clear()
    yield
    early._seconds.clear()


def test_xfetch_is_the_likelier_the_nearer_the_end() -> None:
    """[S51] The published condition, with the time that loads of that name took; never before the last quarter."""
    early.learn("slow", 2.0)

    def share(name: str, left: float, beta: float = 1.0) -> float:
        return sum(early.due(XFetch(beta), name, left, 100.0) for _ in range(4000)) / 4000

    assert share("unknown", 0.001) == 0
    assert share("slow", 50.0) == 0
    assert share("slow", 26.0, beta=1000.0) == 0
    assert 0.30 < share("slow", 2.0) < 0.44  # exp(-1)
    assert 0.55 < share("slow", 1.0) < 0.66  # exp(-1/2)
    assert share("slow", 2.0, beta=4.0) > share("slow", 2.0)


def test_xfetch_learns_an_average_for_each_name() -> None:
    """[S51]"""
    early.learn("a", 1.0)
    early.learn("a", 2.0)
    assert early._seconds["a"] == pytest.approx(1.2)
    assert "b" not in early._seconds


def test_xfetch_refuses_a_beta_that_is_no_positive_number() -> None:
    betas: list[Any] = [0, -1, True, "1", float("inf"), float("nan")]
    for beta in betas:
        with pytest.raises(ValueError, match="beta is a positive number"):
            XFetch(beta)


def test_job_runs_even_if_its_context_cannot_be_prepared(monkeypatch: pytest.MonkeyPatch) -> None:
    """[S38] Others wait for it: a load that never begins would never end."""

    def fail(*args: Any) -> Any:
        raise RuntimeError("not ready")

    for owner, name in ((background.translation, "override"), (background, "close_old_connections")):
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, fail)
            done = threading.Event()
            background.in_thread(done.set)
            assert done.wait(PATIENCE), name

"""Loads in threads of the library's own pool."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from django_redis_locks.cache import background
from tests.contract.matrix import PATIENCE


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

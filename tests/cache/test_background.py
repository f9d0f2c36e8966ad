"""Loads in threads of ours."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from django_redis_locks.cache import background
from tests.contract.matrix import PATIENCE


@pytest.mark.parametrize("what", ["translation", "connections"])
def test_a_job_is_done_even_if_its_place_cant_be_made(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """[S38] Others wait for it: a flight that never begins would never land."""

    def fail(*args: Any) -> Any:
        raise RuntimeError("not ready")

    if what == "translation":
        monkeypatch.setattr(background.translation, "override", fail)
    else:
        monkeypatch.setattr(background, "close_old_connections", fail)
    done = threading.Event()
    background.in_thread(done.set)
    assert done.wait(PATIENCE)

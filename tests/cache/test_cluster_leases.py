"""A cache whose loads are coordinated on a Cluster: the leases of its keys are on several nodes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from django.core.cache import caches

from django_redis_locks.cache import get_or_load, get_or_load_many
from tests.cache.backends import FILES, WRAPPER
from tests.waiting import eventually
from tools.redis_cluster import RedisCluster

KEYS = [f"report:{number}" for number in range(20)]


@pytest.fixture(autouse=True)
def cache(settings: Any, tmp_path: Path, cluster_location: str) -> None:
    settings.REDIS_LOCKS = {"default": {"LOCATION": cluster_location}}
    settings.CACHES = {
        "files": {"BACKEND": FILES, "LOCATION": str(tmp_path)},
        "default": {"BACKEND": WRAPPER, "LOCATION": "files"},
    }


def test_many_values_are_loaded_written_and_cleared(redis_cluster: RedisCluster, caplog: Any) -> None:
    """[L44] No command has keys of two slots, so that no store is reported as down."""
    loads: list[list[str]] = []

    def load(keys: list[str]) -> dict[str, int]:
        loads.append(keys)
        return dict.fromkeys(keys, 1)

    assert get_or_load_many(KEYS, load, ttl=60) == dict.fromkeys(KEYS, 1)
    caches["default"].set_many(dict.fromkeys(KEYS, 2))
    assert get_or_load_many(KEYS, load, ttl=60) == dict.fromkeys(KEYS, 2)
    caches["default"].delete_many(KEYS[:5])
    assert get_or_load_many(KEYS, load, ttl=60) == dict.fromkeys(KEYS[:5], 1) | dict.fromkeys(KEYS[5:], 2)
    caches["default"].clear()
    assert all(master.command("DBSIZE") > 0 for master in redis_cluster.masters)
    assert get_or_load_many(KEYS, load, ttl=60) == dict.fromkeys(KEYS, 1)
    assert [len(keys) for keys in loads] == [20, 5, 20]
    assert caplog.messages == []


@pytest.mark.parametrize("write", ["set_many", "clear"])
def test_write_of_many_keys_voids_a_running_load(write: str) -> None:
    """Its value, which it read before the write, isn't stored."""
    begun, go_on = [], []

    def load() -> str:
        begun.append(True)
        eventually(lambda: go_on)
        return "old"

    with ThreadPoolExecutor() as pool:
        running = pool.submit(get_or_load, KEYS[3], load, ttl=60)
        eventually(lambda: begun)
        if write == "clear":
            caches["default"].clear()
        else:
            caches["default"].set_many(dict.fromkeys(KEYS, "new"))
        go_on.append(True)
        assert running.result(30) == "old"
    assert caches["default"].get(KEYS[3]) == (None if write == "clear" else "new")

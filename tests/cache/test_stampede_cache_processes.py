"""Wrapped caches of two processes: what one writes wins over what the other one loads.

They are two aliases here that share nothing but servers; and two processes, for one of the cases."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.core.cache import caches

from tests.cache.backends import FILES, REDIS, WRAPPER
from tests.cache.loading import Loading
from tests.django.helpers import PATIENCE
from tests.probes.cache import coordinator

ROOT = Path(__file__).parents[2]


@pytest.fixture(params=["redis", "files"])
def two(request: pytest.FixtureRequest, settings: Any, redis_url: str, tmp_path: Path) -> None:
    """`default` and `there` keep their values in one place, and know nothing of each other."""
    elsewhere = redis_url.replace("127.0.0.1", "localhost")
    settings.REDIS_LOCKS = {
        "default": {"LOCATION": redis_url.removesuffix("/0") + "/1"},
        "there": {"LOCATION": elsewhere.removesuffix("/0") + "/1"},
    }
    if request.param == "redis":
        raw, raw_there = ({"BACKEND": REDIS, "LOCATION": url} for url in (redis_url, elsewhere))
    else:
        raw = raw_there = {"BACKEND": FILES, "LOCATION": str(tmp_path)}
    settings.CACHES = {
        "raw": raw,
        "raw-there": raw_there,
        "default": {"BACKEND": WRAPPER, "LOCATION": "raw", "OPTIONS": {"WAIT": PATIENCE}},
        # Leases of files bear the alias of their cache, those of Redis the key of the value
        "there": {
            "BACKEND": WRAPPER,
            "LOCATION": "raw-there" if request.param == "redis" else "raw",
            "OPTIONS": {"LOCKS": "there", "WAIT": PATIENCE},
        },
    }


WRITERS: dict[str, tuple[Callable[[], object], object]] = {
    "set": (lambda: caches["there"].set("k", "new"), "new"),
    "set_many": (lambda: caches["there"].set_many({"k": "new"}), "new"),
    "add": (lambda: caches["there"].add("k", "new"), "new"),
    "delete": (lambda: caches["there"].delete("k"), None),
    "delete_many": (lambda: caches["there"].delete_many(["k"]), None),
    "clear": (lambda: caches["there"].clear(), None),  # noqa: PLW0108 - not before there are settings
}


@pytest.mark.usefixtures("two")
class TestAnotherProcess:
    def test_write_elsewhere_during_a_load_wins(self) -> None:
        """[S1] [S4] [S31] A load here, a write there."""
        for name, (write, stays) in WRITERS.items():
            with Loading() as loading:
                write()
            assert loading.result == ["old"], name
            assert caches["default"].get("k") == stays, name
            assert caches["there"].get("k") == stays, name
            caches["there"].clear()

    def test_caller_elsewhere_waits_for_the_load(self) -> None:
        """Nothing is shared in the process, so that it is the store that wakes it."""
        assert coordinator("default", "default") is not coordinator("there", "there")
        with Loading() as here, Loading(alias="there", value="second", patient=True) as there:
            here.loader.may_end.set()
        assert there.result == ["old"]
        assert there.loader.calls == 0


PROGRAM = """
import json, sys
from django.conf import settings
settings.configure(**json.loads(sys.argv[1]))
import django
django.setup()
from django.core.cache import cache
cache.set("k", "new")
print(cache.get("k"))
"""


def test_write_by_a_real_process_during_a_load_wins(settings: Any, redis_url: str) -> None:
    """[S4] The same with a process of its own, which finds the wrapper by its settings only."""
    settings.REDIS_LOCKS = {"default": {"LOCATION": redis_url.removesuffix("/0") + "/1"}}
    settings.CACHES = {
        "raw": {"BACKEND": REDIS, "LOCATION": redis_url},
        "default": {"BACKEND": WRAPPER, "LOCATION": "raw"},
    }
    theirs = {
        "CACHES": settings.CACHES,
        "REDIS_LOCKS": settings.REDIS_LOCKS,
        "INSTALLED_APPS": ["django_redis_locks"],
    }
    with Loading() as loading:
        command = [sys.executable, "-W", "error", "-c", PROGRAM, json.dumps(theirs)]
        done = subprocess.run(
            command,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            timeout=6 * PATIENCE,
            check=False,
            capture_output=True,
            text=True,
        )
        assert (done.stdout, done.stderr) == ("new\n", "")
    assert loading.result == ["old"]
    assert caches["default"].get("k") == "new"

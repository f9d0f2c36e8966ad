"""Caches with a server user (ACL) that has exactly the documented rights."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.cache import cache, caches

from django_redis_locks.cache import get_or_load_many, invalidate
from tests.cache.backends import HERE, THERE, WRAPPER, at, redis_caches
from tests.cache.callers import ON_REDIS, WRITES, Callers, Loader, write
from tests.contract.matrix import PATIENCE, eventually
from tests.probes.cache import forget_state
from tests.probes.scripts import NAMES, commands_of
from tests.probes.tuning import Tune
from tools.redis_server import RedisServer

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "operations.md"

QUIET = {"exists", "hmget", "ping", "publish", "subscribe", "zpopmin"}
"""Documented rights that a usual load doesn't need: without the Pub/Sub rights waiters poll; ``eval`` is for a
restarted server, ``type`` and ``hmget`` for keys of other programs."""


def shown() -> list[str]:
    (line,) = re.findall(r"^ACL SETUSER cache .+$", PAGE.read_text(), re.MULTILINE)
    return shlex.split(line)


def rights_of_loads() -> set[str]:
    """The rights that the page lists for loads."""
    return {word[1:] for word in shown() if word.startswith("+")}


def rights_of_django() -> set[str]:
    """The rights that the page lists for other use of a cache."""
    (row,) = re.findall(r"^\| `(\+exec .+?)` \|", PAGE.read_text(), re.MULTILINE)
    return {word[1:] for word in row.split()}


@pytest.fixture
def server(make_server: Callable[..., RedisServer], settings: Any) -> Iterator[RedisServer]:
    """A server with a user that has the rights of loads only."""
    server = make_server()
    server.command(*shown())
    caches_of = redis_caches(f"redis://cache:secret@127.0.0.1:{server.port}/0", KEY_PREFIX="shop")
    settings.CACHES = {**caches_of, "default": {"BACKEND": WRAPPER, "LOCATION": HERE}}
    yield server
    caches.close_all()


def denied(server: RedisServer) -> set[str]:
    log = server.command("ACL", "LOG")
    entries = [dict(zip(entry[::2], entry[1::2], strict=True)) for entry in log]
    return {entry["object"] for entry in entries} - {"client", "client|setinfo"}  # redis-py sends its name and version


def test_documented_rights_are_those_of_the_scripts() -> None:
    scripts = ["waiters/unregister", *(name for name in NAMES if name.startswith("load/"))]
    used = {command.lower() for name in scripts for command in commands_of(name)}
    assert rights_of_loads() == used | {"eval", "evalsha", "get", "ping", "subscribe"}


@ON_REDIS
def test_documented_rights_are_enough_for_loads(
    callers: Callers, server: RedisServer, counted: Any, tune: Tune
) -> None:
    """[S24] One caller loads, a waiter in another process is notified, and an invalidated value isn't stored."""
    tune(max_poll_interval=60.0)  # a waiter that has the value earlier was notified
    loading = callers.begin_load("value", stale=60, early=0.5)
    waiting = callers.start("k", Loader("other"), stale=60, cache=THERE)
    eventually(lambda: server.command("EXISTS", "{shop:1:k}:w:load") == 1)
    assert loading.finish() == waiting.result(PATIENCE).value == "value"
    assert callers.load("k", "other").source == "hit"
    many = callers.call(get_or_load_many, ["k", "l"], lambda keys: dict.fromkeys(keys, 1), **at(HERE))
    assert many == {"k": "value", "l": 1}
    late = callers.begin_load("late", key="m")
    assert callers.value("m", "other", cache=THERE, wait=0.05) == "other"  # joins the queue, and leaves it
    callers.call(invalidate, "k", "m", stale=5, replica_lag=5, **at(THERE))
    assert late.finish() == "late"
    assert server.command("EXISTS", "shop:1:m") == 0
    with pytest.raises(ValueError, match="no"):
        callers.load("n", ValueError("no"))
    assert denied(server) == set()
    assert counted()["down"] == 0


def test_documented_rights_are_enough_for_a_wrapped_cache(server: RedisServer, counted: Any) -> None:
    """Writes through a StampedeCache need them, too."""
    server.command("ACL", "SETUSER", "cache", *(f"+{right}" for right in rights_of_django()))
    for name in WRITES:
        assert cache.get_or_set("k", 1)
        write(name)
    assert cache.touch("k", None) == ("k" in cache)
    assert cache.get_many(["a", "k"]) == {"k": cache.get("k")}
    assert denied(server) == set()
    assert counted()["down"] == 0


@ON_REDIS
def test_missing_right_is_named_in_the_warning(callers: Callers, server: RedisServer) -> None:
    """[S45] Values are loaded nevertheless."""
    for missing in sorted(rights_of_loads() - QUIET - {"eval", "type"}):
        server.command("ACL", "SETUSER", "cache", f"-{missing}")
        server.command("ACL", "LOG", "RESET")
        forget_state()  # including that the server was unreachable
        for wait in (0.2, 2.0):  # with a stall, the first load may end before the second caller has joined the queue
            key = f"{missing}:{wait}"
            loading = callers.begin_load("value", key=key, stale=60)
            assert callers.value(key, "other", stale=60, cache=THERE, wait=wait) == "other", missing
            assert loading.finish() == "value"
            if missing in denied(server):
                break
        eventually(lambda missing=missing: missing in denied(server))
        server.command("ACL", "SETUSER", "cache", f"+{missing}")

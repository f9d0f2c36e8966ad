"""A cache's user of the server, who may do what the page says and nothing else."""

from __future__ import annotations

import inspect
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.cache import caches

from django_redis_locks.backends.redis.backend import RedisBackend
from django_redis_locks.backends.redis.scripts import script
from django_redis_locks.cache import get_or_load_many, invalidate
from tests.cache.conftest import DUMMY, HERE, THERE, Loader, Stage, at, redis_caches
from tests.contract.matrix import PATIENCE, eventually
from tests.probes.tuning import Tune
from tools.redis_server import RedisServer

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "operations.md"
LUA = Path(inspect.getfile(RedisBackend)).parent / "lua"

QUIET = {"exists", "ping", "publish", "subscribe", "zpopmin"}
"""Those without which nobody is refused anything: waiters ask now and then. ``eval`` is for a server that was restarted, and
``type`` for what somebody else has put there."""


def shown() -> list[str]:
    (line,) = re.findall(r"^ACL SETUSER cache .+$", PAGE.read_text(), re.MULTILINE)
    return shlex.split(line)


def rights_of_loads() -> set[str]:
    """Those that the page gives, which are those that scripts and inboxes take."""
    return {word[1:] for word in shown() if word.startswith("+")}


def rights_of_django() -> set[str]:
    """Those for which it says what else is done with a cache."""
    (row,) = re.findall(r"^\| `(\+exec .+?)` \|", PAGE.read_text(), re.MULTILINE)
    return {word[1:] for word in row.split()}


@pytest.fixture
def server(make_server: Callable[..., RedisServer], settings: Any) -> Iterator[RedisServer]:
    """Of a user with the rights of loads only."""
    server = make_server()
    server.command(*shown())
    caches_of = redis_caches(f"redis://cache:secret@127.0.0.1:{server.port}/0", KEY_PREFIX="shop")
    guard = {"BACKEND": "django_redis_locks.cache.StampedeCache", "LOCATION": HERE}
    settings.CACHES = {"default": {"BACKEND": DUMMY}, **caches_of, "guard": guard}
    yield server
    caches.close_all()


def denied(server: RedisServer) -> set[str]:
    log = server.command("ACL", "LOG")
    entries = [dict(zip(entry[::2], entry[1::2], strict=True)) for entry in log]
    return {entry["object"] for entry in entries} - {"client", "client|setinfo"}  # redis-py introduces itself


def test_they_are_those_of_the_scripts() -> None:
    steps = ["queue/leave", *(f"load/{path.stem}" for path in (LUA / "load").glob("*.lua"))]
    used = {word.lower() for step in steps for word in re.findall(r"redis\.p?call\('(\w+)'", script(step).source)}
    assert used
    assert rights_of_loads() == used | {"eval", "evalsha", "get", "ping", "subscribe"}


def test_they_are_enough_for_loads(server: RedisServer, stage: Stage, counted: Any, tune: Tune) -> None:
    """[S24] One loads, who waits in another process is woken, and what is invalidated isn't stored."""
    tune(max_poll_interval=60.0)  # who has the value before that was woken
    loader = Loader("value", gate=True)
    first = stage.start("k", loader, ttl=60, stale=60, early=0.5, wait=PATIENCE)
    loader.wait()
    waiting = stage.start("k", Loader("other"), ttl=60, stale=60, cache=THERE, wait=PATIENCE)
    eventually(lambda: server.command("EXISTS", "{shop:1:k}:w:load") == 1)
    loader.gate.set()
    assert first.result(PATIENCE).value == waiting.result(PATIENCE).value == "value"
    assert stage.load("k", Loader("other")).source == "hit"
    assert stage.call(get_or_load_many, ["k", "l"], lambda keys: dict.fromkeys(keys, 1), **at(HERE)) == {
        "k": "value",
        "l": 1,
    }
    loader = Loader("late", gate=True)
    late = stage.start("m", loader)
    loader.wait()
    brief = stage.load("m", Loader("other"), cache=THERE, wait=0.05)  # stands in line, and leaves
    assert brief.value == "other"
    stage.call(invalidate, "k", "m", stale=5, settle=5, **at(THERE))
    loader.gate.set()
    assert late.result(PATIENCE).value == "late"
    assert server.command("EXISTS", "shop:1:m") == 0
    with pytest.raises(ValueError, match="no"):
        stage.load("n", Loader(ValueError("no")))
    assert denied(server) == set()
    assert counted()["down"] == 0


def test_and_the_others_for_what_else_is_done_with_a_cache(server: RedisServer, counted: Any) -> None:
    """Writes of a wrapped cache are fenced."""
    server.command("ACL", "SETUSER", "cache", *(f"+{right}" for right in rights_of_django()))
    cache = caches["guard"]
    assert cache.get_or_set("k", 1) == 1
    cache.set("k", 2, 60)
    assert cache.add("l", 1)
    cache.set_many({"m": 1, "n": 2}, 60)
    assert cache.get_many(["m", "n"]) == {"m": 1, "n": 2}
    assert cache.incr("m") == 2
    assert cache.touch("m", 30)
    assert cache.touch("m", None)
    assert "m" in cache
    assert cache.delete("m")
    cache.incr_version("n")
    cache.delete_many(["l", "n"])
    assert cache.get("k") == 2
    cache.clear()
    assert cache.get("k") is None
    assert denied(server) == set()
    assert counted()["down"] == 0


@pytest.mark.parametrize("missing", sorted(rights_of_loads() - QUIET - {"eval", "type"}))
def test_each_of_them_is_missed(server: RedisServer, missing: str, stage: Stage) -> None:
    """[S45] Values are still loaded, and the server tells what it denied."""
    server.command("ACL", "SETUSER", "cache", f"-{missing}")
    for wait in (0.2, 2.0):  # a machine that stalls may let the first one pass before anybody lined up
        key, loader = f"k{wait}", Loader("value", gate=True)
        first = stage.start(key, loader, ttl=60, stale=60)
        loader.wait()
        second = stage.start(key, Loader("other"), ttl=60, stale=60, cache=THERE, wait=wait)
        assert second.result(PATIENCE).value == "other"
        loader.gate.set()
        assert first.result(PATIENCE).value == "value"
        if missing in denied(server):
            break
    eventually(lambda: missing in denied(server))

"""reference/wire-format.md: the scripts, and the keys in Redis while locks are held and values are loaded."""

from __future__ import annotations

import re
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from django.core.cache import caches
from django.test import override_settings

from django_redis_locks import locks
from django_redis_locks.cache import get_or_load, invalidate
from tests.docs.pages import BLOCKS, rows, text_of
from tests.probes.scripts import NAMES, commands_of, source_of
from tools.redis_server import RedisServer

PAGE = "reference/wire-format.md"
SCRIPT = r"(lock|multi|permits|waiters|index|record|fence|latch|load)/\w+"


def count(cell: str, separator: str) -> int:
    """The number of arguments that a cell names, without those in brackets."""
    return len([part for part in re.sub(r"\(.*?\)", "", cell).split(separator) if part.strip()])


def test_page_names_every_script_with_its_arguments() -> None:
    table = rows(PAGE, first=SCRIPT)
    assert set(table) == set(NAMES)
    for name, (_, keys, args, _) in table.items():
        assert count(keys, ",") == len(set(re.findall(r"KEYS\[(\d+)\b", source_of(name)))), name
        assert count(args, "; ") == len(set(re.findall(r"ARGV\[(\d+)\b", source_of(name)))), name


def test_page_names_every_command_that_a_script_calls() -> None:
    named = text_of(PAGE).rpartition("Commands they use:")[2]
    assert set(re.findall(r"`([A-Z]+)`", named)) == {command for name in NAMES for command in commands_of(name)}


def test_page_names_every_key_of_a_held_lock_with_its_type_and_value(
    redis_url: str, redis_server: RedisServer, settings: Any
) -> None:
    settings.REDIS_LOCKS = {"default": {"LOCATION": redis_url}}
    blocks = [block.code.strip() for block in BLOCKS if block.page.name in {"wire-format.md", "operations.md"}]
    example = r"1 lock \S+ \d{16} \[.+\]"
    keys = rows(PAGE, first=r"lock:\{0\}:(k:.+|w:.+|fence|index)")
    with ThreadPoolExecutor(1) as pool:
        with locks.lock("order:42"):
            waiting = pool.submit(lambda: locks.lock("order:42").acquire(timeout=10).release())
            while redis_server.command("ZCARD", "lock:{0}:w:order:42") == 0:
                assert not waiting.done()
            assert set(redis_server.command("KEYS", "*")) == set(keys)
            for key, cells in keys.items():
                kind = {"sorted set": "zset"}.get(cells[1], cells[1])
                assert redis_server.command("TYPE", key) == kind, key
            assert re.fullmatch(example, redis_server.command("GET", "lock:{0}:k:order:42"))
        waiting.result(30)
    assert sum(bool(re.search(f'^"?{example}"?$', block.replace("\\", ""), re.MULTILINE)) for block in blocks) == 2


def test_page_shows_the_value_of_a_record(redis_url: str, redis_server: RedisServer, settings: Any) -> None:
    settings.REDIS_LOCKS = {"default": {"LOCATION": redis_url}}
    locks.record("record").put(None, {"state": "ready"})
    example = r'1 record \S+ \d{16} \{"state":"ready"\}'
    assert re.fullmatch(example, redis_server.command("GET", "lock:{0}:k:record"))
    assert any(re.fullmatch(example, block.code.strip()) for block in BLOCKS if block.page.name == "wire-format.md")


def test_page_names_every_key_of_a_load(
    redis_url: str, redis_server: RedisServer, settings: Any, tmp_path: Path
) -> None:
    """Beside a value on Redis, and for a cache that isn't on Redis."""
    wrapper = "django_redis_locks.cache.StampedeCache"
    settings.REDIS_LOCKS = {"default": {"LOCATION": redis_url}}
    settings.CACHES = {
        "default": {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": redis_url},
        "files": {"BACKEND": "django.core.cache.backends.filebased.FileBasedCache", "LOCATION": str(tmp_path)},
        "over default": {"BACKEND": wrapper, "LOCATION": "default"},
        "over files": {"BACKEND": wrapper, "LOCATION": "files"},
    }
    seen: set[str] = set()
    values: list[str] = []
    waiters: list[Future[Any]] = []

    def load(cache: str) -> str:
        with override_settings(CACHES=settings.CACHES):  # this process forgets its loads: the waiter asks Redis
            waiting = pool.submit(get_or_load, "sales", lambda: "never", cache=cache)
            while not any(":w:" in key for key in redis_server.command("KEYS", "*")):
                assert not waiting.done()
        seen.update(redis_server.command("KEYS", "*"))
        (lease,) = (key for key in redis_server.command("KEYS", "*") if ":k:" in key)
        values.append(redis_server.command("GET", lease))
        waiters.append(waiting)
        return "loaded"

    with ThreadPoolExecutor(1) as pool:
        for cache in ("default", "files"):
            caches[f"over {cache}"].clear()
            invalidate("sales", cache=cache, replica_lag=60)
            get_or_load("sales", lambda cache=cache: load(cache), cache=cache)
            assert waiters.pop().result(30) == "loaded"
            redis_server.command("DEL", ":1:sales", *seen)
    seen |= {"{:1:sales}:p:load", "lock:load:{0}:p:files::1:sales"}  # of open transactions
    assert seen - {":1:sales"} == set(rows(PAGE, first=r"(\{:1:sales\}|lock:load:\{0\}):.+"))
    (example,) = (block.code.strip() for block in BLOCKS if block.code.startswith("1 load "))
    assert all(re.fullmatch(r"1 load \S+ \d+", value) for value in [example, *values])

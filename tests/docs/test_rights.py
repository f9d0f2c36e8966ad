"""howto/operations.md: the rights on the page are sufficient, and each is necessary."""

from __future__ import annotations

import asyncio
import re
import shlex
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import pytest

from django_redis_locks import LockBackendError, LockLost, locks
from tests.docs.pages import BLOCKS
from tests.probes.scripts import NAMES, commands_of
from tests.probes.tuning import Tune
from tools.redis_server import RedisServer

(SHOWN,) = (block.code for block in BLOCKS if block.code.startswith("ACL SETUSER locks"))
RIGHTS = {word[1:].upper() for word in shlex.split(SHOWN) if word.startswith("+")}


@pytest.fixture
def user(redis_url: str, redis_server: RedisServer, settings: Any) -> Iterator[None]:
    """Locks use the login `locks`, which has no rights yet; the server has no script loaded."""
    redis_server.command("SCRIPT", "FLUSH")
    redis_server.command("ACL", "LOG", "RESET")
    redis_server.command("ACL", "SETUSER", "locks", "on", ">secret")
    url = urlsplit(redis_url)
    location = urlunsplit(url._replace(netloc=f"locks:secret@{url.hostname}:{url.port}"))
    settings.REDIS_LOCKS = {"default": {"LOCATION": location}}
    yield
    locks.close_all()
    redis_server.command("ACL", "DELUSER", "locks")


def test_shown_rights_are_those_of_the_scripts_and_of_the_hint(user: None) -> None:
    of_scripts = {command for name in NAMES for command in commands_of(name)}
    assert of_scripts | {"EVAL", "EVALSHA", "PING", "SUBSCRIBE"} == RIGHTS
    with pytest.raises(LockBackendError) as refused:
        locks.lock("order:42").acquire()
    assert set(re.findall(r"\+(\w+)", str(refused.value).upper())) - {"SELECT"} == RIGHTS


def test_shown_rights_are_enough_for_every_operation_of_a_lock(
    user: None, redis_server: RedisServer, tune: Tune
) -> None:
    """Waiters are woken by the server, too."""
    tune(max_poll_interval=60.0)  # a lock that is acquired before that was handed over by a wake-up
    redis_server.command(*shlex.split(SHOWN))
    with locks.lock("order:42", expire=30, renew=True) as grant:
        grant.extend(60)
        grant.ensure_held(confirm=True)
        holder = locks.lock("order:42").holder()
        assert holder is not None
        assert holder.fence == grant.fence
    grant = locks.lock("order:42").acquire()
    assert locks.lock("order:42").force_release(fence=grant.fence)
    with pytest.raises(LockLost):
        grant.release()

    async def wait() -> bool:
        async with locks.lock("order:42"):
            return await locks.record("noted").aput(None, {}) is not None

    with ThreadPoolExecutor(1) as pool:
        with locks.lock("order:42"):
            waiting = pool.submit(asyncio.run, wait())
            while redis_server.command("ZCARD", "lock:{0}:w:order:42") == 0:
                assert not waiting.done()
        assert waiting.result(30)
    denied = [dict(zip(entry[::2], entry[1::2], strict=True)) for entry in redis_server.command("ACL", "LOG")]
    missing = {
        entry["object"] for entry in denied if entry["reason"] != "auth"
    }  # a client of another test has no user now
    assert missing <= {"client", "client|setinfo"}  # 6.2 names no subcommand

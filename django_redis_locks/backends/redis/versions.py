"""Which redis-py is installed, and whether its connections are of the kind that ``wire`` can use.

A project may have pinned another one than ours asks for. Then the settings are told to be wrong, in words that name both,
before any lock is: an ``AttributeError`` in the middle of a release helps nobody.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import redis
import redis.asyncio

OLDEST = (5, 2)
UNKNOWN = (9,)
"""The first version that didn't exist when this was written."""

WANTED = "redis>=5.2,<9"

_NEEDED: dict[str, tuple[str, ...]] = {
    "redis.Connection": (
        "_buffer_cutoff",
        "_command_packer",
        "_connect",
        "_parser",
        "_sock",
        "can_read",
        "connect",
        "disconnect",
        "encoder",
        "read_response",
        "send_command",
        "socket_connect_timeout",
        "socket_timeout",
    ),
    "redis.asyncio.Connection": ("_reader", "_writer", "connect", "socket_timeout"),
}
"""What ``wire`` and ``inbox`` touch of a connection, most of it none of redis-py's promises."""


def complaint() -> str | None:
    """Why locks can't work with the redis-py that is installed."""
    if _installed() < OLDEST:
        return f"redis-py {redis.__version__} is too old: {_advice()}"
    if missing := ", ".join(_missing()):
        return lacking(missing)
    return None


def doubt() -> str | None:
    """Why they may not."""
    if _installed() >= UNKNOWN:
        return f"redis-py {redis.__version__} is newer than what locks were tested with: {_advice()}"
    return None


def lacking(what: object) -> str:
    """What to say when something of redis-py isn't there."""
    return f"redis-py {redis.__version__} can't be used ({what}): {_advice()}"


def _advice() -> str:
    return f"install {WANTED!r}"


def _installed() -> tuple[int, ...]:
    """A version that can't be read is taken for a new one."""
    found = re.match(r"\d+(\.\d+)*", str(getattr(redis, "__version__", "")))
    return tuple(map(int, found[0].split("."))) if found else UNKNOWN


def _missing() -> Iterator[str]:
    makers: dict[str, Any] = {
        "redis.Connection": redis.Connection,
        "redis.asyncio.Connection": redis.asyncio.Connection,
    }
    for kind, names in _NEEDED.items():
        yield from (f"{kind} has no {name}" for name in _lacking(makers[kind], names))


@cache
def _lacking(maker: Callable[[], Any], names: tuple[str, ...]) -> tuple[str, ...]:
    connection = maker()
    return tuple(name for name in names if not hasattr(connection, name))

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

OLDEST_SUPPORTED = (5, 2)
FIRST_UNTESTED = (9,)
"""The first version that didn't exist when this was written."""

REQUIREMENT = "redis>=5.2,<9"

_REQUIRED_ATTRIBUTES: dict[str, tuple[str, ...]] = {
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


def incompatibility() -> str | None:
    """Why locks can't work with the redis-py that is installed."""
    if _installed_version() < OLDEST_SUPPORTED:
        return f"redis-py {redis.__version__} is too old: {_install_hint()}"
    if missing := ", ".join(_missing_attributes()):
        return unusable(missing)
    return None


def compatibility_warning() -> str | None:
    """Why they may not."""
    if _installed_version() >= FIRST_UNTESTED:
        return f"redis-py {redis.__version__} is newer than what locks were tested with: {_install_hint()}"
    return None


def unusable(reason: object) -> str:
    """What to say when something of redis-py isn't there."""
    return f"redis-py {redis.__version__} can't be used ({reason}): {_install_hint()}"


def _install_hint() -> str:
    return f"install {REQUIREMENT!r}"


def _installed_version() -> tuple[int, ...]:
    """A version that can't be read is taken for a new one."""
    found = re.match(r"\d+(\.\d+)*", str(getattr(redis, "__version__", "")))
    return tuple(map(int, found[0].split("."))) if found else FIRST_UNTESTED


def _missing_attributes() -> Iterator[str]:
    classes: dict[str, Any] = {
        "redis.Connection": redis.Connection,
        "redis.asyncio.Connection": redis.asyncio.Connection,
    }
    for class_name, names in _REQUIRED_ATTRIBUTES.items():
        yield from (f"{class_name} has no {name}" for name in _attributes_missing_from(classes[class_name], names))


@cache
def _attributes_missing_from(connection_class: Callable[[], Any], names: tuple[str, ...]) -> tuple[str, ...]:
    connection = connection_class()
    return tuple(name for name in names if not hasattr(connection, name))

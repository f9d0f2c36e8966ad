"""Checks the installed version of redis-py, and that its connections have the attributes that ``redispy`` uses.

A project may have pinned an unsupported version. The system check and the first use then report the installed and the
required version, instead of an ``AttributeError`` in the middle of a release.
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
"""The first version that this package wasn't tested with."""

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
        "host",
        "port",
        "read_response",
        "send_command",
        "socket_connect_timeout",
        "socket_timeout",
    ),
    "redis.asyncio.Connection": (
        "_reader",
        "_writer",
        "connect",
        "host",
        "port",
        "read_response",
        "send_command",
        "socket_timeout",
    ),
}
"""The attributes of a connection that this package uses, most of them private to redis-py."""


def incompatibility() -> str | None:
    """Return why locks can't work with the installed redis-py, or None."""
    if _installed_version() < OLDEST_SUPPORTED:
        return f"redis-py {redis.__version__} is too old: {_install_hint()}"
    if missing := ", ".join(_missing_attributes()):
        return unusable(missing)
    return None


def compatibility_warning() -> str | None:
    """Return why locks may not work with the installed redis-py, or None."""
    if _installed_version() >= FIRST_UNTESTED:
        return f"redis-py {redis.__version__} is newer than the versions that locks were tested with: {_install_hint()}"
    return None


def unusable(reason: object) -> str:
    """Return the message for a redis-py that lacks a name or attribute."""
    return f"redis-py {redis.__version__} can't be used ({reason}): {_install_hint()}"


def _install_hint() -> str:
    return f"install {REQUIREMENT!r}"


def _installed_version() -> tuple[int, ...]:
    """Return the version as numbers; an unreadable version counts as untested."""
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

"""Parsers of replies. They raise one of ``PARSE_ERRORS`` for a malformed reply."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

parse_freed: Callable[[Any], int] = {0: 0, 1: 1, 2: 2}.__getitem__
"""0: nothing was freed; 1: a lock was freed; 2: the lock was granted to a waiter, or another process was notified."""

parse_forced: Callable[[Any], int] = {0: 0, 1: 1, 2: 2, 3: 3}.__getitem__
"""As ``parse_freed``; or 3: the holder's process was asked for its fence."""

parse_bool: Callable[[Any], bool] = {0: False, 1: True}.__getitem__


LARGEST: Final = 2**63
"""The bound of a server's integers."""

LATEST: Final = 253_402_300_799_000
"""The milliseconds from 1970 to the end of the year 9999, the last one of ``datetime``."""


def parse_int(value: Any) -> int:
    """Parse an integer, or its decimal digits."""
    if type(value) not in (int, bytes, str):
        raise ValueError(value)
    found = int(value)
    if not -LARGEST <= found < LARGEST:
        raise ValueError("a number of more than 64 bits")
    return found


def parse_time(value: Any) -> float:
    """Parse milliseconds since 1970 and return seconds, at most those of LATEST."""
    found = int(value) if type(value) is int or len(value) < 20 else LATEST
    return min(found, LATEST) / 1000


def parse_json(value: str) -> Any:
    """Parse JSON.

    Raises:
        ValueError: not JSON, or nested too deeply.
    """
    try:
        return json.loads(value)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def parse_array(reply: Any) -> Sequence[Any]:
    """Return the items of an array."""
    if not isinstance(reply, list | tuple):
        raise ValueError(reply)
    return reply


def parse_text(value: Any) -> str:
    """Parse a string; bytes that aren't UTF-8 are replaced."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if not isinstance(value, str):
        raise ValueError(value)
    return value

"""Parsers of replies. What isn't of their kind raises: an answer that is none must not pass for one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

parse_freed: Callable[[Any], int] = {0: 0, 1: 1, 2: 2}.__getitem__
"""How much was freed: nothing; a lock; a lock, and another process was told."""

parse_forced: Callable[[Any], int] = {0: 0, 1: 1, 2: 2, 3: 3}.__getitem__
"""As ``parse_freed``; or 3: the holder's process was asked for its fence."""

parse_bool: Callable[[Any], bool] = {0: False, 1: True}.__getitem__


LARGEST: Final = 2**63
"""Of all numbers that a server counts with."""

LATEST: Final = 253_402_300_799_000
"""The milliseconds from 1970 to the end of the last year that a calendar has."""


def parse_int(value: Any) -> int:
    """An integer, or one in digits."""
    if type(value) not in (int, bytes, str):
        raise ValueError(value)
    found = int(value)
    if not -LARGEST <= found < LARGEST:
        raise ValueError("a number of more than 64 bits")
    return found


def parse_time(value: Any) -> float:
    """Seconds since 1970, of milliseconds in digits; the latest there is, if there is no such year."""
    found = int(value) if type(value) is int or len(value) < 20 else LATEST
    return min(found, LATEST) / 1000


def parse_json(value: str) -> Any:
    """What JSON says.

    Raises:
        ValueError: it is none, or nested too deeply.
    """
    try:
        return json.loads(value)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def parse_array(reply: Any) -> Sequence[Any]:
    """An array."""
    if not isinstance(reply, list | tuple):
        raise ValueError(reply)
    return reply


def parse_text(value: Any) -> str:
    """A string, whatever its bytes are."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if not isinstance(value, str):
        raise ValueError(value)
    return value

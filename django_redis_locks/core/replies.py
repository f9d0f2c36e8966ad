"""Parsers of replies. What isn't of their kind raises: an answer that is none must not pass for one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

freed: Callable[[Any], int] = {0: 0, 1: 1, 2: 2}.__getitem__
"""How much was freed: nothing; a lock; a lock, and another process was told."""

yes_or_no: Callable[[Any], bool] = {0: False, 1: True}.__getitem__


def number(value: Any) -> int:
    """An integer, or one in digits."""
    if type(value) not in (int, bytes, str):
        raise ValueError(value)
    return int(value)


def members(reply: Any) -> Sequence[Any]:
    """An array."""
    if not isinstance(reply, list | tuple):
        raise ValueError(reply)
    return reply


def text(value: Any) -> str:
    """A string, whatever its bytes are."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if not isinstance(value, str):
        raise ValueError(value)
    return value

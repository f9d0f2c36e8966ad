"""Suggestions for misspelled names."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def closest(name: object, known: Iterable[str], similarity: float = 0.6) -> str | None:
    """Return the known name that ``name`` is most similar to, or None if none reaches the ``similarity`` (0 to 1)."""
    return next(iter(get_close_matches(str(name), list(known), 1, similarity)), None)


def did_you_mean(suggestion: str | None) -> str:
    """Return the end of an error message, such as ``; did you mean 'expire'?``, or "" without a suggestion."""
    return f"; did you mean {suggestion!r}?" if suggestion else ""

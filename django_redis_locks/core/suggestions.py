"""Suggestions for misspelled names, and for names that other libraries use."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_NO_SYNONYMS: Final[dict[str, str]] = {}


def closest(
    name: object, known: Iterable[str], synonyms: Mapping[str, str] = _NO_SYNONYMS, similarity: float = 0.6
) -> str | None:
    """Return the known name that is probably meant, or None. Case doesn't matter.

    Args:
        name: the unknown name.
        known: the names to choose from.
        synonyms: other names of the known ones, in lower case. A synonym may have a synonym.
        similarity: the least similarity, from 0 to 1.
    """
    spelling = {str(known_name).lower(): str(known_name) for known_name in known}
    meant = str(name).lower()
    while meant not in spelling and meant in synonyms:
        meant = synonyms[meant]
    return next((spelling[match] for match in get_close_matches(meant, spelling, 1, similarity)), None)


def did_you_mean(suggestion: str | None, otherwise: str = "") -> str:
    """Return the end of an error message: ``; did you mean 'expire'?``, or ``otherwise`` without a suggestion."""
    return f"; did you mean {suggestion!r}?" if suggestion else otherwise


def hint(suggestion: str | None, otherwise: str = "") -> str:
    """Return the hint of a system check: ``Did you mean 'EXPIRE'?``, or ``otherwise`` without a suggestion."""
    return f"Did you mean {suggestion!r}?" if suggestion else otherwise

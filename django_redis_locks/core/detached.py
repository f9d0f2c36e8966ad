"""The text of ``Grant.detach``: which lock, on which terms, and the token with which it is attached once.

The token opens only this hold: it is random, unlike the tokens of holds, and marked, so that no other text can be made
from it.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

_PREFIX: Final = "lock1."
"""The format of the text."""

_CHECKSUM: Final = 6
"""The number of bytes that detect a damaged text."""

_is_token = re.compile(r"~[A-Za-z0-9_-]{24}").fullmatch

NOT_A_TEXT: Final = "this isn't a text that grant.detach() returned, or it was damaged or cut on the way"


def mint_detached_token() -> str:
    """Return a token for a hold on its way. A ``~`` distinguishes it from the tokens of holds."""
    return "~" + secrets.token_urlsafe(18)


class DetachedHold(NamedTuple):
    """A hold on its way to another process.

    Attributes:
        alias, key, name: of the lock.
        kind: the kind of lock, or the side of a read-write lock.
        token: the token with which it is attached.
        lease: milliseconds that it has once it is attached.
        renew_for: seconds for which it is then renewed; -1 for ever, 0 if not at all.
        max_hold: the same, if the call site gave it.
        note: the note of the call site.
        ends: when the lease of the journey ends at the earliest, in milliseconds of the wall clock.
        terms: what an acquire says of its kind, such as the limit of a semaphore.
    """

    alias: str
    kind: str
    key: str
    name: str
    token: str
    lease: int
    renew_for: float
    max_hold: float | None
    note: str | None
    ends: int
    terms: Sequence[Any]

    def encode(self) -> str:
        """Return the text, of characters that are safe in URLs."""
        data = json.dumps(self, separators=(",", ":")).encode()
        return _PREFIX + urlsafe_b64encode(_checksum(data) + data).decode().rstrip("=")


def decode(text: object) -> DetachedHold:
    """Return the hold of a text.

    Raises:
        TypeError: no str.
        ValueError: not a text of ``encode``, or damaged.
    """
    if not isinstance(text, str):
        raise TypeError(f"attach() takes the text that grant.detach() returned, not {type(text).__name__}")
    if not text.startswith(_PREFIX):
        raise ValueError(NOT_A_TEXT)
    try:
        data = urlsafe_b64decode(text.removeprefix(_PREFIX) + "==")
        fields = json.loads(data[_CHECKSUM:])
        found = DetachedHold(*fields)
        if _checksum(data[_CHECKSUM:]) != data[:_CHECKSUM] or not _plausible(found):
            raise ValueError(NOT_A_TEXT)
    except (ValueError, TypeError, RecursionError):
        raise ValueError(NOT_A_TEXT) from None
    return found


def _plausible(found: DetachedHold) -> bool:
    texts: tuple[Any, ...] = found.alias, found.kind, found.key, found.name, found.token, found.note or ""
    return (
        all(isinstance(text, str) for text in texts)
        and _is_token(found.token) is not None
        and type(found.lease) is type(found.ends) is int
        and isinstance(found.terms, list)
        and all(type(number) in (int, float) for number in (found.renew_for, found.max_hold or 0))
    )


def _checksum(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=_CHECKSUM).digest()

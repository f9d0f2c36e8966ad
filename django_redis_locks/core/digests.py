"""Digests of keys, which may be personal data: log records have one instead of the key, and operators see the same."""

from __future__ import annotations

from hashlib import blake2b

from .keys import respell

_DIGEST = 8
"""Bytes."""

_secret = b""


def use_secret(secret: str | bytes) -> None:
    """Make digests that can't be computed without this: a key that can be guessed, such as a phone number, could be found
    by trying otherwise. It has to be the same in all processes whose digests are compared."""
    global _secret  # noqa: PLW0603 - one of the process
    _secret = blake2b(secret.encode() if isinstance(secret, str) else secret, digest_size=32).digest()


def digest_of(key: str) -> str:
    """16 hexadecimal digits, "" of no key. The key may be one of a listing, of which a long one has no end."""
    return blake2b(respell(key).encode(), digest_size=_DIGEST, key=_secret).hexdigest() if key else ""

"""Digests of keys. Log records contain a digest instead of the key, which may be personal data. The admin and the
management command find a lock by its digest."""

from __future__ import annotations

from hashlib import blake2b

from .keys import escape_again

_DIGEST = 8
"""Bytes."""

_secret = b""


def use_secret(secret: str | bytes) -> None:
    """Set the secret of all digests. Without a secret, a key with few possible values, such as a phone number, could be
    found by trying them all. Processes whose digests are compared must have the same secret."""
    global _secret  # noqa: PLW0603 - one per process
    _secret = blake2b(secret.encode() if isinstance(secret, str) else secret, digest_size=32).digest()


def digest_of(key: str) -> str:
    """Return 16 hexadecimal digits, or "" for an empty key. A key from a listing, with a hashed tail, has the same
    digest as the original key."""
    return blake2b(escape_again(key).encode(), digest_size=_DIGEST, key=_secret).hexdigest() if key else ""

"""Digests of keys. Log records contain the digest instead of a key, which may be personal data; operators see the same
one."""

from __future__ import annotations

from hashlib import blake2b

from .keys import respell

_DIGEST = 8
"""Bytes."""

_secret = b""


def use_secret(secret: str | bytes) -> None:
    """Set the secret of all digests. Without it a key that can be guessed, such as a phone number, could be found by
    trying. It must be the same in all processes with digests that are compared."""
    global _secret  # noqa: PLW0603 - one of the process
    _secret = blake2b(secret.encode() if isinstance(secret, str) else secret, digest_size=32).digest()


def digest_of(key: str) -> str:
    """Return 16 hexadecimal digits, or "" for an empty key. The key may come from a listing, with a hashed tail."""
    return blake2b(respell(key).encode(), digest_size=_DIGEST, key=_secret).hexdigest() if key else ""

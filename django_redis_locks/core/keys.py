"""Builds and parses the keys in a store; no other module does.

The keys of a lock ``order:42`` with the prefix ``lock``::

    lock:{0}:k:order:42      the lock: a string while it is held, or a hash with its permits; absent otherwise
    lock:{0}:w:order:42      its waiters: the inboxes of the waiting processes, by their arrival
    lock:{0}:e:order:42      the ends of the leases of permits, by their tokens
    lock:{0}:h:order:42      the heartbeats of the waiters for permits: until when each of them may be silent
    lock:{0}:p:order:42      the participants of a latch
    lock:{0}:n:order:42      the recent requests of a latch, by their nonces
    lock:{0}:fence           the fence counter of the bucket
    lock:{0}:index           the held locks of the bucket, by the end of their leases

``{0}`` is the number of the *bucket*: crc32(key) modulo the number of buckets. A single server has one bucket, so that
one script can use several locks. A Cluster has more: the braces are a hash tag, which puts a bucket into one slot. The
keys are a part of the wire format, which processes of different versions share.
"""

from __future__ import annotations

import re
from functools import lru_cache
from hashlib import blake2b
from typing import NamedTuple
from urllib.parse import unquote
from zlib import crc32

from .errors import LockKeyError

LONGEST_KEY = 200
"""The largest number of bytes of an escaped key. The tail of a longer key is replaced by its hash."""

_TAIL = "%~"
"""The beginning of a hashed tail. It is unambiguous, because two hex digits follow every other ``%`` of an escaped
key."""

_DIGEST = 16
"""The number of bytes of the hash."""

BROADCAST = "all"
"""The end of the name of the channel to which every inbox subscribes, in addition to its own channel."""

CONFIRM = "look"
"""The first word of a message that asks the process that holds a lock to confirm the hold and to publish its fence.
Other messages begin with the number of a queue."""

_hashed = re.compile(rf"{_TAIL}[0-9a-f]{{{2 * _DIGEST}}}").fullmatch
_plain = re.compile(r"[!-$&-z|~]{1,200}").fullmatch
_unsafe = re.compile(r"[\x00-\x20%{}\x7f-\xa0\u1680\u2000-\u200f\u2028-\u202f\u205f-\u2064\u3000\ufeff]")


class LockId(NamedTuple):
    """The identity of a lock: its store and its key there. Locks with equal ids exclude each other."""

    store: str
    lock: str


class LockKeys(NamedTuple):
    """The keys of a lock, in the order of the scripts' KEYS, and the prefix of the inbox channels.

    Attributes:
        lock: the lock itself.
        waiters: the queues that wait for it.
        fence: the fence counter of its bucket.
        index_key: the index of its bucket.
        inbox: the prefix of the channels that receive messages about it.
    """

    lock: str
    waiters: str
    fence: str
    index_key: str
    inbox: str


class KeyLayout(NamedTuple):
    """Builds the keys of one alias, with its prefix and number of buckets."""

    prefix: str
    buckets: int = 1

    def keys_of(self, key: str) -> LockKeys:
        """Return the keys of the lock with this user's key.

        Raises:
            LockKeyError: not a str, empty, or not encodable.
        """
        return self.keys_of_escaped(escape(key))

    def keys_of_escaped(self, escaped: str) -> LockKeys:
        """Return the keys of the lock with this escaped key."""
        bucket = crc32(escaped.encode()) % self.buckets if self.buckets > 1 else 0
        lock, waiters, fence, index, inbox = _bucket(self.prefix, bucket)
        return LockKeys(lock + escaped, waiters + escaped, fence, index, inbox)

    def indexes(self) -> list[str]:
        """Return the keys of the indexes of all buckets."""
        return [_bucket(self.prefix, bucket)[3] for bucket in range(self.buckets)]

    def fence_counters(self) -> list[str]:
        """Return the keys of the fence counters of all buckets."""
        return [_bucket(self.prefix, bucket)[2] for bucket in range(self.buckets)]


def escaped_in(lock: str) -> str:
    """Return the escaped user's key in the store's key of a lock."""
    return lock.partition("}:k:")[2]


def unescape(escaped: str) -> str:
    """Return the user's key from an escaped one. A hashed tail stays as it is."""
    return unquote(escaped, errors="replace")


def escape_again(key: str) -> str:
    """Escape a key that ``unescape`` returned: the reverse of ``unescape``, which keeps a hashed tail."""
    if _hashed(tail := key[-len(_TAIL) - 2 * _DIGEST :]):
        escaped = _unsafe.sub(_percent, key.removesuffix(tail)) + tail
        # A hashed key has nearly the full length: it was cut at the boundary of a character
        if len(escaped.encode(errors="replace")) > LONGEST_KEY - 12:
            return escaped
    return escape(key)


@lru_cache(maxsize=1024)
def _bucket(prefix: str, bucket: int) -> LockKeys:
    tag = f"{prefix}:{{{bucket}}}:"
    return LockKeys(tag + "k:", tag + "w:", tag + "fence", tag + "index", tag + "inbox:")


def waiters_of(lock: str) -> str:
    """Return the key of the waiters of a lock or load from the key of the lock or load."""
    return "}:w:".join(lock.rsplit("}:k:", 1))


def ends_of(lock: str) -> str:
    """Return the key of the ends of the leases of permits from the key of the lock."""
    return "}:e:".join(lock.rsplit("}:k:", 1))


def heartbeats_of(lock: str) -> str:
    """Return the key of the heartbeats of the waiters for permits from the key of the lock."""
    return "}:h:".join(lock.rsplit("}:k:", 1))


def participants_of(lock: str) -> str:
    """Return the key of the participants of a latch from the key of the latch."""
    return "}:p:".join(lock.rsplit("}:k:", 1))


def requests_of(lock: str) -> str:
    """Return the key of the recent requests of a latch from the key of the latch."""
    return "}:n:".join(lock.rsplit("}:k:", 1))


def inbox_of(lock: str) -> str:
    """Return the prefix of the inbox channels from the store's key of a lock."""
    return f"{lock.partition('}:k:')[0]}}}:inbox:"


def escape(key: str) -> str:
    """Return the user's key as it is written in the store: braces, percent signs, white space and control characters
    are percent-encoded. If it is longer than 200 bytes, the BLAKE2b-128 hash of the whole key replaces the tail.

    Raises:
        LockKeyError: not a str, empty, or not encodable as UTF-8.
    """
    if not isinstance(key, str):
        raise LockKeyError(f"the key of a lock is a str, not {type(key).__name__}")
    if _plain(key):
        return key
    if not key:
        raise LockKeyError("the key of a lock is empty", key=key)
    try:
        escaped = _unsafe.sub(_percent, key)
        raw = escaped.encode()
    except UnicodeEncodeError:
        raise LockKeyError("the key of a lock has characters that UTF-8 can't encode", key=key) from None
    if len(raw) <= LONGEST_KEY:
        return escaped
    digest = blake2b(raw, digest_size=_DIGEST).hexdigest()
    head = raw[: LONGEST_KEY - len(_TAIL) - len(digest)].decode(errors="ignore")
    return re.sub(r"%.?\Z", "", head) + _TAIL + digest


def _percent(match: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in match[0].encode())


def default_name(key: str) -> str:
    """Return the default name of a lock: its key up to the first colon."""
    return key.partition(":")[0]

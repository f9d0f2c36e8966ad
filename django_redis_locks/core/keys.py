"""The keys in a store. No other module builds or parses them.

A lock's keys, on a prefix ``lock``::

    lock:{0}:k:order:42      the lock: a hash while it is held, absent otherwise
    lock:{0}:w:order:42      its waiters: the inboxes of the processes that wait for it, by their arrival
    lock:{0}:fence           the fence counter of the bucket
    lock:{0}:index           the held locks of the bucket, by the end of their lease

``{0}`` is the number of the *bucket*, crc32(key) modulo the number of buckets: one on a single server, so that one
script can take several locks; more on a Cluster, where the braces put a bucket into one slot. These bytes are wire
format: processes of two versions meet in them.
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
"""Bytes of an escaped key; of a longer one the tail is hashed."""

_TAIL = "%~"
"""Begins a hashed tail. It can't stand in an escaped key, where every ``%`` is followed by two hex digits."""

_DIGEST = 16
"""Bytes of the hash."""

ALL = "all"
"""The end of the name of the channel that every inbox subscribes to, besides one of its own."""

LOOK = "look"
"""The first word of a message that asks the process that holds a lock to confirm the hold, and to publish its fence.
Other messages begin with the number of a queue."""

_hashed = re.compile(rf"{_TAIL}[0-9a-f]{{{2 * _DIGEST}}}").fullmatch
_plain = re.compile(r"[!-$&-z|~]{1,200}").fullmatch
_unsafe = re.compile(r"[\x00-\x20%{}\x7f-\xa0\u1680\u2000-\u200f\u2028-\u202f\u205f-\u2064\u3000\ufeff]")


class LockId(NamedTuple):
    """The identity of a lock: its store, and its key there. Locks with equal ids exclude each other."""

    store: str
    lock: str


class LockKeys(NamedTuple):
    """The keys that the scripts of a lock touch, in the order of their KEYS, and how the channels of inboxes begin."""

    lock: str
    waiters: str
    fence: str
    listing: str
    inbox: str


class Spelling(NamedTuple):
    """How one alias spells its keys."""

    prefix: str
    buckets: int = 1

    def of(self, key: str) -> LockKeys:
        """The keys of one lock.

        Raises:
            LockKeyError: not a str, empty, or not encodable.
        """
        return self.at(escape(key))

    def at(self, escaped: str) -> LockKeys:
        """Return the keys of the lock with this escaped key."""
        bucket = crc32(escaped.encode()) % self.buckets if self.buckets > 1 else 0
        lock, waiters, fence, listing, inbox = _bucket(self.prefix, bucket)
        return LockKeys(lock + escaped, waiters + escaped, fence, listing, inbox)

    def listings(self) -> list[str]:
        """The indexes of all buckets."""
        return [_bucket(self.prefix, bucket)[3] for bucket in range(self.buckets)]

    def counters(self) -> list[str]:
        """The fence counters of all buckets."""
        return [_bucket(self.prefix, bucket)[2] for bucket in range(self.buckets)]


def escaped_in(lock: str) -> str:
    """The escaped key in the spelled one."""
    return lock.partition("}:k:")[2]


def readable(escaped: str) -> str:
    """The user's key, for people to read. A hashed tail stays as it is."""
    return unquote(escaped, errors="replace")


def respell(key: str) -> str:
    """The escaped key of what ``readable`` gave: as ``escape``, but a hashed tail is known."""
    if _hashed(tail := key[-len(_TAIL) - 2 * _DIGEST :]):
        escaped = _unsafe.sub(_percent, key.removesuffix(tail)) + tail
        if len(escaped.encode(errors="replace")) > LONGEST_KEY - 12:  # the rest was cut at a character
            return escaped
    return escape(key)


@lru_cache(maxsize=1024)
def _bucket(prefix: str, bucket: int) -> LockKeys:
    tag = f"{prefix}:{{{bucket}}}:"
    return LockKeys(tag + "k:", tag + "w:", tag + "fence", tag + "index", tag + "inbox:")


def waiters_of(lock: str) -> str:
    """The key of the waiters of a lock, or of a load, out of its own."""
    return "}:w:".join(lock.rsplit("}:k:", 1))


def inbox_of(lock: str) -> str:
    """How the channels of inboxes begin that hear of a lock, out of its key."""
    return f"{lock.partition('}:k:')[0]}}}:inbox:"


def escape(key: str) -> str:
    """The key as the store spells it: braces, percent signs, white space and control characters percent-encoded,
    beyond 200 bytes the tail replaced by its BLAKE2b-128.

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
        raise LockKeyError("the key of a lock holds characters that UTF-8 can't encode", key=key) from None
    if len(raw) <= LONGEST_KEY:
        return escaped
    digest = blake2b(raw, digest_size=_DIGEST).hexdigest()
    head = raw[: LONGEST_KEY - len(_TAIL) - len(digest)].decode(errors="ignore")
    return re.sub(r"%.?\Z", "", head) + _TAIL + digest


def _percent(match: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in match[0].encode())


def usual_name(key: str) -> str:
    """The label of a lock that was given none: its key up to the first colon."""
    return key.partition(":")[0]

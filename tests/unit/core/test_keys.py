"""The escaped form of keys is wire format, shared by processes of different versions: these tests pin its bytes."""

from __future__ import annotations

import random
import re
from hashlib import blake2b
from zlib import crc32

import pytest

from django_redis_locks.core.errors import LockKeyError
from django_redis_locks.core.keys import LONGEST_KEY, KeyLayout, LockKeys, escape, escaped_in, unescape, waiters_of

LITERAL = {
    "order:42": "order:42",
    "a/b?c=d&e|f~": "a/b?c=d&e|f~",
    "[x](y)!$'\"`^\\": "[x](y)!$'\"`^\\",
    "100%": "100%25",
    "{user}": "%7Buser%7D",
    "a b\tc\nd": "a%20b%09c%0Ad",
    "nul\0": "nul%00",
    "del\x7f": "del%7F",
    "next line\x85": "next%20line%C2%85",
    "no\u00a0break": "no%C2%A0break",
    "zero\u200bwidth\ufeff": "zero%E2%80%8Bwidth%EF%BB%BF",
    "wide\u3000space": "wide%E3%80%80space",
    "smörgås": "smörgås",
    "锁🔒": "锁🔒",
    "e\u0301": "e\u0301",
    "%7Buser%7D": "%257Buser%257D",
    "%~": "%25~",
}


LONG = {
    "x" * 201: "x" * 166,
    "x" * 10_000: "x" * 166,
    "ö" * 101: "ö" * 83,
    "x" + "ö" * 100: "x" + "ö" * 82,
    " " * 67: "%20" * 55,
    "xx" + " " * 67: "xx" + "%20" * 54,
    "x" + " " * 67: "x" + "%20" * 55,
    "🔒" * 51: "🔒" * 41,
}


def test_key_is_percent_encoded() -> None:
    """[F7] Braces, percent signs, white space and control characters; all other characters stay readable."""
    for key, spelled in LITERAL.items():
        assert escape(key) == spelled
        ends = (f"k:{spelled}", f"w:{spelled}", "fence", "index", "inbox:")
        assert KeyLayout("lock").keys_of(key) == tuple(f"lock:{{0}}:{end}" for end in ends)
        assert unescape(escaped_in(f"lock:{{0}}:k:{spelled}")) == key


def test_tail_of_a_long_key_is_hashed() -> None:
    """[F7] Beyond 200 bytes: whole characters and escapes of the head, then %~ and the BLAKE2b-128 of the whole key."""
    for key, head in LONG.items():
        whole = "".join(f"%{byte:02X}" for byte in key.encode()) if key.isspace() else key.replace(" ", "%20")
        assert escape(key) == f"{head}%~{blake2b(whole.encode(), digest_size=16).hexdigest()}"
        assert len(escape(key).encode()) <= LONGEST_KEY


def test_border_and_hash_of_long_keys_are_pinned() -> None:
    """[F7] 200 bytes stay unchanged; and one hashed tail, byte for byte."""
    for key, spelled in (("x" * 200, "x" * 200), ("ö" * 100, "ö" * 100), (" " * 66, "%20" * 66)):
        assert escape(key) == spelled
    hashed = escape("order:" + "x" * 300)
    assert hashed == "order:" + "x" * 160 + "%~a6c14b475e1c4e051a9bfc474bfd5ae7"
    assert unescape(escape("a b" + "x" * 300)).startswith("a bxxx")


def test_hashed_key_is_never_the_spelling_of_a_short_one() -> None:
    """[L45] Every % of a literal spelling is followed by two hex digits, so none can hold the %~ of a hashed tail."""
    chance = random.Random(7)
    letters = "%~{} 0aAfx\0ö🔒"
    for _ in range(2000):
        short = escape("".join(chance.choices(letters, k=chance.randrange(1, 12))))
        assert re.fullmatch(r"(?:[^%{}\s]|%[0-9A-F]{2})+", short)
        tail = escape("".join(chance.choices(letters, k=chance.randrange(201, 260))))
        assert re.fullmatch(r"(?:[^%{}\s]|%[0-9A-F]{2})*%~[0-9a-f]{32}", tail)
    assert escape(escape("x" * 300)) != escape("x" * 300)


def test_different_keys_have_different_escaped_forms() -> None:
    """[L45] Literal or hashed: similar keys don't share a lock."""
    chance = random.Random(11)
    keys = {"".join(chance.choices("%2{5 }~", k=chance.randrange(1, 6))) for _ in range(5000)}
    keys |= {f"{'x' * 300}{number}" for number in range(100)} | {f"{number}{'x' * 300}" for number in range(100)}
    assert len({escape(key) for key in keys}) == len(keys)


def test_bucket_is_crc32_of_the_spelling() -> None:
    """[H1] With several buckets the number in braces is crc32 modulo their count; with one it is 0. Two are pinned:
    another function would move every lock."""
    for key in ("order:42", "{user} 1", "锁", "x" * 300):
        spelled = escape(key)
        tag = f"lock:{{{crc32(spelled.encode()) % 256}}}"
        ends = (f"k:{spelled}", f"w:{spelled}", "fence", "index", "inbox:")
        assert KeyLayout("lock", 256).keys_of(key) == LockKeys(*(f"{tag}:{end}" for end in ends))
        assert KeyLayout("lock", 1).keys_of(key).lock == f"lock:{{0}}:k:{spelled}"
    assert KeyLayout("lock", 256).keys_of("a").lock == "lock:{67}:k:a"  # crc32 of "a" is 0xE8B7BE43
    assert KeyLayout("shop", 256).keys_of("order:42").fence == "shop:{43}:fence"


def test_keys_of_one_lock_share_their_hash_tag() -> None:
    """[L44] They are in one slot of a Cluster, also if the user's key contains braces."""
    for key in ("order:42", "{a}{b}", "}{", "a{b"):
        tags = {re.search(r"\{(.*?)\}", name)[1] for name in KeyLayout("p", 16).keys_of(key)}
        assert len(tags) == 1


def test_key_of_the_waiters_follows_from_that_of_the_lock() -> None:
    for prefix in ("lock", ":k:", "w:k"):
        for key in ("order:42", "}:k:", "k:}:w:x", "x" * 300):
            keys = KeyLayout(prefix).keys_of(key)
            assert waiters_of(keys.lock) == keys.waiters


def test_key_that_is_no_encodable_string_raises_LockKeyError() -> None:
    """[F7] Not a str, empty, or not encodable."""
    for key in (None, 1, b"order", ("a",), "", "\ud800", "x" * 300 + "\udfff"):
        with pytest.raises(LockKeyError) as caught:
            KeyLayout("lock").keys_of(key)  # type: ignore[arg-type]
        assert isinstance(caught.value, ValueError)

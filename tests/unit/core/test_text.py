"""Escaping of unprintable text."""

from __future__ import annotations

from django_redis_locks.core.text import escape_unprintable


def test_invisible_text_is_escaped() -> None:
    """[D57] Letters of any script stay unchanged."""
    assert escape_unprintable("a b ü 订") == "a b ü 订"
    assert escape_unprintable("a\x00\n\u202e\u200b\x1b[31m") == r"a\x00\n\u202e\u200b\x1b[31m"

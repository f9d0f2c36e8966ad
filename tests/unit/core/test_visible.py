"""What strangers wrote, as people see it."""

from __future__ import annotations

from django_redis_locks.core.visible import visible


def test_what_is_not_seen_is_shown_as_an_escape() -> None:
    """[D57] It acts on no terminal and turns nothing around; letters of any script stay."""
    assert visible("a b ü 订") == "a b ü 订"
    assert visible("a\x00\n\u202e\u200b\x1b[31m") == r"a\x00\n\u202e\u200b\x1b[31m"

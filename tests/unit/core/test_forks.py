"""What a fork's child begins anew."""

from __future__ import annotations

import pytest

from django_redis_locks.core import forks


def test_hook_that_raises_stops_no_other_hook() -> None:
    """[H18] A connection that is still shared with the parent would be worse than what failed."""
    begun: list[str] = []

    def fail() -> None:
        raise ValueError("closed already")

    with pytest.raises(ValueError, match="closed already"):
        forks.run_all([lambda: begun.append("first"), fail, lambda: begun.append("last")])
    assert begun == ["first", "last"]

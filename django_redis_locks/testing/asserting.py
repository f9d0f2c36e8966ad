"""Assertions about held locks, for synchronous and asynchronous tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from .. import inspection
from ..core.registry import registry
from ..handler import DEFAULT, locks
from .other_thread import off_loop

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..core.grant import Grant

FLUSH: Final = 2.0
"""Seconds to wait for releases in the background."""


def assert_locked(key: str, using: str = DEFAULT) -> None:
    """Assert that a lock is held, by any process.

    Args:
        key: the filled key.
        using: the alias.

    Raises:
        AssertionError: it is free.
    """
    info = off_loop(lambda: inspection.find(key, using))
    if info.state not in {"held", "overdue"}:
        held = off_loop(lambda: inspection.held(using, limit=10)).rows
        others = ", ".join(repr(row.key) for row in held) or "nothing"
        raise AssertionError(f"{key!r} of the alias {using!r} isn't held; held is {others}.")


def assert_not_locked(key: str, using: str = DEFAULT) -> None:
    """Assert that a lock is free.

    Args:
        key: the filled key.
        using: the alias.

    Raises:
        AssertionError: it is held.
    """
    info = off_loop(lambda: inspection.find(key, using))
    if info.state in {"held", "overdue"}:
        raise AssertionError(f"{info.holder} holds {key!r} of the alias {using!r}, since {info.held_for:.1f} s.")


def assert_no_locks_held() -> None:
    """Assert that this process holds no lock, in any thread or task. Waits for releases in the background, as after a
    rollback or an interrupted block.

    Raises:
        AssertionError: it holds one.
    """
    assert_none(held_here())


def assert_none(grants: Iterable[Grant]) -> None:
    """Assert that there are no grants.

    Raises:
        AssertionError: there are some; the message has their keys.
    """
    left = sorted({f"{grant.key!r} of the alias {grant.alias!r}" for grant in grants})
    if left:
        raise AssertionError(f"Locks are left held: {', '.join(left)}.")


def wait_until_idle() -> None:
    """Wait until the background threads of all aliases have finished their current work."""
    for alias in locks:
        locks[alias].engine.wait_until_idle(FLUSH)


def held_here() -> list[Grant]:
    """The grants of this process that were neither released nor lost."""
    wait_until_idle()
    return [grant for grant in registry.grants() if grant.held]

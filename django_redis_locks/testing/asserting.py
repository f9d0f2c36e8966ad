"""Who holds what, as assertions. They work in tests and in coroutines alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from .. import inspection
from ..core.registry import registry
from ..handler import DEFAULT, locks
from .other_thread import asked

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..core.grant import Grant

FLUSH: Final = 2.0
"""Seconds that releases which are still on their way are waited for."""


def assert_locked(key: str, using: str = DEFAULT) -> None:
    """Somebody holds this lock.

    Raises:
        AssertionError: nobody does.
    """
    info = asked(lambda: inspection.find(key, using))
    if info.state not in {"held", "overdue"}:
        held = asked(lambda: inspection.held(using, limit=10)).rows
        others = ", ".join(repr(row.key) for row in held) or "nothing"
        raise AssertionError(f"Nobody holds {key!r} of the alias {using!r}; held is {others}.")


def assert_not_locked(key: str, using: str = DEFAULT) -> None:
    """Nobody holds this lock.

    Raises:
        AssertionError: somebody does.
    """
    info = asked(lambda: inspection.find(key, using))
    if info.state in {"held", "overdue"}:
        raise AssertionError(f"{info.holder} holds {key!r} of the alias {using!r}, since {info.held_for:.1f} s.")


def assert_no_locks_held() -> None:
    """Nobody in this process holds a lock: none was forgotten, in whatever thread or task. What a rolled back transaction,
    or a block that was interrupted, frees in the background is waited for.

    Raises:
        AssertionError: somebody does.
    """
    assert_none(held_here())


def assert_none(grants: Iterable[Grant]) -> None:
    """There are no such grants.

    Raises:
        AssertionError: there are.
    """
    left = sorted({f"{grant.key!r} of the alias {grant.alias!r}" for grant in grants})
    if left:
        raise AssertionError(f"Locks are left held: {', '.join(left)}.")


def settle() -> None:
    """Wait until the threads of all aliases have done what they were given so far."""
    for alias in locks:
        locks[alias].engine.settle(FLUSH)


def held_here() -> list[Grant]:
    """The grants of this process that were neither released nor lost."""
    settle()
    return [grant for grant in registry.grants() if grant.held]

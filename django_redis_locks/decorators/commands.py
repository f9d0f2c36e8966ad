"""The errors of a management command that can't get its lock: ``CommandError`` prints one line and sets the exit
code."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError

from ..core.errors import LockBackendError, LockNotAcquired
from . import callables

BUSY = 75
"""The exit code ``EX_TEMPFAIL`` of sysexits.h: try again later."""

UNAVAILABLE = 69
"""The exit code ``EX_UNAVAILABLE`` of sysexits.h."""


class _LockCommandError(CommandError):
    def __init__(self, failure: LockNotAcquired | LockBackendError, returncode: int) -> None:
        super().__init__(str(failure), returncode=returncode)
        self.__dict__.update(failure.__dict__)

    def __str__(self) -> str:
        return Exception.__str__(self)


class Locked(_LockCommandError, LockNotAcquired):
    """``LockNotAcquired`` that ends a command with exit code 75."""


class LocksUnavailable(_LockCommandError, LockBackendError):
    """``LockBackendError`` that ends a command with exit code 69."""


def is_command_body(target: Any, args: tuple[Any, ...]) -> bool:
    """Whether the call is the body of a management command: ``handle()``, ``handle_label()`` or the like."""
    owner = callables.bound_to(target) or (args[0] if args else None)
    return isinstance(owner, BaseCommand) and getattr(callables.function_of(target), "__name__", "").startswith(
        "handle"
    )


def command_error(failure: LockNotAcquired | LockBackendError) -> Locked | LocksUnavailable:
    """Return the error of a management command for a lock that it didn't get."""
    if isinstance(failure, LockNotAcquired):
        return Locked(failure, BUSY)
    return LocksUnavailable(failure, UNAVAILABLE)

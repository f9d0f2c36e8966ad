"""Exceptions of loads, besides those of their loaders: ``LoadError`` ← ``LoadFailed``, ``LoadTimeout``."""

from __future__ import annotations

import copy
from types import FunctionType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType


def for_another_caller(error: BaseException, traceback: TracebackType | None) -> BaseException:
    """Return a copy of an exception for another caller: one object raised by many callers would collect all their
    tracebacks."""
    kind = type(error)
    try:
        if isinstance(kind.__init__, FunctionType):  # it may change its arguments
            again = kind.__new__(kind, *error.args)
            again.args = error.args
            vars(again).update(vars(error))
        else:
            again = copy.copy(error)
    except Exception:  # noqa: BLE001 - whatever the exception's class raises
        again = error
    again.__cause__, again.__context__ = error.__cause__, error.__context__
    again.__suppress_context__ = error.__suppress_context__
    return again.with_traceback(traceback)


class LoadError(Exception):
    """No value can be returned. ``key``: the key of the value, as the caller passed it."""

    def __init__(self, message: str, key: str = "") -> None:
        super().__init__(message)
        self.key = key

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (*self.args, self.key)


class LoadFailed(LoadError):
    """The loader of another caller failed a moment ago, so this caller didn't load; or a loader called
    ``LoadContext.fail``."""


class LoadTimeout(LoadError):
    """Another caller is still loading the value after the time that this one waits."""

"""Exceptions of loads: ``LoadError`` and its subclasses ``LoadFailed`` and ``LoadTimeout``.

A loader's own exceptions are raised as they are.
"""

from __future__ import annotations

import copy
from types import FunctionType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType


def for_another_caller(error: BaseException, traceback: TracebackType | None) -> BaseException:
    """Return a copy of an exception for another caller: one object that is raised by many callers would collect the
    tracebacks of all of them."""
    kind = type(error)
    try:
        if isinstance(kind.__init__, FunctionType):  # not called: its parameters may differ from ``args``
            duplicate = kind.__new__(kind, *error.args)
            duplicate.args = error.args
            vars(duplicate).update(vars(error))
        else:
            duplicate = copy.copy(error)
    except Exception:  # noqa: BLE001 - whatever the exception's class raises
        duplicate = error
    duplicate.__cause__, duplicate.__context__ = error.__cause__, error.__context__
    duplicate.__suppress_context__ = error.__suppress_context__
    return duplicate.with_traceback(traceback)


class LoadError(Exception):
    """No value can be returned. ``key``: the key of the value, as the caller passed it."""

    def __init__(self, message: str, key: str = "") -> None:
        super().__init__(message)
        self.key = key

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (*self.args, self.key)


class LoadFailed(LoadError):
    """The loader failed for another caller a moment ago, and wasn't called again; or it called ``LoadContext.fail``."""


class LoadTimeout(LoadError):
    """The value is still being loaded after ``wait`` seconds by another caller, or after ``load_timeout`` seconds, and
    there is no ``default``."""

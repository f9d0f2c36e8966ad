"""What a load may raise besides what its loader raised. ``LoadError`` ← ``LoadFailed``, ``LoadTimeout``."""

from __future__ import annotations

import copy
from types import FunctionType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType


def for_another_caller(error: BaseException, traceback: TracebackType | None) -> BaseException:
    """The same exception as an object of its own: one that is raised by many callers gathers the tracebacks of all."""
    kind = type(error)
    try:
        if isinstance(kind.__init__, FunctionType):  # it may change what it is given
            again = kind.__new__(kind, *error.args)
            again.args = error.args
            vars(again).update(vars(error))
        else:
            again = copy.copy(error)
    except Exception:  # noqa: BLE001 - whatever a class of the loader's does
        again = error
    again.__cause__, again.__context__ = error.__cause__, error.__context__
    again.__suppress_context__ = error.__suppress_context__
    return again.with_traceback(traceback)


class LoadError(Exception):
    """There is no value. ``key`` is the cache's."""

    def __init__(self, message: str, key: str = "") -> None:
        super().__init__(message)
        self.key = key

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (*self.args, self.key)


class LoadFailed(LoadError):
    """The loader of another process failed a moment ago, so it wasn't asked again. The message says how."""


class LoadTimeout(LoadError):
    """Another caller still loads the value, and this one doesn't wait any longer."""

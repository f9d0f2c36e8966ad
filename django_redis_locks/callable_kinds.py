"""Classifies the objects that a decorator is applied to: functions, and kinds of objects that can't be decorated."""

from __future__ import annotations

import functools
import inspect
from typing import Any, Literal, TypeAlias

from asgiref.sync import iscoroutinefunction
from django.utils.functional import cached_property

Kind: TypeAlias = Literal[
    "class", "classmethod", "staticmethod", "property", "partialmethod", "task", "value", "generator"
]
"""The kinds of objects that ``@redis_lock`` and ``@cached`` don't accept. Each has its own error message."""


def refused_kind(target: Any) -> Kind | None:
    """Return the kind of a target that can't be decorated; None for a plain callable. "task" is a task of Celery or
    ``django.tasks``."""
    for types, kind in _KINDS:
        if isinstance(target, types):
            return kind
    if hasattr(target, "apply_async") or hasattr(target, "enqueue"):
        return "task"
    if not callable(target):
        return "value"
    code = _called_function(target)
    return "generator" if inspect.isgeneratorfunction(code) or inspect.isasyncgenfunction(code) else None


_KINDS: tuple[tuple[Any, Kind], ...] = (
    (type, "class"),
    (classmethod, "classmethod"),
    (staticmethod, "staticmethod"),
    (functools.partialmethod, "partialmethod"),
    (property | functools.cached_property | cached_property, "property"),
)


def name_of(target: Any) -> str:
    """Return the qualified name of a target, or of its class."""
    return str(getattr(target, "__qualname__", None) or type(target).__qualname__)


def is_async(target: Any) -> bool:
    """Return whether a target, or the ``__call__`` of an object, is a coroutine function."""
    return iscoroutinefunction(target) or iscoroutinefunction(_called_function(target))


def without_partial(target: Any) -> Any:
    """Return the callable inside any ``functools.partial``."""
    while isinstance(target, functools.partial):
        target = target.func
    return target


def function_of(target: Any) -> Any:
    """Return the function of a partial or a bound method."""
    target = without_partial(target)
    return getattr(target, "__func__", target)


def _called_function(target: Any) -> Any:
    """Return the function that a call runs."""
    found = function_of(target)
    return found if inspect.isroutine(found) else function_of(getattr(type(found), "__call__", None))  # noqa: B004 - reads the method, to classify it

"""What an object is that a decorator is applied to: a function, or something that a decorator can't wrap."""

from __future__ import annotations

import functools
import inspect
from typing import Any, Literal, TypeAlias

from asgiref.sync import iscoroutinefunction
from django.utils.functional import cached_property

Kind: TypeAlias = Literal[
    "class", "classmethod", "staticmethod", "property", "partialmethod", "task", "value", "generator"
]
"""A kind of object that ``@redis_lock`` and ``@cached`` refuse, each with a message of its own."""


def refused_kind(target: Any) -> Kind | None:
    """The kind of a target that is no plain callable, or None. A task is one of Celery or of ``django.tasks``."""
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
    """The qualified name of a target, or of its class."""
    return str(getattr(target, "__qualname__", None) or type(target).__qualname__)


def is_async(target: Any) -> bool:
    """Whether a call returns an awaitable, as far as the code shows. Of an object its ``__call__`` counts."""
    return iscoroutinefunction(target) or iscoroutinefunction(_called_function(target))


def without_partial(target: Any) -> Any:
    """The callable inside any ``functools.partial``."""
    while isinstance(target, functools.partial):
        target = target.func
    return target


def function_of(target: Any) -> Any:
    """The function of a partial or a bound method."""
    target = without_partial(target)
    return getattr(target, "__func__", target)


def _called_function(target: Any) -> Any:
    """The function that a call runs."""
    found = function_of(target)
    return found if inspect.isroutine(found) else function_of(getattr(type(found), "__call__", None))  # noqa: B004 - not asked whether

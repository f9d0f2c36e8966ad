"""Inspects the target of ``@redis_lock``: whether it can be decorated, its label, its class-based view."""

from __future__ import annotations

from typing import Any

from asgiref.sync import iscoroutinefunction
from django.views import View

from ..callable_kinds import Kind, function_of, is_async, name_of, refused_kind, without_partial

__all__ = [
    "bound_to",
    "function_of",
    "is_async",
    "iscoroutinefunction",
    "label",
    "may_run_async",
    "refuse",
    "runs_async",
    "view_of",
]

_REFUSALS: dict[Kind, str] = {
    "class": "can't decorate the class {name}: put it on a method, or for a view write "
    '@method_decorator(redis_lock(...), name="dispatch")',
    "classmethod": "goes below @classmethod: write @classmethod first, then @redis_lock, then the function",
    "staticmethod": "goes below @staticmethod: write @staticmethod first, then @redis_lock, then the function",
    "partialmethod": "can't decorate a partialmethod: decorate the method that it is made of",
    "property": "can't decorate a property: decorate a method that it calls",
    "task": "goes below the task decorator of {name}: above it, the lock would hold while the task is queued, not while "
    "it runs, and the task would become a plain function",
    "value": "decorates functions, not {target!r}; a key is given as key=...",
    "generator": "can't decorate the generator {name}: the lock would be free before the first item; "
    "use `with locks.lock(...)` inside it",
}


def refuse(target: Any) -> None:
    """Raise for a target that a lock around each call can't protect.

    Raises:
        TypeError: the message says what to write instead.
    """
    kind = refused_kind(target)
    if kind is not None:
        raise TypeError("@redis_lock " + _REFUSALS[kind].format(name=name_of(target), target=target))


def label(target: Any) -> str:
    """``module.qualname``, the default key and name of a lock. The result of ``as_view()`` has the name of its
    class."""
    found = function_of(target)
    found = getattr(found, "view_class", found)
    return f"{found.__module__}.{getattr(found, '__qualname__', type(found).__qualname__)}"


def bound_to(target: Any) -> Any:
    """The object that the target is a bound method of, as with ``method_decorator``, or None."""
    owner = getattr(without_partial(target), "__self__", None)
    return None if isinstance(owner, type) else owner


def view_of(target: Any, args: tuple[Any, ...]) -> View | None:
    """The class-based view whose handler this call is, or None. ``get``, ``post``, ``dispatch`` and the like are
    handlers, other methods of a view aren't."""
    owner = bound_to(target)
    if owner is None and args:
        owner = args[0]
    if not isinstance(owner, View):
        return None
    name = getattr(function_of(target), "__name__", "")
    handles = name in _DISPATCHERS or name in owner.http_method_names or name == getattr(owner, "action", None)
    return owner if handles else None


def runs_async(target: Any, args: tuple[Any, ...]) -> bool:
    """Whether a function without ``async`` returns a coroutine: ``dispatch`` of a view with async handlers does."""
    view = view_of(target, args)
    return view is not None and bool(type(view).view_is_async)


def may_run_async(target: Any) -> bool:
    """Whether calls of the target may be awaited. True, too, for the dummy function of ``method_decorator``."""
    found = function_of(target)
    return (
        is_async(target)
        or getattr(found, "__name__", "") in _DISPATCHERS
        or getattr(found, "__qualname__", "") == "_update_method_wrapper.<locals>.dummy"
    )


_DISPATCHERS = ("dispatch", "options", "http_method_not_allowed")
"""The methods of ``View`` that handle any verb. They return a coroutine if the view's handlers are async."""

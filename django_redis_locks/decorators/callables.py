"""What can be decorated, and what it is."""

from __future__ import annotations

import functools
import inspect
from typing import Any

from asgiref.sync import iscoroutinefunction
from django.utils.functional import cached_property
from django.views import View

__all__ = [
    "bound_to",
    "is_async",
    "iscoroutinefunction",
    "label",
    "may_run_async",
    "plain",
    "refuse",
    "runs_async",
    "view_of",
]


def refuse(target: Any) -> None:
    """Refuse what a lock around the call can't protect.

    Raises:
        TypeError: with what to write instead.
    """
    name = getattr(target, "__qualname__", None) or type(target).__name__
    if isinstance(target, type):
        raise TypeError(
            f"@redis_lock can't decorate the class {name}: put it on a method, or for a view write "
            '@method_decorator(redis_lock(...), name="dispatch")'
        )
    if isinstance(target, classmethod | staticmethod):
        kind = type(target).__name__
        raise TypeError(f"@redis_lock goes below @{kind}: write @{kind} first, then @redis_lock, then the function")
    if isinstance(target, functools.partialmethod):
        raise TypeError("@redis_lock can't decorate a partialmethod: decorate the method that it is made of")
    if isinstance(target, property | functools.cached_property | cached_property):
        raise TypeError("@redis_lock can't decorate a property: decorate a method that it calls")
    if hasattr(target, "apply_async") or hasattr(target, "enqueue"):
        raise TypeError(
            f"@redis_lock goes below the task decorator of {name}: above it, the lock would hold while the task is "
            "queued, not while it runs, and the task would become a plain function"
        )
    if not callable(target):
        raise TypeError(f"@redis_lock decorates functions, not {target!r}; a key is given as key=...")
    code = _code(target)
    if inspect.isgeneratorfunction(code) or inspect.isasyncgenfunction(code):
        raise TypeError(
            f"@redis_lock can't decorate the generator {name}: the lock would be free before the first item; "
            "use `with locks.lock(...)` inside it"
        )


def is_async(target: Any) -> bool:
    """Whether a call of it is to be awaited, as far as can be seen. Of an object its ``__call__`` counts."""
    return iscoroutinefunction(target) or iscoroutinefunction(_code(target))


def label(target: Any) -> str:
    """``module.qualname``: the key and the name of a lock that was given none. What ``as_view()`` returns has the name
    of its class."""
    found = plain(target)
    found = getattr(found, "view_class", found)
    return f"{found.__module__}.{getattr(found, '__qualname__', type(found).__qualname__)}"


def bound_to(target: Any) -> Any:
    """The object whose method the target is already, as ``method_decorator`` hands it over, or None."""
    owner = getattr(_unpartial(target), "__self__", None)
    return None if isinstance(owner, type) else owner


def view_of(target: Any, args: tuple[Any, ...]) -> View | None:
    """The class-based view whose handler is called, or None: a helper among its methods is no handler."""
    owner = bound_to(target)
    if owner is None and args:
        owner = args[0]
    if not isinstance(owner, View):
        return None
    name = getattr(plain(target), "__name__", "")
    handles = name in _DISPATCHERS or name in owner.http_method_names or name == getattr(owner, "action", None)
    return owner if handles else None


def runs_async(target: Any, args: tuple[Any, ...]) -> bool:
    """Whether a plain function returns a coroutine all the same: ``dispatch`` of a class-based view with async handlers
    does."""
    view = view_of(target, args)
    return view is not None and bool(type(view).view_is_async)


def may_run_async(target: Any) -> bool:
    """Whether an awaited key is of use. ``method_decorator`` also tries its decorators on a dummy function."""
    found = plain(target)
    return (
        is_async(target)
        or getattr(found, "__name__", "") in _DISPATCHERS
        or getattr(found, "__qualname__", "") == "_update_method_wrapper.<locals>.dummy"
    )


_DISPATCHERS = ("dispatch", "options", "http_method_not_allowed")
"""The methods of ``View`` that answer whatever the verb, with a coroutine if the view's handlers are async."""


def _unpartial(target: Any) -> Any:
    while isinstance(target, functools.partial):
        target = target.func
    return target


def plain(target: Any) -> Any:
    """The function of a partial or a method."""
    target = _unpartial(target)
    return getattr(target, "__func__", target)


def _code(target: Any) -> Any:
    """The function that a call runs."""
    found = plain(target)
    return found if inspect.isroutine(found) else plain(getattr(type(found), "__call__", None))  # noqa: B004 - not asked whether

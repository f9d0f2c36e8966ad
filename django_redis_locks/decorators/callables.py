"""What can be decorated, and what it is."""

from __future__ import annotations

import functools
import inspect
from typing import Any

from asgiref.sync import iscoroutinefunction
from django.views import View

__all__ = ["bound_names", "iscoroutinefunction", "label", "refuse", "runs_async"]


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
    if isinstance(target, property):
        raise TypeError("@redis_lock can't decorate a property: decorate a method that it calls")
    if hasattr(target, "apply_async") or hasattr(target, "enqueue"):
        raise TypeError(
            f"@redis_lock goes below the task decorator of {name}: above it, the lock would hold while the task is "
            "queued, not while it runs, and the task would become a plain function"
        )
    if not callable(target):
        raise TypeError(f"@redis_lock decorates functions, not {target!r}; a key is given as key=...")
    if inspect.isgeneratorfunction(_plain(target)) or inspect.isasyncgenfunction(_plain(target)):
        raise TypeError(
            f"@redis_lock can't decorate the generator {name}: the lock would be free before the first item; "
            "use `with locks.lock(...)` inside it"
        )


def label(target: Any) -> str:
    """``module.qualname``: the key and the name of a lock that was given none."""
    plain = _plain(target)
    return f"{plain.__module__}.{getattr(plain, '__qualname__', type(plain).__name__)}"


def bound_names(target: Any) -> dict[str, Any]:
    """``self``, where the target is a method that is bound already, as ``method_decorator`` hands it over."""
    owner = getattr(_unpartial(target), "__self__", None)
    return {} if owner is None or isinstance(owner, type) else {"self": owner}


def runs_async(target: Any, args: tuple[Any, ...]) -> bool:
    """Whether a plain function returns a coroutine all the same: ``dispatch`` of a class-based view with async handlers
    does."""
    owner = bound_names(target).get("self") or (args[0] if args else None)
    return isinstance(owner, View) and bool(type(owner).view_is_async)


def _unpartial(target: Any) -> Any:
    while isinstance(target, functools.partial):
        target = target.func
    return target


def _plain(target: Any) -> Any:
    target = _unpartial(target)
    return getattr(target, "__func__", target)

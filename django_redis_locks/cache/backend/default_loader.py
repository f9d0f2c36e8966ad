"""The argument ``default`` of ``get_or_set`` as a loader."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from asgiref.sync import iscoroutinefunction


def default_loader(default: Any, *, asynchronous: bool) -> Callable[..., Any]:
    """Return the argument ``default`` of ``get_or_set`` as a loader.

    Raises:
        TypeError: it is a coroutine, or asynchronous in a synchronous call.
    """
    if inspect.isawaitable(default):
        if inspect.iscoroutine(default):
            default.close()
        raise TypeError("a cache can't store a coroutine: pass the function to aget_or_set(), without calling it")
    if not callable(default):

        async def value() -> Any:
            return default

        return value if asynchronous else lambda: default
    if not asynchronous and (iscoroutinefunction(default) or iscoroutinefunction(getattr(default, "__call__", None))):  # noqa: B004
        raise TypeError(f"{getattr(default, '__qualname__', default)} is asynchronous: await aget_or_set() instead")
    return default  # type: ignore[no-any-return]

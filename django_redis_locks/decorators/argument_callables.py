"""Evaluates ``key=`` and ``condition=`` of ``@redis_lock``, callables that get the arguments of each call."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeAlias

from django.core.exceptions import SynchronousOnlyOperation

ArgumentCallable: TypeAlias = Callable[[tuple[Any, ...], dict[str, Any]], object]


def argument_callable(function: Callable[..., Any], what: str, name: str) -> ArgumentCallable:
    """Wrap a callable, so that its exceptions get a note that names the decorator.

    Args:
        function: the callable, which takes the arguments of the decorated call.
        what: its role, "key callable" or "condition".
        name: the name of the lock.
    """

    def evaluate(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            error.add_note(f"@redis_lock gave the arguments of a call to the {what} of {name}, which raised this")
            raise

    return evaluate


def evaluate(function: ArgumentCallable, what: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the result of a callable for the arguments of a call.

    Raises:
        TypeError: it is asynchronous.
    """
    result = function(args, kwargs)
    if inspect.isawaitable(result):
        close_unawaited(result)
        raise not_async(what)
    return result


async def aevaluate(function: ArgumentCallable, request: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the result of a callable, awaited if it is awaitable. If the callable evaluates the lazy ``request.user``,
    which isn't allowed in a coroutine, the user is loaded and the callable called again."""
    try:
        result = function(args, kwargs)
    except SynchronousOnlyOperation:
        if not hasattr(request, "auser"):
            raise
        request.user = await request.auser()  # the lazy one reads session and database synchronously
        result = function(args, kwargs)
    return await result if inspect.isawaitable(result) else result


def not_async(what: str) -> TypeError:
    """The error for an asynchronous callable of a synchronous function."""
    return TypeError(f"an async {what} needs an async function")


def close_unawaited(awaitable: Any) -> None:
    """Close a coroutine that isn't going to be awaited, so that Python doesn't warn about it."""
    if inspect.iscoroutine(awaitable):
        awaitable.close()

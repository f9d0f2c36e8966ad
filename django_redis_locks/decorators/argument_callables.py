"""The callables of ``@redis_lock`` that get the arguments of a call: those of ``key=`` and ``condition=``."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeAlias

from django.core.exceptions import SynchronousOnlyOperation

ArgumentCallable: TypeAlias = Callable[[tuple[Any, ...], dict[str, Any]], object]


def argument_callable(function: Callable[..., Any], what: str, name: str) -> ArgumentCallable:
    """Wrap a callable of the call site. Its exceptions get a note that names the decorator.

    Args:
        function: takes the arguments of the call.
        what: "key callable" or "condition".
        name: the name of the lock.
    """

    def evaluate(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            error.add_note(f"@redis_lock gave the arguments of a call to the {what} of {name}, which raised this")
            raise

    return evaluate


def evaluate(make: ArgumentCallable, what: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a callable for the arguments of a call.

    Raises:
        TypeError: it is asynchronous.
    """
    answer = make(args, kwargs)
    if inspect.isawaitable(answer):
        close_unawaited(answer)
        raise not_async(what)
    return answer


async def aevaluate(make: ArgumentCallable, request: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a callable in a coroutine, and await its result if that is awaitable. If it used the lazy ``request.user``,
    that is loaded and the callable called again."""
    try:
        answer = make(args, kwargs)
    except SynchronousOnlyOperation:
        if not hasattr(request, "auser"):
            raise
        request.user = await request.auser()  # the lazy one reads session and database synchronously
        answer = make(args, kwargs)
    return await answer if inspect.isawaitable(answer) else answer


def not_async(what: str) -> TypeError:
    """The error for an asynchronous callable of a synchronous function."""
    return TypeError(f"an async {what} needs an async function")


def close_unawaited(awaitable: Any) -> None:
    """Close a coroutine, so that Python doesn't warn that it was never awaited."""
    if inspect.iscoroutine(awaitable):
        awaitable.close()

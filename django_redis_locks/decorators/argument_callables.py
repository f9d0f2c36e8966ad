"""What is asked of the arguments of a call: its key, and whether it needs the lock. In coroutines the answer may be awaited."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeAlias

from django.core.exceptions import SynchronousOnlyOperation

ArgumentCallable: TypeAlias = Callable[[tuple[Any, ...], dict[str, Any]], object]


def argument_callable(function: Callable[..., Any], what: str, name: str) -> ArgumentCallable:
    """A callable of the call site. What it raises is the caller's to see, with a note of where it comes from."""

    def evaluate(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            error.add_note(f"@redis_lock gave the arguments of a call to the {what} of {name}, which raised this")
            raise

    return evaluate


def evaluate(make: ArgumentCallable, what: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    answer = make(args, kwargs)
    if inspect.isawaitable(answer):
        close_unawaited(answer)
        raise not_async(what)
    return answer


async def aevaluate(make: ArgumentCallable, request: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    try:
        answer = make(args, kwargs)
    except SynchronousOnlyOperation:
        if not hasattr(request, "auser"):
            raise
        request.user = await request.auser()  # the lazy one asks session and database, synchronously
        answer = make(args, kwargs)
    return await answer if inspect.isawaitable(answer) else answer


def not_async(what: str) -> TypeError:
    return TypeError(f"an async {what} needs an async function")


def close_unawaited(awaitable: Any) -> None:
    if inspect.iscoroutine(awaitable):
        awaitable.close()

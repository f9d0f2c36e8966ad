"""Calls loaders, in threads and tasks; ``LoadContext``, the argument that a loader may take."""

from __future__ import annotations

import asyncio
import inspect
from concurrent import futures
from contextvars import ContextVar
from inspect import CO_COROUTINE
from types import FunctionType
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

from asgiref.sync import AsyncToSync, SyncToAsync, iscoroutinefunction, sync_to_async
from django.core.cache.backends.base import DEFAULT_TIMEOUT

from ...core.owners import running_loop
from ..errors import LoadFailed
from ..options import seconds_or_ever
from ..results import MISSING

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Awaitable, Callable

    from ...core.keys import LockId
    from .singleflight import InflightLoad

LoadStack: TypeAlias = "tuple[tuple[LockId, InflightLoad | None], ...]"
"""Nested loads: the lock of each, and its entry in the single-flight table, if any."""

active_loads: ContextVar[LoadStack] = ContextVar("django_redis_locks.cache.active_loads", default=())
"""The loads inside which this thread or task runs, outermost first."""


def current_load() -> LoadContext | None:
    """Return the ``LoadContext`` of the load that runs this code: of the innermost one, if it is inside another one.

    For functions with ``@cached``, and code that they call.

    Returns:
        The context. None outside of loads, and in a loader of many keys, which have one each.

    Example::

        @cached("weather:{city}", ttl=60)
        def weather(city):
            reply = fetch(city)
            if load := current_load():
                load.ttl = reply.max_age
            return reply.body
    """
    loads = active_loads.get()
    inflight = loads[-1][1] if loads else None
    context: LoadContext | None = None if inflight is None else inflight.context
    return context


def stacks_of_keys(number: int) -> list[LoadStack]:
    """Return the loads inside which each key is loaded by a loader that carries out this number of loads."""
    loads = active_loads.get()
    carried_out = [load for load in loads if load[1] is not None][-number:]
    return [(*loads, load) for load in carried_out]


caller_loop: ContextVar[AbstractEventLoop | None] = ContextVar("django_redis_locks.cache.caller_loop", default=None)
"""The event loop of the task for which this thread loads in the background."""


class LoadContext:
    """The argument of a loader that takes one: describes the load, and lets the loader control how its value is stored.

    Attributes:
        key: the key of the value in the cache, as the caller passed it.
        stale_value: the value to be replaced, or ``MISSING``.
        ttl: set it to override the option ``ttl`` for this value, in seconds or as a ``timedelta``; None: forever.
            Raises ``ValueError`` for anything else.

    Example::

        def load(context):
            reply = fetch(context.key)
            context.ttl = reply.max_age
            return reply.body


        get_or_load("weather", load, ttl=60)
    """

    def __init__(self, key: str, stale_value: Any) -> None:
        self.key = key
        self.stale_value = stale_value
        self.may_store = True
        self._ttl: Any = MISSING

    @property
    def ttl(self) -> Any:
        """The ``ttl`` of this value if the loader has set one, else ``MISSING``."""
        return self._ttl

    @ttl.setter
    def ttl(self, value: Any) -> None:
        ttl = seconds_or_ever(value, "ttl")
        self._ttl = MISSING if ttl is DEFAULT_TIMEOUT else ttl

    def skip_store(self) -> None:
        """Return the value to its callers, and don't store it."""
        self.may_store = False

    def fail(self, why: str) -> NoReturn:
        """Abort the load without a value. Callers are served the stale value, if there is one.

        Args:
            why: the message of the error.

        Raises:
            LoadFailed: always.
        """
        raise LoadFailed(why, self.key)


def may_run_sync_code_of(loop: object) -> bool:
    """Whether ``sync_to_async`` calls of tasks of this loop may have to run in this thread. They can't while the thread
    waits."""
    return (
        loop is not None
        and running_loop() is None
        and getattr(SyncToAsync.threadlocal, "main_event_loop", None) is loop
    )


def has_waiting_thread() -> bool:
    """Whether a thread waits for this task with ``async_to_sync``: that thread runs its ``sync_to_async`` calls."""
    return running_loop() is not None and getattr(AsyncToSync.executors, "current", None) is not None


def check_sync(loader: Any) -> None:
    """Check a loader of a synchronous call.

    Raises:
        TypeError: it can't be called, or only from asynchronous code.
    """
    if type(loader) is FunctionType and not loader.__code__.co_flags & CO_COROUTINE and not loader.__dict__:
        return  # the usual case: the checks below cost a microsecond
    if not callable(loader):
        raise TypeError(f"the loader is a callable without arguments, not {loader!r}")
    if iscoroutinefunction(loader):
        raise TypeError(f"{_name(loader)} is asynchronous: await aget_or_load(), arefresh() or aget_or_load_many()")


def check_async(loader: Any) -> None:
    """Check a loader of an asynchronous call.

    Raises:
        TypeError: it can't be called.
    """
    if not callable(loader):
        raise TypeError(f"the loader is a callable without arguments, not {loader!r}")


def call_loader(loader: Callable[..., Any], arguments: tuple[Any, ...], within: LoadStack) -> Any:
    """Call a loader in this thread. ``within``: the loads that it carries out."""
    outer = active_loads.get()
    try:
        active_loads.set((*outer, *within))  # not before: a signal handler may raise right after it
        value = loader(*arguments)
        if inspect.isawaitable(value) and (loop := caller_loop.get()) is not None:
            return _awaited(value, loop)
    finally:
        active_loads.set(outer)
    if inspect.isawaitable(value):
        if inspect.iscoroutine(value):
            value.close()
        raise TypeError(
            f"{_name(loader)} returned an awaitable: await aget_or_load(), arefresh() or aget_or_load_many()"
        )
    return value


def _awaited(value: Awaitable[Any], loop: AbstractEventLoop) -> Any:
    """Await a value in the loop that its coroutine belongs to, while this thread waits."""

    async def wait() -> Any:
        return await value

    coroutine = wait()
    try:
        future = asyncio.run_coroutine_threadsafe(coroutine, loop)
    except RuntimeError:
        coroutine.close()
        raise
    while not futures.wait([future], timeout=1.0).done:
        if loop.is_closed():
            raise RuntimeError("the event loop of the caller ended before the load did")
    return future.result()


async def acall_loader(loader: Callable[..., Any], arguments: tuple[Any, ...], within: LoadStack) -> Any:
    """Call a loader from a task: a synchronous one runs in the thread of Django's synchronous code."""
    outer = active_loads.get()
    try:
        active_loads.set((*outer, *within))
        if iscoroutinefunction(loader):
            return await loader(*arguments)
        value = await sync_to_async(loader, thread_sensitive=True)(*arguments)
        return await value if inspect.isawaitable(value) else value
    finally:
        active_loads.set(outer)


def arguments_for(loader: Callable[..., Any], context: LoadContext) -> tuple[Any, ...]:
    """Return the arguments of a call of the loader: the context, if it takes one."""
    if type(loader) is FunctionType and not loader.__code__.co_argcount and not loader.__dict__:
        return ()  # the usual case: its signature needn't be made
    return (context,) if _takes_context(loader) else ()


def _takes_context(loader: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(loader).parameters.values()
    except (TypeError, ValueError):  # a class or function written in C
        return False
    return any(
        parameter.default is parameter.empty
        and parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
        for parameter in parameters
    )


def _name(loader: Any) -> str:
    return str(getattr(loader, "__qualname__", loader))

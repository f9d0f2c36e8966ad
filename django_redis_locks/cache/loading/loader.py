"""Running a loader, and what it may say of its value."""

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
"""Loads and their flights."""

active_loads: ContextVar[LoadStack] = ContextVar("django_redis_locks.cache.loading.run", default=())
"""The loads within which this thread or task runs, and their flights."""


caller_loop: ContextVar[AbstractEventLoop | None] = ContextVar("django_redis_locks.cache.home", default=None)
"""The loop of the task for which a thread loads in the background."""


class LoadContext:
    """What a loader that takes an argument is given.

    Attributes:
        key: of the cache.
        stale_value: the value that is to be replaced, or ``MISSING``.
        ttl: set it to keep this one value for another time than the others; None: for ever. A ``ValueError`` if it is none.
    """

    def __init__(self, key: str, stale_value: Any) -> None:
        self.key = key
        self.stale_value = stale_value
        self.stores = True
        self._ttl: Any = MISSING

    @property
    def ttl(self) -> Any:
        return self._ttl

    @ttl.setter
    def ttl(self, value: Any) -> None:
        ttl = seconds_or_ever(value, "ttl")
        self._ttl = MISSING if ttl is DEFAULT_TIMEOUT else ttl

    def skip_store(self) -> None:
        """Return the value to its callers, and don't store it."""
        self.stores = False

    def fail(self, why: str) -> NoReturn:
        """There is no value now; a stale one is served, if there is one.

        Raises:
            LoadFailed: always.
        """
        raise LoadFailed(why, self.key)


def may_run_sync_code_of(loop: object) -> bool:
    """Whether synchronous code that tasks of this loop call may run in this thread: while it waits, they can't."""
    return (
        loop is not None
        and running_loop() is None
        and getattr(SyncToAsync.threadlocal, "main_event_loop", None) is loop
    )


def has_waiting_thread() -> bool:
    """Whether we are a task that a thread waits for with ``async_to_sync``: our synchronous code runs in that one."""
    return running_loop() is not None and getattr(AsyncToSync.executors, "current", None) is not None


def check_sync(loader: Any) -> None:
    """Raises:
    TypeError: it isn't to be called without a loop, or not at all.
    """
    if type(loader) is FunctionType and not loader.__code__.co_flags & CO_COROUTINE and not loader.__dict__:
        return  # as most are; what says otherwise takes a microsecond
    if not callable(loader):
        raise TypeError(f"the loader is a callable without arguments, not {loader!r}")
    if iscoroutinefunction(loader):
        raise TypeError(f"{_name(loader)} is asynchronous: await aget_or_load(), or another a-twin, for it")


def check_async(loader: Any) -> None:
    """Raises:
    TypeError: it can't be called.
    """
    if not callable(loader):
        raise TypeError(f"the loader is a callable without arguments, not {loader!r}")


def call_loader(loader: Callable[..., Any], arguments: tuple[Any, ...], within: LoadStack) -> Any:
    """Call a loader in this thread."""
    token = active_loads.set((*active_loads.get(), *within))
    try:
        value = loader(*arguments)
        if inspect.isawaitable(value) and (loop := caller_loop.get()) is not None:
            return _awaited(value, loop)
    finally:
        active_loads.reset(token)
    if inspect.isawaitable(value):
        if inspect.iscoroutine(value):
            value.close()
        raise TypeError(f"{_name(loader)} returned an awaitable: await aget_or_load(), or another a-twin, for it")
    return value


def _awaited(value: Awaitable[Any], loop: AbstractEventLoop) -> Any:
    """Await it in a loop, while this thread waits: what it uses belongs to that loop."""

    async def wait() -> Any:
        return await value

    waiting = wait()
    try:
        future = asyncio.run_coroutine_threadsafe(waiting, loop)
    except RuntimeError:
        waiting.close()
        raise
    while not futures.wait([future], timeout=1.0).done:
        if loop.is_closed():
            raise RuntimeError("the event loop of the caller ended before the load did")
    return future.result()


async def acall_loader(loader: Callable[..., Any], arguments: tuple[Any, ...], within: LoadStack) -> Any:
    """Call a loader from a task: one that isn't asynchronous in the thread where Django's synchronous code runs."""
    token = active_loads.set((*active_loads.get(), *within))
    try:
        if iscoroutinefunction(loader):
            return await loader(*arguments)
        value = await sync_to_async(loader, thread_sensitive=True)(*arguments)
        return await value if inspect.isawaitable(value) else value
    finally:
        active_loads.reset(token)


def takes_context(loader: Callable[..., Any]) -> bool:
    """Whether it must be given an argument."""
    try:
        parameters = inspect.signature(loader).parameters.values()
    except (TypeError, ValueError):  # a class or function of C
        return False
    return any(
        parameter.default is parameter.empty
        and parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
        for parameter in parameters
    )


def _name(loader: Any) -> str:
    return str(getattr(loader, "__qualname__", loader))

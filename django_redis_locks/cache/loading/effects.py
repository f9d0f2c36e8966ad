"""The effects that load programs yield, and ``LoadPerformer``, which performs them: cache access, loader calls, and
waits for another load of this process."""

from __future__ import annotations

import asyncio
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from django.core.cache import caches

from ...core.commands import Effect, Program
from ...core.effects import SendCommands
from ...core.owners import running_loop
from ...core.runner import arun, run
from ...core.wait_events import TaskEvent
from ..results import MISSING
from . import background
from . import loader as loaders

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...core.tuning import Tuning
    from ...engine.engine import Engine
    from .singleflight import InflightLoad, LoadOutcome, SingleFlight


@dataclass(slots=True)
class Fetch(Effect[Any]):
    """Read a value from the cache; ``MISSING`` if there is none.

    In this effect and those below, ``key`` is the caller's key, and ``stored_key`` the key as the cache stores it.
    """

    local: ClassVar[bool] = False

    key: str
    version: int | None
    stored_key: str


@dataclass(slots=True)
class FetchMany(Effect[dict[str, Any]]):
    """Read the values of many keys from the cache. ``keys``: maps each key to the key as the cache stores it."""

    local: ClassVar[bool] = False

    keys: dict[str, str]
    version: int | None


@dataclass(slots=True)
class Store(Effect[None]):
    """Store a value in the cache for some seconds; None: forever."""

    local: ClassVar[bool] = False

    key: str
    version: int | None
    stored_key: str
    value: Any
    seconds: float | None


@dataclass(slots=True)
class Add(Effect[bool]):
    """Store a value in the cache for some seconds, unless its key has one."""

    local: ClassVar[bool] = False

    key: str
    version: int | None
    stored_key: str
    value: Any
    seconds: float | None


@dataclass(slots=True)
class Delete(Effect[None]):
    """Delete a value from the cache."""

    local: ClassVar[bool] = False

    key: str
    version: int | None
    stored_key: str


@dataclass(slots=True)
class CallLoader(Effect[Any]):
    """Call a loader. ``loads``: the loads that the call carries out."""

    local: ClassVar[bool] = False

    loader: Callable[..., Any]
    arguments: tuple[Any, ...]
    loads: loaders.LoadStack


@dataclass(slots=True)
class Run(Effect[Any]):
    """Run a function: ``sync_call`` in a thread, ``async_call`` in a task."""

    local: ClassVar[bool] = False

    sync_call: Callable[[], Any]
    async_call: Callable[[], Any]


@dataclass(slots=True)
class Lead(Effect[None]):
    """Run the program of a load that this caller leads: a thread runs it itself; a task starts another task for it,
    which continues if the caller is cancelled."""

    local: ClassVar[bool] = False

    program: Program[None]
    on_unstarted: Callable[[], object]
    """Ends the load for its followers, unless the program has begun. Called when the task ends, as it may be cancelled
    before it begins, because its loop stops."""


@dataclass(slots=True)
class LeadInBackground(Effect[None]):
    """Run the program of a load in the background: in a thread of a pool, or in a task if the loader is asynchronous.
    ``at_once``: a caller waits for it."""

    local: ClassVar[bool] = False

    program: Program[None]
    on_unstarted: Callable[[], object]
    in_task: bool
    at_once: bool = False


@dataclass(slots=True)
class Follow(Effect["LoadOutcome | None"]):
    """Wait for a load of this process; the result is its outcome, or None if it takes longer than ``until``.

    Attributes:
        or_claimed: a thread also stops waiting when the load is claimed.
        is_leader: the caller leads the load, and waits for it even after its followers have stopped waiting.
    """

    local: ClassVar[bool] = False

    single_flight: SingleFlight
    inflight: InflightLoad
    until: float
    or_claimed: bool = False
    is_leader: bool = False


class _CacheAccess:
    """Reads and writes the cache of an alias, always under the key that the cache made for the caller.

    A multi-tenant key function may read the tenant from the current thread: at COMMIT or in a background thread it
    would make another key, or raise.
    """

    def __init__(self, alias: str, make_key: Callable[[str, int | None], str] | None) -> None:
        self._alias = alias
        self._make_key = make_key

    def _makes_same_key(self, key: str, version: int | None, stored_key: str) -> bool:
        """Whether the cache makes the same stored key in this thread as it did for the caller."""
        if self._make_key is None:
            return True
        try:
            return self._make_key(key, version) == stored_key
        except Exception:  # noqa: BLE001 - whatever a key function raises without a tenant
            return False

    def _cache(self, effect: Fetch | Store | Add | Delete) -> AbstractContextManager[Any]:
        if self._make_key is None or self._makes_same_key(effect.key, effect.version, effect.stored_key):
            return nullcontext(caches[self._alias])
        # Only then: a cache that delegates to another one needs the key as the caller passed it
        cache = caches.create_connection(self._alias)
        vars(cache).update(dict.fromkeys(("key_func", "make_key"), lambda *_, **__: effect.stored_key))
        return closing(cache)

    def fetch(self, effect: Fetch) -> Any:
        with self._cache(effect) as cache:
            return cache.get(effect.key, MISSING, version=effect.version)

    async def afetch(self, effect: Fetch) -> Any:
        with self._cache(effect) as cache:
            return await cache.aget(effect.key, MISSING, version=effect.version)

    def fetch_many(self, effect: FetchMany) -> dict[str, Any]:
        version, keys = effect.version, effect.keys
        if all(self._makes_same_key(key, version, stored_key) for key, stored_key in keys.items()):
            return caches[self._alias].get_many(list(keys), version=version)
        found = {key: self.fetch(Fetch(key, version, stored_key)) for key, stored_key in keys.items()}
        return {key: value for key, value in found.items() if value is not MISSING}

    async def afetch_many(self, effect: FetchMany) -> dict[str, Any]:
        version, keys = effect.version, effect.keys
        if all(self._makes_same_key(key, version, stored_key) for key, stored_key in keys.items()):
            return await caches[self._alias].aget_many(list(keys), version=version)
        found = {key: await self.afetch(Fetch(key, version, stored_key)) for key, stored_key in keys.items()}
        return {key: value for key, value in found.items() if value is not MISSING}

    def store(self, effect: Store) -> None:
        with self._cache(effect) as cache:
            cache.set(effect.key, effect.value, effect.seconds, version=effect.version)

    async def astore(self, effect: Store) -> None:
        with self._cache(effect) as cache:
            await cache.aset(effect.key, effect.value, effect.seconds, version=effect.version)

    def add(self, effect: Add) -> bool:
        with self._cache(effect) as cache:
            return bool(cache.add(effect.key, effect.value, effect.seconds, version=effect.version))

    async def aadd(self, effect: Add) -> bool:
        with self._cache(effect) as cache:
            return bool(await cache.aadd(effect.key, effect.value, effect.seconds, version=effect.version))

    def delete(self, effect: Delete) -> None:
        with self._cache(effect) as cache:
            cache.delete(effect.key, version=effect.version)

    async def adelete(self, effect: Delete) -> None:
        with self._cache(effect) as cache:
            await cache.adelete(effect.key, version=effect.version)


class LoadPerformer:
    """Performs the effects of loads: those of the engine, and those of the cache of an alias. ``make_key`` makes the
    keys under which that cache stores values; None if they are the same in each thread."""

    def __init__(self, engine: Engine, alias: str, make_key: Callable[[str, int | None], str] | None) -> None:
        self.engine = engine
        values = _CacheAccess(alias, make_key)
        self.handlers: dict[type[Effect[Any]], Callable[[Any], Any]] = {
            **engine.handlers,
            Fetch: values.fetch,
            FetchMany: values.fetch_many,
            SendCommands: engine.handlers[SendCommands],
            Store: values.store,
            Add: values.add,
            Delete: values.delete,
            CallLoader: lambda effect: loaders.call_loader(effect.loader, effect.arguments, effect.loads),
            Run: lambda effect: effect.sync_call(),
            Lead: lambda effect: run(effect.program, self),
            LeadInBackground: lambda effect: background.in_thread(
                lambda: run(effect.program, self), at_once=effect.at_once
            ),
            Follow: self._follow,
        }
        self.ahandlers: dict[type[Effect[Any]], Callable[[Any], Any]] = {
            **engine.ahandlers,
            Fetch: values.afetch,
            FetchMany: values.afetch_many,
            SendCommands: engine.ahandlers[SendCommands],
            Store: values.astore,
            Add: values.aadd,
            Delete: values.adelete,
            CallLoader: lambda effect: loaders.acall_loader(effect.loader, effect.arguments, effect.loads),
            Run: lambda effect: effect.async_call(),
            Lead: self._alead,
            LeadInBackground: self._alead_in_background,
            Follow: self._afollow,
        }

    @property
    def tuning(self) -> Tuning:
        """The tunables of the engine."""
        return self.engine.tuning

    def _follow(self, effect: Follow) -> LoadOutcome | None:
        if not effect.inflight.is_done():
            self.engine.may_block()
            return effect.single_flight.follow(
                effect.inflight, effect.until, or_claimed=effect.or_claimed, is_leader=effect.is_leader
            )
        return effect.inflight.outcome

    async def _afollow(self, effect: Follow) -> LoadOutcome | None:
        loop = running_loop()
        assert loop is not None  # noqa: S101 - a coroutine runs in a loop
        event = TaskEvent(loop, self.engine.call_at)
        return await effect.single_flight.afollow(effect.inflight, effect.until, event, is_leader=effect.is_leader)

    async def _alead(self, effect: Lead) -> None:
        self._in_task(effect)
        await asyncio.sleep(0)

    async def _alead_in_background(self, effect: LeadInBackground) -> None:
        token = loaders.caller_loop.set(running_loop())
        try:
            if not effect.in_task and background.in_thread(lambda: run(effect.program, self), at_once=effect.at_once):
                return
        finally:
            loaders.caller_loop.reset(token)
        self._in_task(effect)

    def _in_task(self, effect: Lead | LeadInBackground) -> None:
        background.in_task(arun(effect.program, self)).add_done_callback(lambda _: effect.on_unstarted())

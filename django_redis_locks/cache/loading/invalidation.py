"""Invalidates values and guards writes to a cache: a load that runs at the same time doesn't store its value."""

from __future__ import annotations

from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

from ...core import clock, forks
from ...core.effects import Cleanup
from ...core.errors import LockBackendError
from ...core.runner import arun, run
from ...core.tokens import mint_token
from ...primitives.shared.load_commands import block_command, clear_command, unblock_command
from ...primitives.shared.retry import RetryLimits, retry_commands
from . import transactions
from .effects import Delete

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator, Sequence

    from ...core.commands import Command, Program
    from ...primitives.load import LoadLease
    from .coordinator import CacheCoordinator


@contextmanager
def write_guard(coordinator: CacheCoordinator, keys: Iterable[str]) -> Iterator[WriteBlock]:
    """Guard a write of these keys, given as the cache stores them: running loads are voided, and none begins before the
    ``with`` block ends. If the store is down, the write is done without the guard."""
    block = WriteBlock(coordinator, keys)
    run(block.begin(), coordinator.performer)
    try:
        yield block
    finally:
        run(block.end(), coordinator.performer)


@asynccontextmanager
async def awrite_guard(coordinator: CacheCoordinator, keys: Iterable[str]) -> AsyncIterator[WriteBlock]:
    """``write_guard`` for coroutines."""
    block = WriteBlock(coordinator, keys)
    await arun(block.begin(), coordinator.performer)
    try:
        yield block
    finally:
        await arun(block.end(), coordinator.performer)


@contextmanager
def clear_guard(coordinator: CacheCoordinator) -> Iterator[None]:
    """Guard a clear, or a write of unknown keys: all running loads of the cache are voided before and after it."""
    run(_void_all(coordinator), coordinator.performer)
    try:
        yield
    finally:
        run(_void_all(coordinator), coordinator.performer)


@asynccontextmanager
async def aclear_guard(coordinator: CacheCoordinator) -> AsyncIterator[None]:
    """``clear_guard`` for coroutines."""
    await arun(_void_all(coordinator), coordinator.performer)
    try:
        yield
    finally:
        await arun(_void_all(coordinator), coordinator.performer)


def write_value(coordinator: CacheCoordinator, key: str, ttl_ms: int, data: Any) -> Program[bool]:
    """Write a value and void running loads of its key in one request, on a server that keeps both values and leases.

    Args:
        key: the key as the cache stores it.
        ttl_ms: milliseconds for which the value is kept; -1: forever, 0: delete it.
        data: the serialized value.

    Returns:
        False if the request failed: the caller then writes in another way.
    """
    load, since = coordinator.load(key, ""), clock.now()
    coordinator.forget(key)
    transactions.forget(load.lock_id)
    try:
        yield from load.writing(ttl_ms, data)
    except LockBackendError as failure:
        if failure.transient:
            coordinator.record_failure(failure)
        return False
    coordinator.forget(key)  # a load that began since may have read before the write
    coordinator.retries.replaced(key, since)
    return True


class WriteBlock:
    """Blocks the loads of some keys while their values are written, from ``begin`` to ``end``."""

    def __init__(self, coordinator: CacheCoordinator, keys: Iterable[str]) -> None:
        self._coordinator = coordinator
        self._keys = list(dict.fromkeys(keys))
        self._loads = [coordinator.load(key, "") for key in self._keys]
        self._token = ""
        self._begun = False
        self._since = clock.now()

    def wrote(self) -> None:
        """Record that the values of all keys were replaced: earlier invalidations of them that failed needn't be
        repeated."""
        for key in self._keys if self._begun else ():
            self._coordinator.retries.replaced(key, self._since)

    def begin(self) -> Program[None]:
        """Void the running loads of the keys, and keep new ones out until ``end``."""
        self._forget()
        for load in self._loads:
            transactions.forget(load.lock_id)
        if self._loads:  # also if the store couldn't be reached a moment ago: it may be reachable again
            forks.pid()
            self._token = mint_token()
            try:
                lease = round(1000 * self._coordinator.performer.tuning.writer_lease)
                self._begun = yield from self._send(
                    [block_command(loads, self._token, lease) for loads in self._by_bucket()]
                )
            except BaseException as failure:
                if not isinstance(failure, GeneratorExit):
                    yield from self._cleaning_up()
                raise

    def end(self) -> Program[None]:
        """Let the keys be loaded again."""
        self._forget()
        if self._token and not self._begun:
            yield from self._cleaning_up()  # in the background: the caller has already waited for a store that is down
        elif self._token:
            ended = False
            try:
                ended = yield from self._send([unblock_command(loads, self._token) for loads in self._by_bucket()])
            except GeneratorExit:
                ended = True
                raise
            finally:
                if not ended:
                    yield from self._cleaning_up()

    def _cleaning_up(self) -> Program[None]:
        """Unblock the loads in the background."""
        for loads in self._by_bucket():
            unblock: Command[Any] = unblock_command(loads, self._token)
            yield Cleanup(loads[0].lock_id, unblock, self._coordinator.performer.tuning.writer_lease)

    def _by_bucket(self) -> list[list[LoadLease]]:
        """Return the loads that one command may concern: each bucket has a generation counter."""
        found: dict[str, list[LoadLease]] = {}
        for load in self._loads:
            found.setdefault(load.keys.generation, []).append(load)
        return list(found.values())

    def _forget(self) -> None:
        for key in self._keys:
            self._coordinator.forget(key)

    def _send(self, commands: Sequence[Command[bool]]) -> Program[bool]:
        """Send commands. Returns False if the store couldn't be reached, or refused."""
        try:
            yield from retry_commands(commands, clock.now())
        except LockBackendError as failure:
            self._coordinator.record_failure(failure)
            return False
        return True


def _void_all(coordinator: CacheCoordinator) -> Program[None]:
    """Void all running loads of a cache: none of them stores its value."""
    coordinator.single_flight.forget_all()
    coordinator.backoff_until.clear()
    transactions.forget_all(coordinator)
    clear = [clear_command(generation) for generation in coordinator.generations()]
    try:
        yield from retry_commands(clear, clock.now())
    except LockBackendError as failure:
        coordinator.record_failure(failure)


def invalidate_all(
    coordinator: CacheCoordinator, items: Sequence[tuple[str, str, int | None]], stale_ms: int = 0, lag_ms: int = 0
) -> Program[Exception | None]:
    """Invalidate values.

    Args:
        items: for each value its key as the cache stores it, its key as the caller passed it, and its version.
        stale_ms: milliseconds for which the old values may still be served as stale.
        lag_ms: the replica lag in milliseconds: values that are loaded within that time are kept no longer than that.

    Returns:
        None if all succeeded, otherwise the failure of the store or the cache: old values or running loads may remain.
        Failed and interrupted invalidations are repeated in the background. Of several failures, the first one that the
        store didn't cause is returned, such as a time limit of the caller.
    """
    seconds = coordinator.performer.tuning.invalidation_timeout
    retry_limits = RetryLimits(seconds, seconds)
    first: Exception | None = None
    remaining = dict.fromkeys(items)
    try:
        for item in list(remaining):
            failure = yield from _invalidate_one(coordinator, item, stale_ms, lag_ms, retry_limits)
            if failure is None:
                del remaining[item]
                continue
            retry_limits = RetryLimits(seconds, 0.0)  # wait only once for a store that refuses
            if first is None or (isinstance(first, LockBackendError) and not isinstance(failure, LockBackendError)):
                first = failure
    except BaseException as interruption:
        if remaining:
            coordinator.retries.add(list(remaining), interruption, stale_ms, lag_ms)
        raise
    if first is not None:
        coordinator.retries.add(list(remaining), first, stale_ms, lag_ms)
    return first


def _invalidate_one(
    coordinator: CacheCoordinator,
    item: tuple[str, str, int | None],
    stale_ms: int,
    lag_ms: int,
    retry_limits: RetryLimits,
) -> Program[Exception | None]:
    key, user_key, version = item
    load, earlier = coordinator.load(key, ""), coordinator.retries.pending.get(key)
    failed: Exception | None = None
    coordinator.forget(key)
    transactions.forget(load.lock_id)
    try:
        yield from load.invalidating(stale_ms, lag_ms, retry_limits)
    except LockBackendError as failure:
        coordinator.record_failure(failure)
        failed = failure
    if not coordinator.same_server:
        try:
            yield Delete(user_key, version, key)
        except Exception as failure:  # noqa: BLE001 - whatever a cache raises
            failed = failure
    coordinator.forget(key)  # a load that began since may have read before the invalidation
    if failed is None and earlier is not None and stale_ms == 0 and earlier.lag_until <= clock.now() + lag_ms / 1000:
        coordinator.retries.done(earlier)
    return failed

"""What else is done to a cache than to load into it: a load that runs meanwhile isn't stored."""

from __future__ import annotations

from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

from ...core import clock, forks
from ...core.effects import Cleanup
from ...core.errors import LockBackendError
from ...core.runner import arun, run
from ...core.tokens import mint_token
from ...primitives.shared.load_commands import block_command, clear_command, unblock_command
from ...primitives.shared.retry import RetryLimits, retry_command
from . import transactions as commits
from .effects import Delete

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator, Sequence

    from ...core.commands import Command, Program
    from .coordinator import CacheCoordinator


@contextmanager
def write_guard(coordinator: CacheCoordinator, keys: Iterable[str]) -> Iterator[WriteBlock]:
    """Write what the cache stores under these keys: loads that run are void, and none begins before the block ends. A
    store that is down prevents no write."""
    claims = WriteBlock(coordinator, keys)
    run(claims.begin(), coordinator.performer)
    try:
        yield claims
    finally:
        run(claims.end(), coordinator.performer)


@asynccontextmanager
async def awrite_guard(coordinator: CacheCoordinator, keys: Iterable[str]) -> AsyncIterator[WriteBlock]:
    """As ``write_guard``."""
    claims = WriteBlock(coordinator, keys)
    await arun(claims.begin(), coordinator.performer)
    try:
        yield claims
    finally:
        await arun(claims.end(), coordinator.performer)


@contextmanager
def clear_guard(coordinator: CacheCoordinator) -> Iterator[None]:
    """Write, or clear, nobody knows which keys: all loads that run are void."""
    run(_void_all(coordinator), coordinator.performer)
    try:
        yield
    finally:
        run(_void_all(coordinator), coordinator.performer)


@asynccontextmanager
async def aclear_guard(coordinator: CacheCoordinator) -> AsyncIterator[None]:
    """As ``clear_guard``."""
    await arun(_void_all(coordinator), coordinator.performer)
    try:
        yield
    finally:
        await arun(_void_all(coordinator), coordinator.performer)


def write_value(coordinator: CacheCoordinator, key: str, keep: int, data: Any) -> Program[bool]:
    """Write a value where leases are, in one step, for so many milliseconds (-1: for ever, 0: delete it). False if that
    can't be done there now."""
    load, since = coordinator.load(key, ""), clock.now()
    coordinator.forget(key)
    commits.forget(load.lock_id)
    try:
        yield from load.writing(keep, data)
    except LockBackendError as failure:
        if failure.transient:
            coordinator.failed(failure)
        return False
    coordinator.forget(key)  # who joined meanwhile may have looked before
    coordinator.retries.replaced(key, since)
    return True


class WriteBlock:
    """The claim of one who writes."""

    def __init__(self, coordinator: CacheCoordinator, keys: Iterable[str]) -> None:
        self._coordinator = coordinator
        self._keys = list(dict.fromkeys(keys))
        self._loads = [coordinator.load(key, "") for key in self._keys]
        self._token = ""
        self._begun = False
        self._since = clock.now()

    def wrote(self) -> None:
        """All values were replaced, and don't depend on those before them."""
        for key in self._keys if self._begun else ():
            self._coordinator.retries.replaced(key, self._since)

    def begin(self) -> Program[None]:
        self._forget()
        for load in self._loads:
            commits.forget(load.lock_id)
        if self._loads:  # also if the store didn't answer a moment ago: this write may reach what that one didn't
            forks.pid()
            self._token = mint_token()
            try:
                self._begun = yield from self._ask(
                    block_command(
                        self._loads, self._token, round(1000 * self._coordinator.performer.tuning.writer_lease)
                    )
                )
            except BaseException as failure:
                if not isinstance(failure, GeneratorExit):
                    yield self._cleanup()
                raise

    def end(self) -> Program[None]:
        self._forget()
        if self._token and not self._begun:
            yield self._cleanup()  # in the background: a store that was silent a moment ago isn't waited for once more
        elif self._token:
            ended = False
            try:
                ended = yield from self._ask(unblock_command(self._loads, self._token))
            except GeneratorExit:
                ended = True
                raise
            finally:
                if not ended:
                    yield self._cleanup()

    def _cleanup(self) -> Cleanup:
        """What gives the loads back in the background."""
        delete: Command[Any] = unblock_command(self._loads, self._token)
        return Cleanup(self._loads[0].lock_id, delete, self._coordinator.performer.tuning.writer_lease)

    def _forget(self) -> None:
        for key in self._keys:
            self._coordinator.forget(key)

    def _ask(self, command: Command[bool]) -> Program[bool]:
        """False if there was no answer."""
        try:
            yield from retry_command(command, clock.now())
        except LockBackendError as failure:
            self._coordinator.failed(failure)
            return False
        return True


def _void_all(coordinator: CacheCoordinator) -> Program[None]:
    coordinator.single_flight.forget_all()
    coordinator.backoff_until.clear()
    commits.forget_all(coordinator)
    for generation in coordinator.generations():
        try:
            yield from retry_command(clear_command(generation), clock.now())
        except LockBackendError as failure:
            coordinator.failed(failure)
            return


def invalidate_all(
    coordinator: CacheCoordinator, items: Sequence[tuple[str, str, int | None]], keep: int = 0, settle: int = 0
) -> Program[Exception | None]:
    """Invalidate values, each named as the cache stores it, as its user does, and by its version.

    Returns:
        Why the store, or the cache, didn't do so, so that old values, or loads that run, may stay: what failed, or was
        interrupted, is repeated in the background. Of several failures the first that isn't the store's, which may be a time
        limit of the caller.
    """
    seconds = coordinator.performer.tuning.invalidation_timeout
    retry_limits = RetryLimits(seconds, seconds)
    first: Exception | None = None
    undone = dict.fromkeys(items)
    try:
        for item in list(undone):
            failure = yield from _invalidate_one(coordinator, item, keep, settle, retry_limits)
            if failure is None:
                del undone[item]
                continue
            retry_limits = RetryLimits(seconds, 0.0)  # one wait for all
            if first is None or (isinstance(first, LockBackendError) and not isinstance(failure, LockBackendError)):
                first = failure
    except BaseException as interruption:
        if undone:
            coordinator.retries.add(list(undone), interruption, keep, settle)
        raise
    if first is not None:
        coordinator.retries.add(list(undone), first, keep, settle)
    return first


def _invalidate_one(
    coordinator: CacheCoordinator, item: tuple[str, str, int | None], keep: int, settle: int, retry_limits: RetryLimits
) -> Program[Exception | None]:
    key, user_key, version = item
    load, earlier = coordinator.load(key, ""), coordinator.retries.pending.get(key)
    failed: Exception | None = None
    coordinator.forget(key)
    commits.forget(load.lock_id)
    try:
        yield from load.invalidating(keep, settle, retry_limits)
    except LockBackendError as failure:
        coordinator.failed(failure)
        failed = failure
    if not coordinator.same_server:
        try:
            yield Delete(user_key, version, key)
        except Exception as failure:  # noqa: BLE001 - whatever a cache raises
            failed = failure
    coordinator.forget(key)  # callers that joined meanwhile may have asked before
    if failed is None and earlier is not None and keep == 0 and earlier.settle_until <= clock.now() + settle / 1000:
        coordinator.retries.done(earlier)
    return failed

"""Deferred release: a lock stays held after its call or block, until the open transactions end or the response is
closed."""

from __future__ import annotations

import threading
import weakref
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from django.core.signals import request_finished

from . import open_transactions, transaction_hooks
from .core import events
from .core.errors import LockBackendError, LockError, LockLost
from .core.grant import Grant
from .core.hold import State, mint_id
from .core.owners import running_loop
from .core.registry import registry
from .engine.on_lost import call_on_lost
from .transaction_hooks import NO_SAVEPOINTS, TransactionHook

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from django.http import HttpRequest

    from .engine.engine import Engine
    from .primitives.shared.base_lock import BaseLock

_RESPONSE = ""
"""The key of the response in ``DeferredGrant._until``, whose other keys are aliases of databases."""

_ROLLBACK_TIMEOUT = 1.0
"""Seconds that a call waits until the maintenance thread has freed the lock after a rollback in the same thread."""


def deferred_grant_of(lock: BaseLock) -> DeferredGrant | None:
    """Return the grant with which an earlier call or block of this thread holds the lock until an open transaction
    ends, or None. The thread may re-enter it."""
    grant = registry.newest(lock.lock_id, deferred=True) if lock.lock_id in registry.known else None
    return grant if isinstance(grant, DeferredGrant) and grant.hold.live else None


def defer_release(
    grant: Grant, connections: list[Any], response: Any = None, request: HttpRequest | None = None
) -> None:
    """Keep the lock of a grant until these transactions, and the response, have ended. Called before the release of the
    grant.

    Args:
        grant: the grant of the call or block that ends.
        connections: database connections with an open transaction.
        response: the response for whose ``close()`` the lock is kept, too.
        request: the request of the response.
    """
    if not grant.held or _is_deferred(grant, connections, response):
        return
    deferred = DeferredGrant(grant)
    try:
        deferred.enter(grant, connections, response, request)
    except BaseException as failure:  # raised by a signal handler
        registry.forget(deferred)
        grant.hold.remove_grant(deferred.id)
        grant.lock.clean_up_release(grant, failure)
        raise


def _is_deferred(grant: Grant, connections: list[Any], response: Any) -> bool:
    """Return whether nothing needs to be deferred: no transaction is open, or an earlier call or block has deferred the
    release already."""
    if response is not None:
        return False
    grants = registry.of_hold(grant.hold) if connections else ()
    return not connections or any(isinstance(other, DeferredGrant) and other.covers(connections) for other in grants)


class DeferredGrant(Grant):
    """A grant that holds a lock after its call or block. ``current_grant`` doesn't return it, but its thread may
    re-enter the lock.

    The lease is renewed as before; a fixed lease must last until COMMIT. After a rollback, a traceback may keep the
    dropped hook alive: the lock is then freed at the end of the request, or by ``MAX_HOLD``."""

    __slots__ = ("_dropped", "_until")

    deferred = True

    def __init__(self, grant: Grant) -> None:
        super().__init__(grant.hold, grant.lock, mint_id())
        self._until: dict[str, int] = {}
        """The aliases whose transactions are still open, each with the index of its hook in ``run_on_commit``."""
        self._dropped: set[str] = set()
        """The aliases whose transactions were rolled back. The maintenance thread removes them soon after."""

    @property
    def released(self) -> bool:
        """Always True, because the caller has released the lock."""
        return True

    def enter(self, grant: Grant, connections: list[Any], response: Any, request: HttpRequest | None) -> None:
        """Join the hold of a grant until the transactions and the response have ended."""
        hold = self.hold
        if not hold.renew_until:
            # Start the maintenance thread, because a finalizer can't. Without it, the end of the lease frees the lock
            # after a rollback
            with suppress(LockBackendError):
                self._submit(lambda: None)
        if not hold.add_grant(self.id, grant.id):
            return
        for connection in connections:
            hook = self._hook(connection.alias)
            self._until[connection.alias] = transaction_hooks.add(connection, hook, NO_SAVEPOINTS)
        if response is not None:
            self._until[_RESPONSE] = 0
            hook = self._hook(_RESPONSE)
            response._resource_closers.append(hook)
            if request is not None:
                _call_at_close(request, hook)
        if hold.grant() is grant:
            hold.grant = weakref.ref(self)  # on_lost is called with this grant
        if connections:
            registry.register(self)
            _here.grants.add(self)

    def _hook(self, alias: str) -> TransactionHook:
        ended, dropped = partial(self.ended, alias), partial(self.dropped, alias)
        return TransactionHook(self, ended, "the release of a lock", dropped)

    def waits_for_transaction(self) -> bool:
        """Return whether it keeps the lock for an open transaction of the calling thread."""
        if self not in _here.grants:
            return False  # another thread has released the lock
        self.release_if_ended()
        if self._until.keys() - {_RESPONSE}:
            return True
        if self.hold.state is State.RELEASING and running_loop() is None:  # the maintenance thread is freeing the lock
            _engine(self.lock).wait_until_idle(_ROLLBACK_TIMEOUT)
        return False

    def covers(self, connections: list[Any]) -> bool:
        """Return whether each of these transactions has the hook of this grant."""
        return all(
            transaction_hooks.is_added(connection, self, self._until.get(connection.alias, -1))
            for connection in connections
        )

    def ended(self, alias: str) -> None:
        """Handle a COMMIT, or the closing of the response."""
        self._end(alias, self._free)

    def dropped(self, alias: str) -> None:
        """Handle a rollback, or a response that was dropped without being closed. Called by a finalizer, at any moment
        in any thread."""
        if not self.hold.inherited_by_fork:
            self._dropped.add(alias)
            self._submit(lambda: self._end(alias, self._abandon))

    def thread_ended(self) -> None:
        """Handle the end of the thread, after which its transactions can't commit. Called by a finalizer."""
        for alias in self._until.keys() - {_RESPONSE}:
            self.dropped(alias)

    def release_if_ended(self) -> None:
        """End the hold for all transactions that aren't open in this thread any more, even if their hooks weren't
        called."""
        still_open = {connection.alias for connection in open_transactions.open_now()} - self._dropped
        for alias in self._until.keys() - still_open - {_RESPONSE}:
            self.ended(alias)
        # The maintenance thread may not have freed the lock yet, or an exception may have interrupted it
        if not self._until and self.id in self.hold.open_grants:
            self._free()

    def _end(self, alias: str, free: Callable[[], None]) -> None:
        self._until.pop(alias, None)
        if not self._until:
            free()  # may be repeated
        elif self._until.keys() == {_RESPONSE}:
            registry.forget(self)  # so that the thread can't re-enter the lock

    def _free(self) -> None:
        if running_loop() is not None:  # an asynchronous server may close its responses in an event loop
            self._submit(self._abandon)
            return
        try:
            self.release()
        except LockError as failure:
            if isinstance(failure, LockLost) and not self.hold.inherited_by_fork:  # no caller could catch the exception
                call_on_lost(self.hold, _engine(self.lock).submit_notice_first)
            report(self, failure)

    def _abandon(self) -> None:
        """Release from the maintenance thread."""
        self.lock.release_in_background(self)

    def _submit(self, job: Callable[[], object]) -> None:
        _engine(self.lock).call_at(0.0, job)


def _call_at_close(request: HttpRequest, hook: TransactionHook) -> None:
    """Call the hook when the request is closed, too. The view's response may never be closed, for example if it can't
    be rendered, or if middleware replaces it. It keeps the hook alive."""
    previous_close = vars(request).get("close")  # that of another lock
    request_ref, hook_ref = weakref.ref(request), weakref.ref(hook)  # weak, to avoid a reference cycle

    def close() -> None:
        request, hook = request_ref(), hook_ref()
        try:
            if previous_close is not None:
                previous_close()
            elif request is not None:
                type(request).close(request)
        finally:
            if hook is not None:
                hook()

    request.close = close  # type: ignore[method-assign]


class _ThreadLiveness:
    """An object that only its thread references, so that its finalizer runs when the thread ends."""


def _end_of_thread(grants: Iterable[DeferredGrant]) -> None:
    for grant in list(grants):
        grant.thread_ended()


class _ThreadLocal(threading.local):
    """The deferred grants of this thread."""

    def __init__(self) -> None:
        self.grants: weakref.WeakSet[DeferredGrant] = weakref.WeakSet()
        self._life = _ThreadLiveness()
        weakref.finalize(self._life, _end_of_thread, self.grants).atexit = False


_here = _ThreadLocal()


def release_leftovers(**_: object) -> None:
    """Free the deferred locks of this thread whose transactions have ended. Called at the end of a request or task."""
    for grant in list(_here.grants):
        grant.release_if_ended()


request_finished.connect(release_leftovers, dispatch_uid="django_redis_locks")


def report(grant: Grant, failure: LockError) -> None:
    """Report a failed release without an exception in the caller. If the store is down, emit an event: the release is
    repeated in the background. A lost lock has been reported already. Other errors are raised."""
    if isinstance(failure, LockBackendError):
        events.emit(events.BackendFailed(grant.key, grant.name, grant.alias, "release", str(failure)))
    elif not isinstance(failure, LockLost):
        raise failure


def _engine(lock: Any) -> Engine:
    """Return the engine of a lock."""
    return cast("Engine", lock.performer)

"""Locks that stay held after their call or block, until the open transactions end or the response is closed."""

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
    from .primitives.lock import Lock

_RESPONSE = ""
"""The key of the response among the aliases of databases."""

_PATIENCE = 1.0
"""Seconds that a call waits for the maintenance thread to free the lock that a rollback of the same thread left."""


def deferred_grant_of(lock: Lock) -> DeferredGrant | None:
    """The grant that an earlier call or block of this thread left for a transaction that is still open, or None. It may
    be entered again."""
    left = registry.newest(lock.lock_id, deferred=True) if registry.knows(lock.lock_id) else None
    return left if isinstance(left, DeferredGrant) and left.hold.live else None


def defer_release(
    grant: Grant, connections: list[Any], response: Any = None, request: HttpRequest | None = None
) -> None:
    """Called before a grant is released: keep its lock until these transactions, and the response, have ended.

    Args:
        grant: the grant of the call or block that ends.
        connections: database connections with an open transaction.
        response: its ``close()`` ends the hold, too.
        request: the request that is answered.
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
    """Whether nothing needs to be deferred: no transaction is open, or an earlier call or block deferred it already."""
    if response is not None:
        return False
    earlier = registry.of_hold(grant.hold) if connections else ()
    return not connections or any(isinstance(left, DeferredGrant) and left.covers(connections) for left in earlier)


class DeferredGrant(Grant):
    """A grant that holds a lock after its call or block. It isn't the current grant, but its thread may enter the lock
    again.

    A renewed lease is still renewed; a fixed one must last until COMMIT. A dropped hook that a traceback keeps alive
    isn't noticed at once: the lock is then freed at the end of the request, or by ``MAX_HOLD``."""

    __slots__ = ("_dropped", "_until")

    deferred = True

    def __init__(self, grant: Grant) -> None:
        super().__init__(grant.hold, grant.lock, mint_id())
        self._until: dict[str, int] = {}
        """The aliases whose transactions are still open, each with the index at which its hook was added to
        ``run_on_commit``."""
        self._dropped: set[str] = set()
        """The aliases whose transaction was rolled back. The maintenance thread removes them a moment later."""

    @property
    def released(self) -> bool:
        """True: the caller has released it."""
        return True

    def enter(self, grant: Grant, connections: list[Any], response: Any, request: HttpRequest | None) -> None:
        """Enter the hold of a grant, and stay in it until the transactions and the response have ended."""
        hold = self.hold
        if not hold.renew_until:
            with suppress(LockBackendError):  # without the thread, a lock is freed after a rollback when its lease ends
                self._submit(lambda: None)  # start the maintenance thread: a finalizer can't
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
            hold.grant = weakref.ref(self)  # the grant that on_lost is called with
        if connections:
            registry.keep(self)
            _here.left.add(self)

    def _hook(self, alias: str) -> TransactionHook:
        ended, dropped = partial(self.ended, alias), partial(self.dropped, alias)
        return TransactionHook(self, ended, "the release of a lock", dropped)

    def waits_for_transaction(self) -> bool:
        """Return whether it keeps the lock for an open transaction of the calling thread."""
        if self not in _here.left:
            return False  # the thread that acquired it isn't the one that released it
        self.release_if_ended()
        if self._until.keys() - {_RESPONSE}:
            return True
        if self.hold.state is State.RELEASING and running_loop() is None:  # the maintenance thread is about to free it
            _engine(self.lock).wait_until_idle(_PATIENCE)
        return False

    def covers(self, connections: list[Any]) -> bool:
        """Whether each of these transactions has the hook of this grant."""
        return all(transaction_hooks.is_added(each, self, self._until.get(each.alias, -1)) for each in connections)

    def ended(self, alias: str) -> None:
        """The transaction was committed, or the response closed."""
        self._end(alias, self._free)

    def dropped(self, alias: str) -> None:
        """The transaction was rolled back, or the response never closed. Called by a finalizer, at any moment in any
        thread."""
        if not self.hold.foreign:
            self._dropped.add(alias)
            self._submit(lambda: self._end(alias, self._abandon))

    def thread_ended(self) -> None:
        """The thread ended, so its transactions can't be committed any more. Called by a finalizer."""
        for alias in self._until.keys() - {_RESPONSE}:
            self.dropped(alias)

    def release_if_ended(self) -> None:
        """End the hold for all transactions that aren't open in this thread any more, whether or not a hook reported
        it."""
        still = {connection.alias for connection in open_transactions.open_now()} - self._dropped
        for alias in self._until.keys() - still - {_RESPONSE}:
            self.ended(alias)
        if (
            not self._until and self.id in self.hold.open_grants
        ):  # the maintenance thread hasn't yet, or an exception prevented it
            self._free()

    def _end(self, alias: str, free: Callable[[], None]) -> None:
        self._until.pop(alias, None)
        if not self._until:
            free()  # harmless if repeated
        elif self._until.keys() == {_RESPONSE}:
            registry.forget(self)  # the thread can't enter it again

    def _free(self) -> None:
        if running_loop() is not None:  # an asynchronous server may close its responses there
            self._submit(self._abandon)
            return
        try:
            self.release()
        except LockError as failure:
            if isinstance(failure, LockLost) and not self.hold.foreign:  # no caller catches it
                call_on_lost(self.hold, _engine(self.lock).submit_notice_first)
            report(self, failure)

    def _abandon(self) -> None:
        """Release from the maintenance thread."""
        self.lock.release_in_background(self)

    def _submit(self, job: Callable[[], object]) -> None:
        _engine(self.lock).call_at(0.0, job)


def _call_at_close(request: HttpRequest, hook: TransactionHook) -> None:
    """Call the hook when the request is closed, too. The response that is sent, and closed, may be another one than the
    view returned, for instance if that can't be rendered or middleware replaces it. The view's response keeps the hook
    alive."""
    before = vars(request).get("close")  # set for another lock
    request_ref, hook_ref = weakref.ref(request), weakref.ref(hook)  # strong ones would make a cycle

    def close() -> None:
        request, hook = request_ref(), hook_ref()
        try:
            if before is not None:
                before()
            elif request is not None:
                type(request).close(request)
        finally:
            if hook is not None:
                hook()

    request.close = close  # type: ignore[method-assign]


class _ThreadLiveness:
    """An object that only its thread references, so that its finalizer reports the end of the thread."""


def _end_of_thread(left: Iterable[DeferredGrant]) -> None:
    for deferred in list(left):
        deferred.thread_ended()


class _ThreadLocal(threading.local):
    """The deferred grants of this thread."""

    def __init__(self) -> None:
        self.left: weakref.WeakSet[DeferredGrant] = weakref.WeakSet()
        self._life = _ThreadLiveness()
        weakref.finalize(self._life, _end_of_thread, self.left).atexit = False


_here = _ThreadLocal()


def release_leftovers(**_: object) -> None:
    """Free the deferred locks of this thread whose transactions have ended. Called at the end of a request or task."""
    for deferred in list(_here.left):
        deferred.release_if_ended()


request_finished.connect(release_leftovers, dispatch_uid="django_redis_locks")


def report(grant: Grant, failure: LockError) -> None:
    """Report a failed release of a call whose result is returned all the same. A store that is down is reported by an
    event, and the release goes on in the background. A lost lock was reported when the loss was found."""
    if isinstance(failure, LockBackendError):
        events.emit(events.BackendFailed(grant.key, grant.name, grant.alias, "release", str(failure)))
    elif not isinstance(failure, LockLost):
        raise failure


def _engine(of: Any) -> Engine:
    """The engine of a lock."""
    return cast("Engine", of.performer)

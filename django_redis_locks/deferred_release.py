"""A lock that outlives its call or its block: until the transactions that are open then have ended, or until the response
is closed.
"""

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
from .engine.on_lost import react
from .transaction_hooks import NO_SAVEPOINTS, TransactionHook

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from django.http import HttpRequest

    from .engine.engine import Engine
    from .primitives.lock import Lock

_RESPONSE = ""
"""Stands among the aliases for the response."""

_PATIENCE = 1.0
"""Seconds for the janitor to free what this thread's own rollback left."""


def deferred_grant_of(lock: Lock) -> DeferredGrant | None:
    """What an earlier call or block of this thread left locked until the end of its transaction, to be entered again: that
    transaction is still open."""
    left = registry.newest(lock.lock_id, deferred=True) if registry.knows(lock.lock_id) else None
    return left if isinstance(left, DeferredGrant) and left.hold.live else None


def defer_release(
    grant: Grant, connections: list[Any], response: Any = None, request: HttpRequest | None = None
) -> None:
    """A grant is about to be released. Let the transactions of these connections, and the response, enter its hold once
    more."""
    if not grant.held or _is_deferred(grant, connections, response):
        return
    deferred = DeferredGrant(grant)
    try:
        deferred.enter(grant, connections, response, request)
    except BaseException as failure:  # a signal handler's
        registry.forget(deferred)
        grant.hold.take_out(deferred.id)
        grant.lock.clean_up_release(grant, failure)
        raise


def _is_deferred(grant: Grant, connections: list[Any], response: Any) -> bool:
    """Whether there is nothing to wait for, or an earlier call or block waits for the same."""
    if response is not None:
        return False
    earlier = registry.of_hold(grant.hold) if connections else ()
    return not connections or any(isinstance(left, DeferredGrant) and left.covers(connections) for left in earlier)


class DeferredGrant(Grant):
    """Keeps a lock whose call or block is over. It isn't the current grant, but its thread may enter the lock again.

    A lease that is renewed still is; a fixed one isn't, and has to last until COMMIT. What is left locked by mistake, since a
    traceback keeps the callback that was dropped, is freed when the request has ended, and by ``MAX_HOLD``."""

    __slots__ = ("_dropped", "_until")

    deferred = True

    def __init__(self, grant: Grant) -> None:
        super().__init__(grant.hold, grant.lock, mint_id())
        self._until: dict[str, int] = {}
        """The aliases that are waited for, and where in ``run_on_commit`` our hook is, or was: a rollback to a savepoint
        removes others."""
        self._dropped: set[str] = set()
        """Those whose transaction was rolled back. The janitor ends them, a moment later."""

    @property
    def released(self) -> bool:
        """By the caller, yes."""
        return True

    def enter(self, grant: Grant, connections: list[Any], response: Any, request: HttpRequest | None) -> None:
        """Stay in the hold of a call's grant until these have ended."""
        hold = self.hold
        if not hold.renew_until:
            with suppress(LockBackendError):  # no thread for it: then the lease frees what is rolled back
                self._put(lambda: None)  # a finalizer must find the janitor at work
        if not hold.enter(self.id, grant.id):
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
            hold.grant = weakref.ref(self)  # whom on_lost is called with
        if connections:
            registry.keep(self)
            _here.left.add(self)

    def _hook(self, alias: str) -> TransactionHook:
        ended, dropped = partial(self.ended, alias), partial(self.dropped, alias)
        return TransactionHook(self, ended, "the release of a lock", dropped)

    def waits_for_transaction(self) -> bool:
        if self not in _here.left:
            return False  # the thread that acquired it isn't the one that released it
        self.settle()
        if self._until.keys() - {_RESPONSE}:
            return True
        if self.hold.state is State.RELEASING and running_loop() is None:  # the janitor is at it
            _engine(self.lock).settle(_PATIENCE)
        return False

    def covers(self, connections: list[Any]) -> bool:
        """Whether each of these transactions has our hook already."""
        return all(transaction_hooks.is_added(each, self, self._until.get(each.alias, -1)) for each in connections)

    def ended(self, alias: str) -> None:
        """Committed, or closed, or known to be over."""
        self._end(alias, self._free)

    def dropped(self, alias: str) -> None:
        """Rolled back, or never closed. A finalizer's: the collector may have chosen any moment."""
        if not self.hold.foreign:
            self._dropped.add(alias)
            self._put(lambda: self._end(alias, self._abandon))

    def thread_ended(self) -> None:
        """Its transactions can't be committed any more. A finalizer's."""
        for alias in self._until.keys() - {_RESPONSE}:
            self.dropped(alias)

    def settle(self) -> None:
        """End what isn't open in this thread any more: what the janitor would end a moment later, and what nothing reported."""
        still = {connection.alias for connection in open_transactions.open_now()} - self._dropped
        for alias in self._until.keys() - still - {_RESPONSE}:
            self.ended(alias)
        if not self._until and self.id in self.hold.inside:  # the janitor is about to, or an exception prevented it
            self._free()

    def _end(self, alias: str, free: Callable[[], None]) -> None:
        self._until.pop(alias, None)
        if not self._until:
            free()  # may be done again
        elif self._until.keys() == {_RESPONSE}:
            registry.forget(self)  # from here on it is the response's, not the thread's

    def _free(self) -> None:
        if running_loop() is not None:  # an asynchronous server may close its responses there
            self._put(self._abandon)
            return
        try:
            self.release()
        except LockError as failure:
            if isinstance(failure, LockLost) and not self.hold.foreign:  # no caller gets it
                react(self.hold, _engine(self.lock).post_first)
            report(self, failure)

    def _abandon(self) -> None:
        """In the janitor's thread, which sends it with whatever else is due."""
        self.lock.release_in_background(self)

    def _put(self, job: Callable[[], object]) -> None:
        _engine(self.lock).alarm(0.0, job)


def _call_at_close(request: HttpRequest, hook: TransactionHook) -> None:
    """Django closes a request with the response that it answers with, which may be another one than the view returned: if
    that can't be rendered, or middleware puts its own in its place. The hook lives as long as the view's response."""
    before = vars(request).get("close")  # that of another lock
    request_ref, hook_ref = weakref.ref(request), weakref.ref(hook)  # a cycle would keep both until it is collected

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
    """Kept by its thread alone."""


def _end_of_thread(left: Iterable[DeferredGrant]) -> None:
    for deferred in list(left):
        deferred.thread_ended()


class _ThreadLocal(threading.local):
    """What this thread has left locked."""

    def __init__(self) -> None:
        self.left: weakref.WeakSet[DeferredGrant] = weakref.WeakSet()
        self._life = _ThreadLiveness()
        weakref.finalize(self._life, _end_of_thread, self.left).atexit = False


_here = _ThreadLocal()


def release_leftovers(**_: object) -> None:
    """At the end of a request, or of whatever else a thread does one after the other."""
    for deferred in list(_here.left):
        deferred.settle()


request_finished.connect(release_leftovers, dispatch_uid="django_redis_locks")


def report(grant: Grant, failure: LockError) -> None:
    """The call is over and its result stands. A loss was told when it was found; a store that is down is told here, and
    the release goes on in the background."""
    if isinstance(failure, LockBackendError):
        events.emit(events.BackendFailed(grant.key, grant.name, grant.alias, "release", str(failure)))
    elif not isinstance(failure, LockLost):
        raise failure


def _engine(of: Any) -> Engine:
    """Of a lock, or of a grant's keeper."""
    return cast("Engine", of.performer)

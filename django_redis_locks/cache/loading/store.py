"""Ends a load: stores its value, defers that to the COMMIT of a transaction, or gives the claim up."""

from __future__ import annotations

from functools import partial
from math import inf
from random import random
from typing import TYPE_CHECKING, Any, Final

from django.core.cache.backends.base import DEFAULT_TIMEOUT

from ...core import clock
from ...core.errors import LockBackendError
from ...core.owners import running_loop
from ...core.runner import run
from .. import metrics
from ..options import seconds_or_ever
from ..results import MISSING
from ..values import wrap
from . import transactions
from .effects import Delete, Store
from .groups import read_stamps
from .singleflight import LoadOutcome

if TYPE_CHECKING:
    from ...core.commands import Program
    from ...primitives.load import Claim
    from ..results import Source
    from .groups import Stamps
    from .loader import LoadContext
    from .request import LoadRequest

REASON_NOT_STORED: Final = "unshared"
"""The reason that the store keeps for a load whose value is not stored."""


def give_up_claim(request: LoadRequest, claim: Claim, seconds: float = 0.0, why: str = "") -> Program[bool]:
    """Give a claim up. If the store can't be reached, the claim ends with its lease.

    Args:
        request: the request of the caller that made the claim.
        claim: the claim.
        seconds: for how long the store keeps ``why`` for other callers; 0: not at all.
        why: the reason, for messages; ``REASON_NOT_STORED`` if the load succeeded.

    Returns:
        False if the claim was void.
    """
    try:
        owned: bool = yield from request.load.giving_up(claim.token, claim.hold, round(seconds * 1000), why)
    except LockBackendError as failure:
        request.coordinator.record_failure(failure)
        return True
    return owned


class LoadCompletion:
    """Ends one load. Without a claim its value isn't stored: that could overwrite a write or invalidation made during
    the load.

    A store that is deferred to COMMIT exchanges the claim for a *permit*, which isn't renewed and doesn't block other
    loads.
    """

    def __init__(
        self,
        request: LoadRequest,
        claim: Claim | None,
        context: LoadContext,
        isolation: transactions.Isolation | None,
        stamps: Stamps = (),
    ) -> None:
        self._request = request
        self._claim = claim
        self._token = "" if claim is None else claim.token
        self._by_permit = False
        self._context = context
        self._isolation = isolation
        self._stamps = stamps
        """The stamps of the value's groups when its load began."""
        self.current_until = clock.now() if request.group_keys else inf
        """Until when a value that isn't stored is known to be current: callers that began later don't get it. A value
        without groups is, as an invalidation of its key ends the waiting of callers."""

    def failed(self, error: BaseException, seconds: float) -> Program[bool]:
        """End a load whose loader raised. For ``seconds`` the store returns the error to other callers, too.

        Returns:
            Whether followers get the error. False if the claim is void, or if the load ran inside a transaction.
        """
        in_transaction = bool((yield from transactions.connections_around(self._request.options.store_in_atomic)))
        if self._claim is None:
            return not in_transaction
        why = f"{type(error).__name__}: {error}"
        remembered = 0.0 if in_transaction else seconds
        return (yield from give_up_claim(self._request, self._claim, remembered, why)) and not in_transaction

    def interrupted(self) -> Program[None]:
        """End a load that a signal or a cancellation interrupted: the claim is given up in the background."""
        if self._claim is not None:
            yield self._request.load.abandoning(self._claim.token, self._claim.hold, self._request.lease)

    def loaded(self, value: Any) -> Program[tuple[LoadOutcome, str]]:
        """End a load with the loader's value. If the cache or a database connection raises, the claim is given up.

        Returns:
            The outcome for callers, and that of the store: "stored", "unstored", "fenced" or "failed".
        """
        request, claim, options = self._request, self._claim, self._request.options
        values = request.coordinator.values
        try:
            fresh_for = self._lifetime(value)
            is_stored = (
                fresh_for != 0
                and self._context.may_store
                and None not in self._stamps
                and (options.store_if is None or bool(options.store_if(value)))
            )
            connections = yield from transactions.connections_around(options.store_in_atomic)
            source: Source = "unlocked" if claim is None and request.cacheable else "loaded"
            if not is_stored:
                leader_only = bool(connections)
                if claim is not None:
                    ttl = request.coordinator.engine.tuning.unstored_note_ttl
                    owned = yield from give_up_claim(request, claim, ttl, REASON_NOT_STORED)
                    leader_only = leader_only or not owned
                return LoadOutcome(
                    value, source, values=values, leader_only=leader_only, as_of=self.current_until
                ), "unstored"
            if claim is None and not connections:
                return LoadOutcome(value, source, values=values, as_of=self.current_until), "unstored"
            data = values.dumps(value)
            if connections:
                return (yield from self._awaiting_commit(connections, value, data, fresh_for))
            return (yield from self.store(value, data, fresh_for))
        except Exception as error:  # noqa: BLE001 - the outcome raises it in the caller
            shared = yield from self.failed(error, options.pause_after_error(stale_served=False))
            return LoadOutcome(error=error, leader_only=not shared), "failed"
        except GeneratorExit:
            raise
        except BaseException:
            yield from self.interrupted()
            raise

    def _awaiting_commit(
        self, connections: list[Any], value: Any, data: Any, fresh_for: float | None
    ) -> Program[tuple[LoadOutcome, str]]:
        """Defer the store to COMMIT. Until then only these transactions see the value, and no other caller waits for
        it."""
        request, claim = self._request, self._claim
        store = None
        if (
            claim is not None
            and transactions.may_store(request, connections)
            and (self._isolation or transactions.Isolation()).is_read_committed(connections)
        ):
            try:
                self._token = yield from request.load.deferring(claim.token, claim.hold)
            except LockBackendError as failure:
                request.coordinator.record_failure(failure)
                self._token = ""
            self._by_permit = True
            if self._token:
                store = partial(self._store_now, value, data, fresh_for)
        elif claim is not None:
            yield from give_up_claim(request, claim)
        if running_loop() is None:
            transactions.defer_store(connections, request, value, data, store)
        return LoadOutcome(value, leader_only=True), "unstored"

    def _store_now(self, value: Any, data: Any, fresh_for: float | None) -> None:
        """Store the value after COMMIT. If the store is down, another hook of this COMMIT has already waited for it,
        and the permit expires."""
        if not self._request.coordinator.down:
            run(self.store(value, data, fresh_for), self._request.coordinator.performer)

    def store(self, value: Any, data: Any, fresh_for: float | None) -> Program[tuple[LoadOutcome, str]]:
        """Store the value, unless the claim or the permit is void."""
        request, claim, as_of = self._request, self._claim, clock.now()
        if request.coordinator.same_server:
            storing = self._store_on_same_server(value, data, fresh_for)
        elif request.coordinator.local:
            storing = self._store_in_process(value, fresh_for)
        else:
            storing = self._store_on_separate_server(value, fresh_for)
        if self._stamps:
            storing = self._store_if_unchanged(claim, storing)
        try:
            stored = yield from storing
        except LockBackendError as failure:  # it isn't known whether the claim was void
            request.coordinator.record_failure(failure)
            return LoadOutcome(value, leader_only=True), "unstored"
        if not stored:
            metrics.count(request.coordinator.alias, metrics.FENCED)
            return LoadOutcome(value, leader_only=True), "fenced"
        retries = request.coordinator.retries
        if claim is not None and retries.pending:
            retries.replaced(request.key, claim.sent_at)
        return LoadOutcome(
            value, data=data, values=request.coordinator.values, fresh_for=fresh_for, as_of=as_of
        ), "stored"

    def _store_if_unchanged(self, claim: Claim | None, storing: Program[bool]) -> Program[bool]:
        """Store the value, unless one of its groups was invalidated during the load: the value would never be served,
        and other callers of this process must not get it."""
        request = self._request
        assert claim is not None  # noqa: S101 - else it isn't stored
        try:
            stamps = yield from read_stamps(request)
        except GeneratorExit:
            raise
        except BaseException:
            yield request.load.abandoning(claim.token, claim.hold, request.lease)
            raise
        if stamps == self._stamps:
            return (yield from storing)
        yield from give_up_claim(request, claim)
        return False

    def _store_on_same_server(self, value: Any, data: Any, fresh_for: float | None) -> Program[bool]:
        request, claim = self._request, self._claim
        assert claim is not None  # noqa: S101 - else it isn't stored
        remaining_ms = -1 if fresh_for is None else max(1, round((fresh_for + request.options.stale) * 1000))
        if self._stamps:
            data = request.coordinator.values.dumps(wrap(value, None, self._stamps))
        return request.load.storing(self._token, remaining_ms, data, claim.hold, by_permit=self._by_permit)

    def _store_in_process(self, value: Any, fresh_for: float | None) -> Program[bool]:
        """Check the claim and write the value in one step, as leases and values are in this process."""
        request, claim = self._request, self._claim
        assert claim is not None  # noqa: S101

        def write(lag_ms: int) -> None:
            request.coordinator.performer.handlers[Store](self._store_effect(value, _limited(fresh_for, lag_ms)))

        return request.load.storing(self._token, 0, write, claim.hold, by_permit=self._by_permit)

    def _store_on_separate_server(self, value: Any, fresh_for: float | None) -> Program[bool]:
        """Check the claim, write the value, and check the claim again.

        If another client writes between the first check and this write, its value is overwritten. The second check
        finds the claim void then, and the loaded value is deleted.
        """
        request, claim = self._request, self._claim
        assert claim is not None  # noqa: S101
        try:
            owned, lag_ms = yield from request.load.checking(self._token, request.lease, by_permit=self._by_permit)
        except LockBackendError:
            yield request.load.abandoning(claim.token, claim.hold, request.lease)
            raise
        if not owned:
            yield from give_up_claim(request, claim)
            return False
        remove = Delete(request.user_key, request.version, request.key)
        try:
            yield self._store_effect(value, _limited(fresh_for, lag_ms))
            if (yield from request.load.storing(self._token, 0, b"", claim.hold, by_permit=self._by_permit)):
                return True
            yield remove
        except GeneratorExit:
            raise
        except BaseException as failure:  # the claim may have been void before the value was written
            removed = False
            try:
                if isinstance(failure, Exception):
                    yield remove
                    removed = True
            finally:
                if not removed:
                    request.coordinator.retries.add([(request.key, request.user_key, request.version)], failure)
            raise
        return False

    def _store_effect(self, value: Any, fresh_for: float | None) -> Store:
        request = self._request
        options, seconds = request.options, fresh_for
        if fresh_for is not None and (options.stale or options.early is not None):
            value, seconds = wrap(value, fresh_for, self._stamps), fresh_for + options.stale
        elif self._stamps:
            value = wrap(value, None, self._stamps)
        return Store(request.user_key, request.version, request.key, value, seconds)

    def _lifetime(self, value: Any) -> float | None:
        """Return the seconds for which the loaded value is fresh; None: forever, 0: it isn't stored."""
        request = self._request
        ttl: float | None
        if self._context.ttl is not MISSING:
            ttl = self._context.ttl
        elif value is None:
            ttl = request.options.none_ttl if request.ttl is None else min(request.options.none_ttl, request.ttl)
        elif callable(request.options.ttl):
            ttl = seconds_or_ever(request.options.ttl(value), "ttl")
            ttl = request.coordinator.default_ttl if ttl is DEFAULT_TIMEOUT else ttl
        else:
            ttl = request.ttl
        if ttl is None:
            return None
        # At least a second: memcached counts in seconds, and drops values with a shorter lifetime
        return max(0.0, min(ttl, 1.0), ttl * (1 - request.options.jitter * random()))  # noqa: S311 - no secret


def _limited(fresh_for: float | None, lag_ms: int) -> float | None:
    """Limit a lifetime in seconds to the replica lag of a recent invalidation in milliseconds, 0 if there is none."""
    if not lag_ms:
        return fresh_for
    return lag_ms / 1000 if fresh_for is None else min(fresh_for, lag_ms / 1000)

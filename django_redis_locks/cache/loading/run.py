"""Claims a load in the store, runs its loader, and publishes the outcome to the callers that wait for it."""

from __future__ import annotations

from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any

from ...core import clock
from ...core.errors import LockBackendError
from ...primitives.load import (
    BUSY,
    CLAIMED,
    FAILED,
    FRESH,
    NEVER_FRESH,
    OVERRIDE_FAILURE,
    UNCOORDINATED,
    Claim,
    ClaimRequest,
)
from .. import metrics
from ..errors import LoadFailed
from ..results import MISSING
from ..values import NOT_FOUND, CachedValue, read_envelope
from . import early, transactions
from . import loader as loaders
from .effects import Fetch, Run
from .shared_read import read_shared
from .singleflight import RETRY, InflightLoad, LoadOutcome
from .store import REASON_NOT_STORED, LoadCompletion, give_up_claim

if TYPE_CHECKING:
    from ...core.commands import Program
    from ..results import Source
    from .request import LoadRequest


def read_cache(request: LoadRequest) -> Program[CachedValue]:
    """Read the value from the cache. It counts as absent if the store is down or the value can't be deserialized."""
    coordinator = request.coordinator
    if not coordinator.same_server:
        return read_envelope((yield Fetch(request.user_key, request.version, request.key)))
    if coordinator.down:
        return NOT_FOUND
    try:
        return request.decode(*(yield from read_shared(request)))
    except LockBackendError as failure:
        coordinator.record_failure(failure)
        return NOT_FOUND


def resolve_claim(request: LoadRequest, inflight: InflightLoad, claim: Claim) -> Program[LoadOutcome]:
    """Act on the store's reply to a claim: load, return the value that was found, or retry."""
    cached, as_of = request.decode(claim.value_left, claim.value), claim.sent_at
    if claim.verdict == CLAIMED:
        request.coordinator.single_flight.claimed(inflight, claim)
        if not request.coordinator.same_server:  # the value may have been stored since the read
            as_of = clock.now()
            cached = yield from reread(request, claim)
            if cached.value is not MISSING and cached.fresh:
                yield from give_up_claim(request, claim)
                return outcome_of_read(request, cached, as_of)
        return (yield from run_load(request, inflight, claim, cached))
    if not request.coordinator.same_server:
        as_of = clock.now()
        cached = yield from read_cache(request)
    if cached.value is not MISSING:
        return outcome_of_read(request, cached, as_of)
    if claim.verdict == FRESH:  # fresh, but it can't be deserialized
        claim = (yield from claim_load(request, request.claim(0.0, fresh_above=NEVER_FRESH))) or Claim(BUSY)
        return (yield from run_load(request, inflight, claim if claim.verdict == CLAIMED else None, NOT_FOUND))
    if claim.verdict == UNCOORDINATED:
        return (yield from run_load(request, inflight, None, NOT_FOUND))
    if claim.verdict == FAILED:
        return (yield from _resolve_without_value(request, inflight, claim))
    return RETRY


def _resolve_without_value(request: LoadRequest, inflight: InflightLoad, claim: Claim) -> Program[LoadOutcome]:
    """Act on a claim that was refused because a load has just ended without storing a value.

    If that value wasn't to be stored, callers that waited for it load at once. If the loader failed, callers with
    ``error_ttl`` raise ``LoadFailed``. All others claim the load in spite of it.
    """
    if claim.reason == REASON_NOT_STORED and claim.waited:
        return (yield from run_load(request, inflight, None, NOT_FOUND))
    if claim.reason != REASON_NOT_STORED and request.options.error_ttl:
        error = LoadFailed(f"the load failed a moment ago: {claim.reason}", request.user_key)
        return LoadOutcome(error=error, as_of=claim.sent_at)
    again = yield from claim_load(request, request.claim(0.0, override=OVERRIDE_FAILURE))
    if again is not None and again.verdict != FAILED:
        return (yield from resolve_claim(request, inflight, again))
    return (yield from run_load(request, inflight, None, NOT_FOUND))


def reread(request: LoadRequest, claim: Claim) -> Program[CachedValue]:
    """Read the value again after claiming the load. If that fails, give the claim up in the background."""
    try:
        return (yield from read_cache(request))
    except BaseException as failure:
        yield request.load.abandoning(claim.token, claim.hold, request.lease)
        if isinstance(failure, Exception):
            return NOT_FOUND
        raise


def publish_outcome(request: LoadRequest, inflight: InflightLoad, program: Program[LoadOutcome]) -> Program[None]:
    """Run a program and give its outcome to all followers of the load."""
    finish = partial(request.coordinator.single_flight.finish, request.key, inflight)
    try:
        outcome = yield from program
    except Exception as error:  # noqa: BLE001 - raised in all followers
        outcome = LoadOutcome(error=error)
    except BaseException:
        finish(LoadOutcome(error=LoadFailed("the load was interrupted", request.user_key), leader_only=True))
        raise
    finish(outcome)


def abandon_unstarted(request: LoadRequest, inflight: InflightLoad, claim: Claim | None) -> None:
    """Give up the claim of a load whose task never began, and let its followers start again."""
    if claim is not None:
        cleanup = request.load.abandoning(claim.token, claim.hold, request.lease)
        request.coordinator.performer.handlers[type(cleanup)](cleanup)
    request.coordinator.single_flight.finish(request.key, inflight, RETRY)


def outcome_of_read(request: LoadRequest, cached: CachedValue, as_of: float) -> LoadOutcome:
    """Return a cached value as the outcome of a load. ``as_of``: when its read was sent."""
    source: Source = "waited" if cached.fresh else "stale"
    return LoadOutcome(cached.value, source, values=request.coordinator.values, fresh_for=cached.fresh_for, as_of=as_of)


def claim_load(request: LoadRequest, claim_request: ClaimRequest) -> Program[Claim | None]:
    """Claim the load.

    On a separate server the first attempt doesn't wait, so that a server that is down is noticed without a wait.

    Returns:
        The claim, or None if the store can't be reached.
    """
    if request.coordinator.down:
        return None
    wait = claim_request.wait
    try:
        if not request.coordinator.same_server:
            claim_request.wait = 0.0
        claim: Claim = yield from request.load.claiming(claim_request)
        if claim.verdict == BUSY and claim_request.wait < wait:
            claim_request.wait = wait
            claim = yield from request.load.claiming(claim_request)
        return claim
    except LockBackendError as failure:
        request.coordinator.record_failure(failure)
        return None


def run_load(
    request: LoadRequest, inflight: InflightLoad, claim: Claim | None, before: CachedValue
) -> Program[LoadOutcome]:
    """Run the loader and, with a claim, store its value. ``before``: the value that the cache has, stale or absent."""
    coordinator, options = request.coordinator, request.options
    limit_waiting(request, inflight, claim)
    context = loaders.LoadContext(request.user_key, before.value)
    completion = LoadCompletion(request, claim, context, transactions.Isolation())
    begin = clock.now()
    try:
        value = yield loader_effect(
            request.loader, (context,) if loaders.takes_context(request.loader) else (), ((request.lock_id, inflight),)
        )
    except Exception as error:  # noqa: BLE001 - whatever a loader raises
        metrics.count(coordinator.alias, metrics.FAILURES)
        metrics.send_load_finished(
            coordinator.cache_class, coordinator.alias, request.key, request.name, clock.now() - begin, "failed"
        )
        serves_stale = before.value is not MISSING and options.stale_if_error
        pause = options.pause_after_error(stale_served=serves_stale)
        shared = yield from completion.failed(error, pause)
        if serves_stale:
            metrics.log.warning("A stale value of %r is served, since its loader failed: %r", request.name, error)
            if shared:
                coordinator.back_off(request.key, pause)
            return LoadOutcome(
                before.value, "stale", values=coordinator.values, fresh_for=before.fresh_for, leader_only=not shared
            )
        return LoadOutcome(error=error, leader_only=not shared)
    except GeneratorExit:
        raise
    except BaseException:
        yield from completion.interrupted()
        raise
    seconds = clock.now() - begin
    early.learn(request.name, seconds)
    metrics.count(coordinator.alias, metrics.LOADS)
    if claim is None and request.cacheable:
        metrics.count(coordinator.alias, metrics.UNLOCKED)
    outcome, storage = yield from completion.loaded(value)
    metrics.send_load_finished(coordinator.cache_class, coordinator.alias, request.key, request.name, seconds, storage)
    return outcome


def limit_waiting(request: LoadRequest, inflight: InflightLoad, claim: Claim | None) -> None:
    """Let followers of the load wait only until its claim is void, or it has run for ``max_hold``."""
    abandon = partial(request.coordinator.single_flight.abandon, request.key, inflight)
    if claim is not None and claim.hold is not None:
        claim.hold.on_void = abandon
    if request.options.max_hold < inf:
        abandon(clock.now() + request.options.max_hold)


def loader_effect(loader: Any, arguments: tuple[Any, ...], within: loaders.LoadStack) -> Run:
    """Return the effect that runs a loader. ``within``: the loads that this call carries out."""
    return Run(
        partial(loaders.call_loader, loader, arguments, within),
        partial(loaders.acall_loader, loader, arguments, within),
    )

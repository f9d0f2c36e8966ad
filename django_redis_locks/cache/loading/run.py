"""Under a claim, or without one: the loader runs, and its value goes to the callers and into the cache."""

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
from ..values import NOT_FOUND, CachedValue, kept
from . import early
from . import loader as loaders
from . import transactions as commits
from .effects import Fetch, Run
from .shared_read import together
from .singleflight import RETRY, InflightLoad, LoadOutcome
from .store import UNSHARED, StoreResult, cut_off

if TYPE_CHECKING:
    from ...core.commands import Program
    from ..results import Source
    from .request import LoadRequest


def looking(call: LoadRequest) -> Program[CachedValue]:
    """What the cache has. What can't be read counts as absent."""
    coordinator = call.coordinator
    if not coordinator.fused:
        return kept((yield Fetch(call.plain, call.version, call.key)))
    if coordinator.down:
        return NOT_FOUND
    try:
        return call.found(*(yield from together(call)))
    except LockBackendError as failure:
        coordinator.failed(failure)
        return NOT_FOUND


def settled(call: LoadRequest, inflight: InflightLoad, claim: Claim) -> Program[LoadOutcome]:
    """What a claim came to."""
    now, as_of = call.found(claim.value_left, claim.value), claim.asked
    if claim.verdict == CLAIMED:
        call.coordinator.single_flight.claimed(inflight, call.token, claim)
        if not call.coordinator.fused:  # it may have been stored since we looked
            as_of = clock.now()
            now = yield from looked_again(call, claim)
            if now.value is not MISSING and now.fresh:
                yield from cut_off(call, claim)
                return as_landing(call, now, as_of)
        return (yield from loading(call, inflight, claim, now))
    if not call.coordinator.fused:
        as_of = clock.now()
        now = yield from looking(call)
    if now.value is not MISSING:
        return as_landing(call, now, as_of)
    if claim.verdict == FRESH:  # it can't be read
        claim = (yield from claiming(call, call.claim(0.0, fresh_above=NEVER_FRESH))) or Claim(BUSY)
        return (yield from loading(call, inflight, claim if claim.verdict == CLAIMED else None, NOT_FOUND))
    if claim.verdict == UNCOORDINATED:
        return (yield from loading(call, inflight, None, NOT_FOUND))
    if claim.verdict == FAILED:
        return (yield from _noted(call, inflight, claim))
    return RETRY


def _noted(call: LoadRequest, inflight: InflightLoad, claim: Claim) -> Program[LoadOutcome]:
    """A load ended a moment ago without a value for others. Those who waited for one that isn't stored load at once; a failure
    is for those who ask to be told."""
    if claim.said == UNSHARED and claim.waited:
        return (yield from loading(call, inflight, None, NOT_FOUND))
    if claim.said != UNSHARED and call.options.error_ttl:
        error = LoadFailed(f"the load failed a moment ago: {claim.said}", call.plain)
        return LoadOutcome(error=error, as_of=claim.asked)
    past = yield from claiming(call, call.claim(0.0, take=OVERRIDE_FAILURE))
    if past is not None and past.verdict != FAILED:
        return (yield from settled(call, inflight, past))
    return (yield from loading(call, inflight, None, NOT_FOUND))


def looked_again(call: LoadRequest, claim: Claim) -> Program[CachedValue]:
    try:
        return (yield from looking(call))
    except BaseException as failure:
        yield call.load.abandoning(call.token, claim.hold, call.lease)
        if isinstance(failure, Exception):
            return NOT_FOUND
        raise


def flown(call: LoadRequest, inflight: InflightLoad, program: Program[LoadOutcome]) -> Program[None]:
    """Land a flight with what a program brings."""
    land = partial(call.coordinator.single_flight.land, call.key, inflight)
    try:
        load_outcome = yield from program
    except Exception as error:  # noqa: BLE001 - it is told to all who follow
        load_outcome = LoadOutcome(error=error)
    except BaseException:
        land(LoadOutcome(error=LoadFailed("the load was interrupted", call.plain), alone=True))
        raise
    land(load_outcome)


def not_begun(call: LoadRequest, inflight: InflightLoad, claim: Claim | None) -> None:
    """The task that was to load it never began."""
    if claim is not None:
        sweep = call.load.abandoning(call.token, claim.hold, call.lease)
        call.coordinator.performer.handlers[type(sweep)](sweep)
    call.coordinator.single_flight.land(call.key, inflight, RETRY)


def as_landing(call: LoadRequest, now: CachedValue, as_of: float) -> LoadOutcome:
    """What was found by a question that was sent then."""
    source: Source = "waited" if now.fresh else "stale"
    return LoadOutcome(now.value, source, values=call.coordinator.values, fresh_for=now.left, as_of=as_of)


def claiming(call: LoadRequest, wish: ClaimRequest) -> Program[Claim | None]:
    """Claim the load; None if the store can't be asked. Where that wasn't looked at it is asked once before anybody waits:
    one that is down isn't waited for."""
    if call.coordinator.down:
        return None
    call.token = wish.token
    wait = wish.wait
    try:
        if not call.coordinator.fused:
            wish.wait = 0.0
        claim: Claim = yield from call.load.claiming(wish)
        if claim.verdict == BUSY and wish.wait < wait:
            wish.wait = wait
            claim = yield from call.load.claiming(wish)
        return claim
    except LockBackendError as failure:
        call.coordinator.failed(failure)
        return None


def loading(
    call: LoadRequest, inflight: InflightLoad, claim: Claim | None, before: CachedValue
) -> Program[LoadOutcome]:
    """Run the loader, under a claim or without one, and store what it brings."""
    coordinator, options = call.coordinator, call.options
    bounded(call, inflight, claim)
    context = loaders.LoadContext(call.plain, before.value)
    ending = StoreResult(call, claim, context, commits.Isolation())
    begin = clock.now()
    try:
        value = yield running(
            call.loader, (context,) if loaders.takes_context(call.loader) else (), ((call.lock_id, inflight),)
        )
    except Exception as error:  # noqa: BLE001 - whatever a loader raises
        metrics.count(coordinator.alias, metrics.FAILURES)
        metrics.finished(coordinator.kind, coordinator.alias, call.key, call.name, clock.now() - begin, "failed")
        serves = before.value is not MISSING and options.stale_if_error
        pause = options.pause_after_error(stale_served=serves)
        shared = yield from ending.failed(error, pause)
        if serves:
            metrics.log.warning("A stale value of %r is served, since its loader failed: %r", call.name, error)
            if shared:
                coordinator.rest(call.key, pause)
            return LoadOutcome(
                before.value, "stale", values=coordinator.values, fresh_for=before.left, alone=not shared
            )
        return LoadOutcome(error=error, alone=not shared)
    except GeneratorExit:
        raise
    except BaseException:
        yield from ending.interrupted()
        raise
    seconds = clock.now() - begin
    early.learn(call.name, seconds)
    metrics.count(coordinator.alias, metrics.LOADS)
    if claim is None and call.stores:
        metrics.count(coordinator.alias, metrics.UNLOCKED)
    load_outcome, outcome = yield from ending.brought(value)
    metrics.finished(coordinator.kind, coordinator.alias, call.key, call.name, seconds, outcome)
    return load_outcome


def bounded(call: LoadRequest, inflight: InflightLoad, claim: Claim | None) -> None:
    """A loader begins: callers wait for it until its claim is void, or ``max_hold`` is over."""
    give_up = partial(call.coordinator.single_flight.give_up, call.key, inflight)
    if claim is not None and claim.hold is not None:
        claim.hold.on_void = give_up
    if call.options.max_hold < inf:
        give_up(clock.now() + call.options.max_hold)


def running(loader: Any, arguments: tuple[Any, ...], within: loaders.Within) -> Run:
    return Run(partial(loaders.call, loader, arguments, within), partial(loaders.acall, loader, arguments, within))

"""Stale-while-revalidate and early refresh: one caller loads the value again, the others get the cached one."""

from __future__ import annotations

from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Final

from ...core import clock
from ...core.runner import run_twice_if_interrupted
from ...primitives.load import BUSY, CLAIMED, FRESH
from ..results import LoadResult
from . import nesting, transactions
from .effects import Follow, Lead, LeadInBackground
from .refresh_job import hand_over
from .run import abandon_unstarted, claim_load, lead_until, outcome_of_read, publish_outcome, run_load
from .singleflight import RETRY, InflightLoad, LoadOutcome

if TYPE_CHECKING:
    from ...core.commands import Program
    from ...primitives.load import Claim
    from ..values import CachedValue
    from .request import LoadRequest


BUSY_BACKOFF: Final = 0.1
"""Seconds for which this process doesn't ask again whether another caller is still loading a stale value."""


def serve_and_refresh(request: LoadRequest, cached: CachedValue, result: LoadResult[Any]) -> Program[LoadResult[Any]]:
    """Start a refresh of a cached value, unless one is running.

    Returns:
        The new value if this caller loads it or waits for it, otherwise ``result``, which is the cached one.
    """
    coordinator, options = request.coordinator, request.options
    single_flight, connections = coordinator.single_flight, []
    if coordinator.backs_off(request.key) or nesting.is_inside(request.lock_id):
        return result
    if options.refresh == "inline":
        connections = yield from transactions.connections_around()
        if transactions.never_leaves_transactions(request, connections):
            return result
    wait = min(options.wait_stale, options.load_timeout) if result.source == "stale" else 0.0
    begin, own = clock.now(), InflightLoad()
    try:
        inflight = single_flight.join(request.key, own)
        if inflight is own:
            return (yield from _refresh(request, own, cached, result, wait, connections))
        outcome = (yield Follow(single_flight, inflight, begin + wait)) if wait else None
    except BaseException:
        run_twice_if_interrupted(partial(abandon_unstarted, request, own))
        raise
    return result if outcome is None or not outcome.is_valid_since(begin) else _refreshed_or(request, outcome, result)


def _refresh(
    request: LoadRequest,
    inflight: InflightLoad,
    cached: CachedValue,
    result: LoadResult[Any],
    wait: float,
    connections: list[Any],
) -> Program[LoadResult[Any]]:
    """Claim and start the refresh of a cached value, as its leader. ``wait``: seconds to wait for its end, unless this
    caller carries it out."""
    options, single_flight, begin = request.options, request.coordinator.single_flight, clock.now()
    outcome: LoadOutcome | None
    claim, current = yield from _claim_refresh(request, inflight, cached, wait)
    if claim is None or claim.verdict != CLAIMED:
        outcome = RETRY
        if claim is not None and claim.verdict == FRESH:
            outcome = outcome_of_read(request, current, claim.sent_at)
        single_flight.finish(request.key, inflight, outcome)
        return _refreshed_or(request, outcome, result, is_leader=True)
    on_unstarted = partial(abandon_unstarted, request, inflight, claim)
    if options.refresh == "inline" and not wait:
        program = publish_outcome(request, inflight, run_load(request, inflight, claim, current))
        lead = Lead if request.deadline == inf else partial(lead_until, connections, in_task=request.asynchronous)
        yield lead(program, on_unstarted)
        outcome = inflight.outcome or (yield Follow(single_flight, inflight, request.deadline, is_leader=True))
        return result if outcome is None else _refreshed_or(request, outcome, result, is_leader=True)
    if options.refresh in ("inline", "thread"):
        yield LeadInBackground(
            publish_outcome(request, inflight, run_load(request, inflight, claim, current)),
            on_unstarted,
            request.asynchronous,
        )
        outcome = (yield Follow(single_flight, inflight, begin + wait)) if wait else None
        return result if outcome is None else _refreshed_or(request, outcome, result, is_leader=True)
    single_flight.finish(request.key, inflight, RETRY)
    hand_over(request, claim)
    return result


def _claim_refresh(
    request: LoadRequest, inflight: InflightLoad, cached: CachedValue, wait: float
) -> Program[tuple[Claim | None, CachedValue]]:
    """Claim the refresh. If the claim is refused, callers of this process don't ask again for a moment."""
    lease = None if request.options.refresh in ("inline", "thread") else round(1000 * request.options.start_within)
    claim, current = yield from claim_load(request, inflight, request.claim(wait, cached, lease=lease), cached)
    if claim is not None and claim.verdict not in (CLAIMED, FRESH):
        seconds = min(claim.lease_left, BUSY_BACKOFF) if claim.verdict == BUSY else claim.lease_left
        request.coordinator.back_off(request.key, seconds)
    return claim, current


def _refreshed_or(
    request: LoadRequest, outcome: LoadOutcome, result: LoadResult[Any], *, is_leader: bool = False
) -> LoadResult[Any]:
    """Return the refreshed value, or ``result`` if the load failed or has no value for this caller."""
    if outcome is RETRY:
        return result
    if outcome.error is not None:
        if is_leader and not request.options.stale_if_error:
            return request.default_or_raise(outcome.error)
        return result
    return request.result_of(outcome, is_leader=is_leader)

"""A value is stale, or about to be: one caller loads it, and the others are served what there is."""

from __future__ import annotations

from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Final

from ...core import clock
from ...primitives.load import BUSY, CLAIMED, FRESH
from ..results import MISSING, LoadResult
from ..values import NOT_FOUND
from . import transactions as commits
from .effects import Behind, Follow, Lead
from .refresh_job import hand_over
from .run import as_landing, claiming, flown, loading, looked_again, not_begun
from .singleflight import RETRY, LoadOutcome
from .store import cut_off

if TYPE_CHECKING:
    from ...core.commands import Program
    from ...primitives.load import Claim
    from ..values import CachedValue
    from .request import LoadRequest


BRIEFLY: Final = 0.1
"""Seconds for which nobody of this process asks again whether somebody else still loads a stale value."""


def renewing(call: LoadRequest, now: CachedValue, result: LoadResult[Any]) -> Program[LoadResult[Any]]:
    """Have one caller load it; the result for this one, who otherwise would get ``result``."""
    coordinator, options = call.coordinator, call.options
    single_flight = coordinator.single_flight
    if coordinator.rests(call.key) or call.nested_in(call.lock_id) is not None:
        return result
    if options.refresh == "inline" and (yield from commits.private(call)):
        return result
    inflight, mine = single_flight.join(call.key)
    patience = options.wait_stale if result.source == "stale" else 0.0
    if not mine:
        begin = clock.now()
        load_outcome = (yield Follow(single_flight, inflight, begin + patience)) if patience else None
        return (
            result if load_outcome is None or not load_outcome.is_for(begin) else _instead(call, load_outcome, result)
        )
    as_of = clock.now()
    try:
        claim, there = yield from _claimed(call, now, patience)
    except BaseException:
        single_flight.land(call.key, inflight, RETRY)
        raise
    if claim is None:
        load_outcome = RETRY if there is None else as_landing(call, there, as_of)
        single_flight.land(call.key, inflight, load_outcome)
        return _instead(call, load_outcome, result, mine=True)
    unstarted = partial(not_begun, call, inflight, claim)
    if options.refresh == "inline" and not patience:
        yield Lead(flown(call, inflight, loading(call, inflight, claim, there or NOT_FOUND)), unstarted)
        load_outcome = yield Follow(single_flight, inflight, inf, mine=True)
        return result if load_outcome is None else _instead(call, load_outcome, result, mine=True)
    if options.refresh in ("inline", "thread"):
        yield Behind(
            flown(call, inflight, loading(call, inflight, claim, there or NOT_FOUND)), unstarted, call.asynchronous
        )
        load_outcome = (yield Follow(single_flight, inflight, as_of + patience)) if patience else None
        return result if load_outcome is None else _instead(call, load_outcome, result, mine=True)
    single_flight.land(call.key, inflight, RETRY)
    hand_over(call, claim)
    return result


def _claimed(call: LoadRequest, now: CachedValue, patience: float) -> Program[tuple[Claim | None, CachedValue | None]]:
    """The claim if it is ours to load, and what there is now: what was there may have been invalidated since we looked. Else
    a newer value, if there is one."""
    coordinator = call.coordinator
    lease = None if call.options.refresh in ("inline", "thread") else round(1000 * call.options.start_within)
    wish = call.claim(patience, fresh_above=max(now.lives, call.stale_ms), lease=lease)
    claim = yield from claiming(call, wish)
    if claim is None:
        return None, None
    if claim.verdict == FRESH:
        newer = call.found(claim.value_left, claim.value)
        return None, None if newer.value is MISSING else newer
    if claim.verdict != CLAIMED:
        coordinator.rest(call.key, min(claim.lease_left, BRIEFLY) if claim.verdict == BUSY else claim.lease_left)
        return None, None
    if coordinator.fused:
        return claim, call.found(claim.value_left, claim.value)
    again = yield from looked_again(call, claim)
    if again.newer_than(now):
        yield from cut_off(call, claim)
        return None, again
    return claim, again


def _instead(
    call: LoadRequest, load_outcome: LoadOutcome, result: LoadResult[Any], *, mine: bool = False
) -> LoadResult[Any]:
    """What a flight brought in place of the value that there was."""
    if load_outcome is RETRY:
        return result
    if load_outcome.error is not None:
        if mine and not call.options.stale_if_error:
            raise load_outcome.error
        return result
    return landed(call, load_outcome, mine, 0.0)


def landed(call: LoadRequest, load_outcome: LoadOutcome, mine: bool, waited: float) -> LoadResult[Any]:
    """What a flight brought, to one of its callers."""
    if load_outcome.error is not None:
        raise load_outcome.failure(mine)
    value = load_outcome.value if mine else load_outcome.copy()
    source = load_outcome.source if mine or load_outcome.source in ("stale", "unlocked") else "waited"
    return LoadResult(value, source, load_outcome.fresh_for, waited)

"""How a value is come by: the programs of ``get_or_load``.

A value that is there costs one question. Without one, the callers of this process share a flight; who leads it claims the
load in the store, or waits there until somebody else's has ended. What was written or invalidated meanwhile is never
overwritten: the claim is void then, its value goes to the one who loaded it, and the others begin anew.
"""

from __future__ import annotations

from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any

from ...core import clock
from ...core.owners import running_loop
from ...primitives.load import BUSY, OVERRIDE_CLAIM
from .. import metrics
from ..errors import LoadTimeout
from ..results import MISSING, LoadResult
from ..values import NOT_FOUND
from . import early
from . import loader as loaders
from . import transactions as commits
from .effects import Follow, Lead
from .refresh import landed, renewing
from .run import claiming, flown, loading, looking, not_begun, settled
from .singleflight import EACH, RETRY, InflightLoad, LoadOutcome

if TYPE_CHECKING:
    from ...core.commands import Program
    from .request import LoadRequest


def getting(call: LoadRequest) -> Program[LoadResult[Any]]:
    """The value, from the cache or its loader."""
    now = commits.pending_value(call) or call.first or (yield from looking(call))
    if now.value is MISSING:
        return (yield from missing(call))
    if not now.fresh:
        metrics.count(call.coordinator.alias, metrics.STALE)
        return (yield from renewing(call, now, LoadResult(now.value, "stale", now.left)))
    metrics.count(call.coordinator.alias, metrics.HITS)
    hit = LoadResult(now.value, "hit", now.left)
    options = call.options
    if (
        options.early is not None
        and now.left is not None
        and early.due(options.early, call.name, now.left, call.ttl or inf)
    ):
        return (yield from renewing(call, now, hit))
    return hit


def missing(call: LoadRequest) -> Program[LoadResult[Any]]:
    """There is none: load it, or wait for the load that runs."""
    coordinator, single_flight = call.coordinator, call.coordinator.single_flight
    if call.nested_in(call.lock_id) is not None or (yield from commits.private(call)):
        return (yield from _beside(call))
    begin = clock.now()
    longest = yield from _longest_wait(call)
    until = begin + min(call.options.wait, longest)
    while True:
        inflight, mine = single_flight.join(call.key)
        load_outcome: LoadOutcome | None
        if mine:
            load_outcome = yield from _leading(call, inflight, until)
        elif call.follows(inflight):
            load_outcome = yield from _following(call, inflight, until)
        else:
            metrics.count(coordinator.alias, metrics.NESTED)
            load_outcome = EACH
        if load_outcome is EACH:
            return (yield from _beside(call))
        now = clock.now()
        if load_outcome is not None and load_outcome is not RETRY and (mine or load_outcome.is_for(begin)):
            if not mine:
                metrics.count(coordinator.alias, metrics.WAITS)
            return landed(call, load_outcome, mine, 0.0 if mine and load_outcome.source == "loaded" else now - begin)
        if now >= until:
            metrics.count(coordinator.alias, metrics.TIMEOUTS)
            if longest < (inf if call.options.on_timeout == "load" else call.options.wait):
                metrics.count(coordinator.alias, metrics.NESTED)
                return (yield from _beside(call))
            return (yield from _timed_out(call, begin))


def _longest_wait(call: LoadRequest) -> Program[float]:
    """Seconds to wait at most for another caller's load, whatever ``wait`` says: that load may wait for the end of the load or
    transaction in which this caller runs."""
    if (yield from commits.open_around()):
        return call.coordinator.performer.tuning.transaction_wait
    return call.lease / 1000 if loaders.loading.get() else inf


def _leading(call: LoadRequest, inflight: InflightLoad, until: float) -> Program[LoadOutcome]:
    single_flight = call.coordinator.single_flight
    inflight.home = running_loop()
    yield Lead(
        flown(call, inflight, _led(call, inflight, until)), partial(single_flight.land, call.key, inflight, RETRY)
    )
    load_outcome: LoadOutcome = yield Follow(single_flight, inflight, inf, mine=True)
    return load_outcome


def _following(call: LoadRequest, inflight: InflightLoad, until: float) -> Program[LoadOutcome | None]:
    """What another caller's flight brought; None if it took too long."""
    single_flight = call.coordinator.single_flight
    try:
        helps = loaders.serves(inflight.home)
        give_up = min(until, clock.now() + call.lease / 1000) if helps else until
        load_outcome: LoadOutcome | None = yield Follow(single_flight, inflight, give_up, helps)
    finally:
        call.leaves(inflight)
    if load_outcome is None and helps:
        # A task leads, whose synchronous code is to run in this very thread: do it in its place
        if (claimed := single_flight.take_over(inflight)) is not None:
            call.token, claim = claimed
            yield from flown(call, inflight, loading(call, inflight, claim, NOT_FOUND))
            return inflight.load_outcome
        return EACH if clock.now() < until else None
    if load_outcome is None and clock.now() >= inflight.overdue:
        single_flight.give_up(call.key, inflight)
    return load_outcome


def _led(call: LoadRequest, inflight: InflightLoad, until: float) -> Program[LoadOutcome]:
    claim = None
    if call.stores and not (call.coordinator.down and call.coordinator.fused):
        claim = yield from claiming(call, call.claim(max(until - clock.now(), 0.0)))
    if claim is not None:
        return (yield from settled(call, inflight, claim))
    if (yield from commits.around(call)):
        return EACH
    return (yield from loading(call, inflight, None, NOT_FOUND))


def refreshing(call: LoadRequest) -> Program[LoadResult[Any]]:
    """Load it now, whoever is at it: his value may be older than what is known to have changed."""
    coordinator = call.coordinator
    coordinator.forget(call.key)
    inflight, mine = coordinator.single_flight.join(call.key)
    inflight = inflight if mine else InflightLoad()
    claim = None
    if call.stores:
        try:
            claim = yield from claiming(call, call.claim(0.0, take=OVERRIDE_CLAIM))
        except BaseException:
            coordinator.single_flight.land(call.key, inflight, RETRY)
            raise
    yield Lead(
        flown(call, inflight, loading(call, inflight, claim, NOT_FOUND)), partial(not_begun, call, inflight, claim)
    )
    load_outcome = yield Follow(coordinator.single_flight, inflight, inf, mine=True)
    return landed(call, load_outcome, True, 0.0)


def _timed_out(call: LoadRequest, begin: float) -> Program[LoadResult[Any]]:
    """Somebody else still loads it, and the wait is over."""
    options = call.options
    if options.on_timeout == "load":
        claim = yield from claiming(call, call.claim(0.0, extra=call.lease))
        if claim is not None and claim.verdict == BUSY:
            claim = yield from claiming(call, call.claim(options.wait))
        if claim is None or claim.verdict != BUSY:
            inflight = InflightLoad()
            load_outcome = (
                (yield from loading(call, inflight, None, NOT_FOUND))
                if claim is None
                else (yield from settled(call, inflight, claim))
            )
            if load_outcome is not RETRY:
                return landed(call, load_outcome, True, clock.now() - begin)
    if options.default is not MISSING:
        return LoadResult(options.default, "default", None, clock.now() - begin)
    raise LoadTimeout(
        f"{call.name!r} is still being loaded by somebody else after {clock.now() - begin:.1f} s. Let stale values be "
        "served (stale=), wait longer (wait=), or give a default",
        call.plain,
    )


def _beside(call: LoadRequest) -> Program[LoadResult[Any]]:
    """Load it for this caller alone, and don't store it."""
    load_outcome = yield from loading(call, InflightLoad(), None, NOT_FOUND)
    return landed(call, load_outcome, True, 0.0)

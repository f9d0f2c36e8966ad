"""The algorithm of ``get_or_load`` and ``refresh``, for one key.

A hit costs one read. On a miss, the callers of a process share one load (singleflight): its leader claims the load in
the store, or waits there until the load of another process has ended. A write or an invalidation during a load voids
its claim: the loaded value isn't stored, only the leader gets it, and its followers start again.
"""

from __future__ import annotations

from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any

from django.core.cache import caches

from ...core import clock
from ...core.errors import LockBackendError
from ...core.owners import running_loop
from ...core.runner import run, run_twice_if_interrupted
from ...primitives.load import BUSY, CLAIMED, FAILED, FRESH, OVERRIDE_CLAIM, OVERRIDE_FAILURE, UNCOORDINATED
from .. import metrics
from ..errors import LoadFailed, LoadTimeout
from ..results import MISSING, LoadResult
from ..values import NOT_FOUND, Envelope, read_envelope
from . import early, nesting, transactions
from . import loader as loaders
from .effects import Follow, Lead
from .refresh import serve_and_refresh
from .run import (
    abandon_unstarted,
    claim_load,
    lead_until,
    outcome_of_read,
    publish_outcome,
    read_cache,
    run_load,
    send_claim,
)
from .shared_read import ABSENT, read_now
from .singleflight import LOAD_ALONE, RETRY, InflightLoad, LoadOutcome
from .store import REASON_NOT_STORED

if TYPE_CHECKING:
    from ...core.commands import Program
    from ...primitives.load import Claim
    from ..values import CachedValue
    from .coordinator import CacheCoordinator
    from .request import LoadRequest


def read_first(coordinator: CacheCoordinator, user_key: str, version: int | None) -> Any:
    """Read a value in this thread, before there is a program: a hit costs little more than the cache's own ``get``. Not
    for values on the server of their leases, whose reads are shared.

    Returns:
        The value itself, if it is fresh; else a ``CachedValue`` for ``get_value``.
    """
    value = (coordinator.get or caches[coordinator.alias].get)(user_key, MISSING, version=version)
    if value is MISSING:
        return NOT_FOUND
    if type(value) is Envelope or transactions.any_pending():
        return read_envelope(value)
    metrics.count(coordinator.alias, metrics.HITS)
    return value


def get_in_thread(request: LoadRequest, first_read: CachedValue | None = None) -> LoadResult[Any]:
    """Return the value, as ``get_value`` does. A hit on the server of the leases is returned before there is a program;
    not one with groups, whose stamps are read, too.

    Args:
        request: what to return.
        first_read: the result of ``read_first``, for values elsewhere.
    """
    coordinator = request.coordinator
    try:
        if coordinator.same_server and not coordinator.down and not request.group_keys:
            with_lifetime = request.needs_lifetime
            try:
                reply = read_now(request, with_lifetime=with_lifetime)
            except LockBackendError as failure:
                coordinator.record_failure(failure)
                reply = ABSENT
            if reply is not None:
                first_read = request.decode(*reply)
                if first_read.value is not MISSING and not with_lifetime and not transactions.any_pending():
                    metrics.count(coordinator.alias, metrics.HITS)
                    return LoadResult(first_read.value, "hit")
        result = run(get_value(request, first_read), coordinator.performer)
        if request.wake_readers is not None:
            request.wake_readers()
        return result
    except BaseException:
        if request.wake_readers is not None:
            run_twice_if_interrupted(request.wake_readers)
        raise


def get_value(request: LoadRequest, first_read: CachedValue | None = None) -> Program[LoadResult[Any]]:
    """Return the value, from the cache or its loader. ``first_read``: the cached value, if it has been read already."""
    cached = transactions.pending_value(request) or first_read or (yield from read_cache(request))
    if cached.value is MISSING:
        return (yield from load_missing(request))
    if not cached.fresh:
        metrics.count(request.coordinator.alias, metrics.STALE)
        return (yield from serve_and_refresh(request, cached, LoadResult(cached.value, "stale", cached.fresh_for)))
    metrics.count(request.coordinator.alias, metrics.HITS)
    hit = LoadResult(cached.value, "hit", cached.fresh_for)
    options = request.options
    if (
        options.early is not None
        and cached.fresh_for is not None
        and early.due(options.early, request.name, cached.fresh_for, request.ttl or inf)
    ):
        return (yield from serve_and_refresh(request, cached, hit))
    return hit


def load_missing(request: LoadRequest) -> Program[LoadResult[Any]]:
    """Load a value that the cache doesn't have, or wait for the load that is running."""
    coordinator = request.coordinator
    connections = yield from transactions.connections_around()
    inside = bool(connections or loaders.active_loads.get())
    if not request.cacheable or (
        inside and (nesting.is_inside(request.lock_id) or transactions.never_leaves_transactions(request, connections))
    ):
        return (yield from _load_alone(request, connections))
    longest = _longest_wait(request, in_transaction=bool(connections)) if inside else inf
    begin = clock.now()
    until = min(begin + min(request.options.wait, longest), request.deadline)
    while True:
        own = InflightLoad()
        try:
            inflight = coordinator.single_flight.join(request.key, own)
            is_leader = inflight is own
            if is_leader:
                outcome = yield from _lead(request, own, _claim_and_load(request, own, until), connections)
            else:
                outcome = yield from _follow(request, inflight, until)
        except BaseException:
            run_twice_if_interrupted(partial(abandon_unstarted, request, own))
            raise
        if outcome is LOAD_ALONE:
            return (yield from _load_alone(request, connections))
        now = clock.now()
        if outcome is not None and outcome is not RETRY and (is_leader or outcome.is_valid_since(begin)):
            if not is_leader:
                metrics.count(coordinator.alias, metrics.WAITS)
            waited = 0.0 if is_leader and outcome.source == "loaded" else now - begin
            return request.result_of(outcome, is_leader=is_leader, waited=waited)
        if now >= until:
            return (yield from _timed_out(request, begin, longest, connections))


def _longest_wait(request: LoadRequest, *, in_transaction: bool) -> float:
    """The longest wait for another caller's load in seconds, regardless of the option ``wait``, inside a load or a
    transaction: that other load may itself wait for its end."""
    return request.coordinator.engine.tuning.max_wait_in_transaction if in_transaction else request.lease / 1000


def _lead(
    request: LoadRequest, inflight: InflightLoad, load: Program[LoadOutcome], connections: list[Any]
) -> Program[LoadOutcome | None]:
    """Lead a load of this process. In a task the load continues if the caller is cancelled. Returns None if it takes
    longer than ``load_timeout``: then it continues, too."""
    inflight.leader_loop = running_loop()
    lead = Lead if request.deadline == inf else partial(lead_until, connections, in_task=request.asynchronous)
    yield lead(publish_outcome(request, inflight, load), partial(abandon_unstarted, request, inflight))
    return inflight.outcome or (
        yield Follow(request.coordinator.single_flight, inflight, request.deadline, is_leader=True)
    )


def _follow(request: LoadRequest, inflight: InflightLoad, until: float) -> Program[LoadOutcome | None]:
    """Wait for another caller's load. Returns its outcome, or None if it took too long."""
    outer_loads = nesting.start_following(inflight)
    if outer_loads is None:
        metrics.count(request.coordinator.alias, metrics.NESTED)
        return LOAD_ALONE
    single_flight = request.coordinator.single_flight
    try:
        if request.wake_readers is not None:
            request.wake_readers()
        leader_needs_thread = loaders.may_run_sync_code_of(inflight.leader_loop)
        wait_until = min(until, clock.now() + request.lease / 1000) if leader_needs_thread else until
        outcome: LoadOutcome | None = yield Follow(single_flight, inflight, wait_until, leader_needs_thread)
    finally:
        nesting.stop_following(inflight, outer_loads)
    if outcome is None and leader_needs_thread:
        # The leader is a task whose synchronous code has to run in this thread: run the load here instead
        if (claim := single_flight.take_over(inflight)) is not None:
            yield from publish_outcome(request, inflight, run_load(request, inflight, claim, NOT_FOUND))
            return inflight.outcome
        return LOAD_ALONE if clock.now() < until else None
    if outcome is None and clock.now() >= inflight.abandoned_at:
        single_flight.abandon(request.key, inflight)
    return outcome


def _claim_and_load(request: LoadRequest, inflight: InflightLoad, until: float) -> Program[LoadOutcome]:
    """Claim the load and carry it out; without a claim if the store is down."""
    claim, current = yield from claim_load(request, inflight, request.claim(max(until - clock.now(), 0.0)))
    if claim is None and (yield from transactions.connections_around(request.options.store_in_atomic)):
        return LOAD_ALONE
    if claim is not None and claim.verdict != CLAIMED:
        return (yield from _resolve_refusal(request, inflight, claim, current))
    return (yield from run_load(request, inflight, claim, current))


def _resolve_claim(
    request: LoadRequest, inflight: InflightLoad, claim: Claim | None, current: CachedValue
) -> Program[LoadOutcome]:
    """Act on the store's reply to a claim: load, return the value that was found, or retry."""
    if claim is None or claim.verdict == CLAIMED:
        return run_load(request, inflight, claim, current)
    return _resolve_refusal(request, inflight, claim, current)


def _resolve_refusal(
    request: LoadRequest, inflight: InflightLoad, claim: Claim, current: CachedValue
) -> Program[LoadOutcome]:
    """Act on a claim that was refused."""
    as_of = claim.sent_at
    if claim.verdict != FRESH and (request.group_keys or not request.coordinator.same_server):
        as_of = clock.now()
        current = yield from read_cache(request)
    if current.value is not MISSING:
        return outcome_of_read(request, current, as_of)
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
    again, current = yield from claim_load(request, inflight, request.claim(0.0, override=OVERRIDE_FAILURE))
    if again is not None and again.verdict == FAILED:
        again = None
    return (yield from _resolve_claim(request, inflight, again, current))


def reload_value(request: LoadRequest) -> Program[LoadResult[Any]]:
    """Load the value now, even if another load is running: that load may have read the data before the change that
    this caller knows of."""
    coordinator = request.coordinator
    coordinator.forget(request.key)
    inflight, claim = InflightLoad(), None
    try:
        if request.cacheable:
            coordinator.single_flight.join(request.key, inflight)
            claim = yield from send_claim(request, request.claim(0.0, override=OVERRIDE_CLAIM))
        yield Lead(
            publish_outcome(request, inflight, run_load(request, inflight, claim, NOT_FOUND)),
            partial(abandon_unstarted, request, inflight, claim),
        )
        outcome = inflight.outcome or (yield Follow(coordinator.single_flight, inflight, inf, is_leader=True))
    except BaseException:
        run_twice_if_interrupted(partial(abandon_unstarted, request, inflight, claim))
        raise
    if outcome.error is not None:
        raise outcome.error
    return request.result_of(outcome, is_leader=True)


def _timed_out(request: LoadRequest, begin: float, longest: float, connections: list[Any]) -> Program[LoadResult[Any]]:
    """Apply ``on_timeout``: the value is still being loaded after ``wait`` or ``load_timeout``, or after ``longest``,
    which limits the wait inside another load or a transaction."""
    options, alias = request.options, request.coordinator.alias
    metrics.count(alias, metrics.TIMEOUTS)
    if clock.now() < request.deadline and longest < (inf if options.on_timeout == "load" else options.wait):
        metrics.count(alias, metrics.NESTED)
        return (yield from _load_alone(request, connections))
    if options.on_timeout == "load" and request.deadline == inf:
        # Only one caller in the time of a lease may load beside the claim; the others wait once more
        inflight = InflightLoad()
        claim, current = yield from claim_load(request, inflight, request.claim(0.0, extra_interval=request.lease))
        if claim is not None and claim.verdict == BUSY:
            claim, current = yield from claim_load(request, inflight, request.claim(options.wait))
        if claim is None or claim.verdict != BUSY:
            outcome = yield from _resolve_claim(request, inflight, claim, current)
            if outcome is not RETRY:
                return request.result_of(outcome, is_leader=True, waited=clock.now() - begin)
    waited = clock.now() - begin
    error = LoadTimeout(
        f"{request.name!r} is still being loaded after {waited:.1f} s. Let stale values be served (stale=), wait longer "
        "(wait=, load_timeout=), or give a default",
        request.user_key,
    )
    return request.default_or_raise(error, waited)


def _load_alone(request: LoadRequest, connections: list[Any]) -> Program[LoadResult[Any]]:
    """Load the value for this caller only, without storing it. ``connections``: those of its open transactions."""
    begin, outcome = clock.now(), None
    if request.deadline == inf:
        outcome = yield from run_load(request, InflightLoad(), None, NOT_FOUND)
    while outcome is None or outcome is RETRY:
        if clock.now() >= request.deadline:
            return (yield from _timed_out(request, begin, inf, connections))
        inflight = InflightLoad()
        outcome = yield from _lead(request, inflight, run_load(request, inflight, None, NOT_FOUND), connections)
    return request.result_of(outcome, is_leader=True)

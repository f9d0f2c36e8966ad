"""A load by the caller that leads it: claim, look again, load, store.

``claim_load`` is its first half and ``run_load`` the second one. Between them the caller decides what a refused claim
means to it, and where the second half runs.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any

from ...core import clock
from ...core.errors import LockBackendError
from ...core.owners import running_loop
from ...core.runner import run_twice_if_interrupted
from ...primitives.load import CLAIMED, FRESH, NEVER_FRESH
from .. import metrics
from ..errors import LoadFailed
from ..results import MISSING
from ..values import NOT_FOUND, CachedValue, read_envelope
from . import early, groups, transactions
from . import loader as loaders
from .effects import CallLoader, Fetch, Lead, LeadInBackground
from .shared_read import read_shared
from .singleflight import RETRY, LoadOutcome
from .store import LoadCompletion, give_up_claim

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...core.commands import Program
    from ...core.hold import Hold
    from ...primitives.load import Claim
    from ...primitives.shared.requests import ClaimRequest
    from ..results import Source
    from .request import LoadRequest
    from .singleflight import InflightLoad


class LoaderCall:
    """One call of a loader, which may load many keys: what is queried or reported once for all of them."""

    def __init__(self) -> None:
        self.isolation = transactions.Isolation()
        self._reported = False

    def is_unreported(self) -> bool:
        """Whether this is the first key that reports the end of the call."""
        reported, self._reported = self._reported, True
        return not reported


def read_cache(request: LoadRequest) -> Program[CachedValue]:
    """Read the value from the cache. It counts as absent if the store is down or the value can't be deserialized."""
    coordinator = request.coordinator
    if request.group_keys:
        (cached,) = yield from groups.read_values((request,))
        return cached
    if not coordinator.same_server:
        return read_envelope((yield Fetch(request.user_key, request.version, request.key)))
    if coordinator.down:
        return NOT_FOUND
    try:
        return request.decode(*(yield from read_shared(request)))
    except LockBackendError as failure:
        coordinator.record_failure(failure)
        return NOT_FOUND


def claim_load(
    request: LoadRequest, inflight: InflightLoad, claim_request: ClaimRequest, before: CachedValue = NOT_FOUND
) -> Program[tuple[Claim | None, CachedValue]]:
    """The first half of a load: claim it and read the value again, which may have changed before the claim was granted.

    Args:
        request: what to load.
        inflight: the load in this process.
        claim_request: how to claim it in the store.
        before: the value to replace, as this caller has read it.

    Returns:
        The claim and the value as it is now. The verdict is ``FRESH`` if that value is newer than ``before``. The claim
        is None if the value has to be loaded without one: the store can't be reached, or it has a fresh value that
        can't be deserialized, and another caller loads that.
    """
    coordinator = request.coordinator
    claim = yield from send_claim(request, claim_request, retry=coordinator.same_server)
    if claim is None:
        return None, before
    if claim.verdict == CLAIMED and inflight.leader_loop is not None and running_loop() is not None:
        coordinator.single_flight.claimed(inflight, claim)  # not if it runs in a thread of a pool
    if coordinator.same_server and not request.group_keys:
        current = request.decode(claim.value_left, claim.value)
        if claim.verdict == FRESH and current.value is MISSING:  # it can't be deserialized
            claim = yield from send_claim(request, request.claim(0.0, fresh_above=NEVER_FRESH))
            return claim if claim is not None and claim.verdict == CLAIMED else None, current
        return claim, current
    if claim.verdict != CLAIMED:
        return claim, before
    as_of = clock.now()
    try:
        if request.group_keys:
            current = yield from read_cache(request)
        else:
            current = read_envelope((yield Fetch(request.user_key, request.version, request.key)))
    except BaseException as failure:
        yield request.load.abandoning(claim.token, claim.hold, request.lease)
        if not isinstance(failure, Exception):
            raise
        current = NOT_FOUND
    if current.newer_than(before):
        yield from give_up_claim(request, claim)
        return replace(claim, verdict=FRESH, sent_at=as_of), current
    return claim, current


def send_claim(request: LoadRequest, claim_request: ClaimRequest, *, retry: bool = True) -> Program[Claim | None]:
    """Claim the load.

    Args:
        request: what to load.
        claim_request: how to claim it.
        retry: repeat the first request while the store can't be reached.

    Returns:
        The claim, or None if the store can't be reached.
    """
    if request.coordinator.down:
        return None
    try:
        claim: Claim = yield from request.load.claiming(claim_request, retry=retry)
        return claim
    except LockBackendError as failure:
        request.coordinator.record_failure(failure)
        return None


def run_load(
    request: LoadRequest,
    inflight: InflightLoad,
    claim: Claim | None,
    before: CachedValue,
    loader_call: LoaderCall | None = None,
) -> Program[LoadOutcome]:
    """The second half of a load: call the loader and, with a claim, store the value.

    Args:
        request: what to load.
        inflight: the load in this process.
        claim: the claim in the store.
        before: the value that the cache has, stale or absent.
        loader_call: the call of the loader, if it loads other keys, too.
    """
    coordinator, options = request.coordinator, request.options
    limit_waiting(request, inflight, claim)
    if request.wake_readers is not None:
        request.wake_readers()
        request.wake_readers = None
    stamps = (yield from groups.begin_load(request, claim, before)) if request.group_keys and claim is not None else ()
    context = inflight.context = loaders.LoadContext(request.user_key, before.value)
    completion = LoadCompletion(request, claim, context, None if loader_call is None else loader_call.isolation, stamps)
    begin = clock.now()
    try:
        value = yield CallLoader(
            request.loader, loaders.arguments_for(request.loader, context), ((request.load.lock_id, inflight),)
        )
    except Exception as error:  # noqa: BLE001 - whatever a loader raises
        is_first = loader_call is None or loader_call.is_unreported()
        return (yield from _loader_failed(request, before, completion, error, clock.now() - begin, is_first=is_first))
    except GeneratorExit:
        raise
    except BaseException:
        yield from completion.interrupted()
        raise
    seconds = clock.now() - begin
    if loader_call is None or loader_call.is_unreported():
        if options.early is not None:
            early.learn(request.name, seconds)
        metrics.count(coordinator.alias, metrics.LOADS)
    if claim is None and request.cacheable:
        metrics.count(coordinator.alias, metrics.UNLOCKED)
    outcome, storage = yield from completion.loaded(value)
    metrics.send_load_finished(coordinator.cache_class, coordinator.alias, request.key, request.name, seconds, storage)
    return outcome


def _loader_failed(
    request: LoadRequest,
    before: CachedValue,
    completion: LoadCompletion,
    error: Exception,
    seconds: float,
    *,
    is_first: bool,
) -> Program[LoadOutcome]:
    """End a load whose loader raised. Its outcome is the value that the cache has, or the error. ``is_first``: of all
    keys that one call of the loader loads."""
    coordinator, options = request.coordinator, request.options
    if is_first:
        metrics.count(coordinator.alias, metrics.FAILURES)
    metrics.send_load_finished(coordinator.cache_class, coordinator.alias, request.key, request.name, seconds, "failed")
    serves_stale = before.value is not MISSING and options.stale_if_error
    if is_first and (serves_stale or options.default is not MISSING):
        what = "A stale value" if serves_stale else "The default"
        metrics.log.warning("%s of %r is served, since its loader failed: %r", what, request.name, error)
    pause = options.pause_after_error(stale_served=serves_stale)
    shared = yield from completion.failed(error, pause)
    if not serves_stale:
        return LoadOutcome(error=error, leader_only=not shared)
    if shared:
        coordinator.back_off(request.key, pause)
    return LoadOutcome(
        before.value,
        "stale",
        values=coordinator.values,
        fresh_for=before.fresh_for,
        leader_only=not shared,
        as_of=completion.current_until,
    )


def publish_outcome(request: LoadRequest, inflight: InflightLoad, program: Program[LoadOutcome]) -> Program[None]:
    """Run a program and give its outcome to all followers of the load. If an exception interrupts it, the claim is given
    up in the background."""
    single_flight = request.coordinator.single_flight
    try:
        inflight.begun = True
        try:
            outcome = yield from program
        except Exception as error:  # noqa: BLE001 - raised in all followers
            outcome = LoadOutcome(error=error)
        single_flight.finish(request.key, inflight, outcome)
    except BaseException:
        run_twice_if_interrupted(partial(_end_interrupted, request, inflight))
        raise


def _end_interrupted(request: LoadRequest, inflight: InflightLoad) -> None:
    if request.claim_request is not None:
        _abandon_claim(request, request.claim_request.token, request.claim_request.hold)
    outcome = LoadOutcome(error=LoadFailed("the load was interrupted", request.user_key), leader_only=True)
    request.coordinator.single_flight.finish(request.key, inflight, outcome)


def _abandon_claim(request: LoadRequest, token: str, hold: Hold | None) -> None:
    cleanup = request.load.abandoning(token, hold, request.lease)
    request.coordinator.performer.handlers[type(cleanup)](cleanup)


def lead_until(
    connections: list[Any], program: Program[None], on_unstarted: Callable[[], object], *, in_task: bool
) -> Lead | LeadInBackground:
    """Return the effect that runs the program of a load whose caller has a deadline: in another thread, or in a task.
    Inside a transaction or another load the caller runs it, since the loader may need what only this thread can see.

    Args:
        connections: those of the caller's open transactions.
        program: the program of the load.
        on_unstarted: ends the load for its followers if its program never begins.
        in_task: the loader is asynchronous.
    """
    if connections or in_task or loaders.active_loads.get():
        return Lead(program, on_unstarted)
    return LeadInBackground(program, on_unstarted, in_task, at_once=True)


def abandon_unstarted(request: LoadRequest, inflight: InflightLoad, claim: Claim | None = None) -> None:
    """Unless the program of a load has begun, give up its claim, and let its followers start again."""
    if inflight.begun:
        return
    if claim is not None:
        _abandon_claim(request, claim.token, claim.hold)
    request.coordinator.single_flight.finish(request.key, inflight, RETRY)


def outcome_of_read(request: LoadRequest, cached: CachedValue, as_of: float) -> LoadOutcome:
    """Return a cached value as the outcome of a load. ``as_of``: when its read was sent."""
    source: Source = "waited" if cached.fresh else "stale"
    return LoadOutcome(cached.value, source, values=request.coordinator.values, fresh_for=cached.fresh_for, as_of=as_of)


def limit_waiting(request: LoadRequest, inflight: InflightLoad, claim: Claim | None) -> None:
    """Let followers of the load wait only until its claim is void, or it has run for ``max_hold``."""
    abandon = partial(request.coordinator.single_flight.abandon, request.key, inflight)
    if claim is not None and claim.hold is not None:
        claim.hold.on_void = abandon
    if request.options.max_hold < inf:
        abandon(clock.now() + request.options.max_hold)

"""Loads many keys: one read for all of them, and one loader call for those that no other caller is loading.

The program of each key is that of a single one (``run.py``); ``pipeline.py`` runs them side by side. A batch never
waits for a claim while it holds others, so two batches with overlapping keys can't deadlock. Values that another caller
is loading are read again after this caller's own load, one by one.
"""

from __future__ import annotations

from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

from asgiref.sync import iscoroutinefunction

from ...core.runner import run_twice_if_interrupted
from ...primitives.load import CLAIMED, FRESH
from .. import metrics
from ..results import MISSING, LoadResult
from ..values import CachedValue
from . import early, nesting, transactions
from .effects import Follow, Lead, LeadInBackground
from .get import get_value
from .groups import read_values
from .pipeline import run_side_by_side
from .request import LoadRequest
from .run import LoaderCall, abandon_unstarted, claim_load, lead_until, outcome_of_read, publish_outcome, run_load
from .singleflight import RETRY, InflightLoad, LoadOutcome

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ...core.commands import Program
    from ..options import CheckedOptions
    from .coordinator import CacheCoordinator


class _Entry(NamedTuple):
    """One key of a batch that this caller loads.

    Attributes:
        before: the value that the cache had before this load, if any.
        inflight: the load, which this caller leads.
        claims: whether the load is claimed in the store.
    """

    request: LoadRequest
    before: CachedValue
    inflight: InflightLoad
    claims: bool


def get_values(
    coordinator: CacheCoordinator,
    keys: Iterable[str],
    version: int | None,
    loader: Callable[..., Any],
    options: CheckedOptions,
) -> Program[dict[str, LoadResult[Any]]]:
    """Return the values of all keys, in their order. The loader takes the list of keys to load, and returns a
    mapping."""
    requests = {key: LoadRequest(coordinator, key, version, _loader_of_one(loader, key), options) for key in keys}
    if not requests:
        return {}
    results: dict[str, LoadResult[Any]] = {}
    wanted: list[tuple[LoadRequest, CachedValue]] = []
    for request, cached in (yield from _read_all(list(requests.values()))):
        if cached.value is not MISSING:
            metrics.count(coordinator.alias, metrics.HITS if cached.fresh else metrics.STALE)
            results[request.user_key] = LoadResult(cached.value, "hit" if cached.fresh else "stale", cached.fresh_for)
        if _needs_load(request, cached):
            wanted.append((request, cached))
    batch: list[_Entry] = []
    try:
        yield from _join_all(wanted, batch)
        yield from _load_batch(batch, loader, options, results)
    except BaseException:
        run_twice_if_interrupted(partial(_abandon_unstarted, batch))
        raise
    for key, request in requests.items():
        if key not in results:
            results[key] = yield from get_value(request)
    return {key: results[key] for key in requests}


def _join_all(wanted: list[tuple[LoadRequest, CachedValue]], batch: list[_Entry]) -> Program[None]:
    """Add the keys that this caller loads to the batch: those that no other caller of this process is loading. If their
    values aren't stored, it loads all of them, without claims and followers."""
    if not wanted:
        return
    first, connections = wanted[0][0], (yield from transactions.connections_around())
    if transactions.never_leaves_transactions(first, connections):
        batch += [_Entry(*each, InflightLoad(), claims=False) for each in wanted if each[1].value is MISSING]
    elif not first.cacheable:
        batch += [_Entry(*each, InflightLoad(), claims=False) for each in wanted]
    else:
        for request, before in wanted:
            if not nesting.is_inside(request.lock_id):
                batch.append(_Entry(request, before, own := InflightLoad(), claims=True))
                if request.coordinator.single_flight.join(request.key, own) is not own:
                    batch.pop()


def _load_batch(
    batch: list[_Entry], loader: Callable[..., Any], options: CheckedOptions, results: dict[str, LoadResult[Any]]
) -> Program[None]:
    """Load all keys of a batch, those with a cached value in the background if ``refresh`` says so. Adds the values to
    ``results``."""
    if options.refresh != "inline":
        in_background = [entry for entry in batch if entry.request.user_key in results]
        batch = [entry for entry in batch if entry.request.user_key not in results]
        if in_background:
            program, on_unstarted = _leading_program(in_background, loader, InflightLoad())
            yield LeadInBackground(program, on_unstarted, iscoroutinefunction(loader))
    if batch:
        done = InflightLoad()
        deadline = batch[0].request.deadline
        connections = [] if deadline == inf else (yield from transactions.connections_around())
        lead = Lead if deadline == inf else partial(lead_until, connections, in_task=iscoroutinefunction(loader))
        yield lead(*_leading_program(batch, loader, done))
        yield Follow(batch[0].request.coordinator.single_flight, done, deadline)
        _collect(batch, results)


def _collect(batch: list[_Entry], results: dict[str, LoadResult[Any]]) -> None:
    """Add the values that were loaded.

    Raises:
        Exception: the load of a key without a cached value failed, and there is no default.
    """
    for entry in batch:
        key, outcome = entry.request.user_key, entry.inflight.outcome
        if outcome is None or outcome is RETRY:
            continue
        if outcome.error is None:
            results[key] = LoadResult(outcome.value, outcome.source, outcome.fresh_for)
        elif key not in results:
            results[key] = entry.request.default_or_raise(outcome.error)


def _needs_load(request: LoadRequest, cached: CachedValue) -> bool:
    if cached.value is MISSING:
        return True
    if not cached.fresh:
        return not request.coordinator.backs_off(request.key)
    return cached.fresh_for is not None and early.due(
        request.options.early, request.name, cached.fresh_for, request.ttl or inf
    )


def _loader_of_one(loader: Callable[..., Any], key: str) -> Callable[[], Any]:
    """Return a loader of one key, for a value whose load by another caller failed."""
    if iscoroutinefunction(loader):

        async def aload() -> Any:
            return (await loader([key])).get(key)

        return aload
    return lambda: loader([key]).get(key)


def _read_all(requests: list[LoadRequest]) -> Program[list[tuple[LoadRequest, CachedValue]]]:
    cached = {request: transactions.pending_value(request) for request in requests}
    to_read = [request for request in requests if cached[request] is None]
    if to_read:
        cached |= zip(to_read, (yield from read_values(to_read)), strict=True)
    return [(request, found) for request, found in cached.items() if found is not None]


def _leading_program(
    batch: list[_Entry], loader: Callable[..., Any], done: InflightLoad
) -> tuple[Program[None], Callable[[], None]]:
    finish_all = partial(_finish_all, batch, done)
    return _lead(batch, loader, finish_all), finish_all


def _lead(batch: list[_Entry], loader: Callable[..., Any], finish_all: Callable[[], None]) -> Program[None]:
    """Load all keys of a batch: run the program of each, side by side."""
    loader_call = LoaderCall()
    try:
        yield from run_side_by_side(
            {
                entry.request.user_key: publish_outcome(entry.request, entry.inflight, _load_one(entry, loader_call))
                for entry in batch
            },
            loader,
        )
    finally:
        finish_all()


def _load_one(entry: _Entry, loader_call: LoaderCall) -> Program[LoadOutcome]:
    """Load one key, unless another caller has its claim: the caller asks for that one again after its own load."""
    request, before, inflight, claims = entry
    claim, current = None, before
    if claims:
        claim, current = yield from claim_load(request, inflight, request.claim(0.0, before), before)
    if claim is None or claim.verdict == CLAIMED:
        return (yield from run_load(request, inflight, claim, current, loader_call))
    return outcome_of_read(request, current, claim.sent_at) if claim.verdict == FRESH else RETRY


def _finish_all(batch: list[_Entry], done: InflightLoad) -> None:
    """End the loads that have no outcome."""
    single_flight = batch[0].request.coordinator.single_flight
    for entry in batch:
        single_flight.finish(entry.request.key, entry.inflight, RETRY)
    single_flight.finish("", done, RETRY)


def _abandon_unstarted(batch: list[_Entry]) -> None:
    for entry in batch:
        abandon_unstarted(entry.request, entry.inflight)

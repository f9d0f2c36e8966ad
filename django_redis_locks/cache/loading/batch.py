"""Loads many keys: one read for all of them, and one loader call for those that no other caller is loading.

A batch never waits for a claim while it holds others, so two batches with overlapping keys can't deadlock. Values that
another caller is loading are read again after this caller's own load.
"""

from __future__ import annotations

from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any

from asgiref.sync import iscoroutinefunction

from ...core import clock
from ...core.errors import LockBackendError
from ...primitives.load import CLAIMED, FRESH
from ...primitives.shared.load_commands import read_command
from ...primitives.shared.retry import retry_command
from .. import metrics
from ..results import MISSING, LoadResult
from ..values import NOT_FOUND, CachedValue, read_envelope
from . import early, nesting, transactions
from . import loader as loaders
from .effects import FetchMany, Follow, Lead, LeadInBackground
from .get import get_value
from .pipeline import run_pipelined
from .request import LoadRequest
from .run import claim_load, limit_waiting, loader_effect, outcome_of_read
from .singleflight import RETRY, InflightLoad, LoadOutcome
from .store import LoadCompletion

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ...core.commands import Program
    from ...primitives.load import Claim
    from ..options import CheckedOptions
    from .coordinator import CacheCoordinator


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
    wanted: list[_BatchEntry] = []
    for request, cached in (yield from _read_all(coordinator, list(requests.values()))):
        if cached.value is not MISSING:
            metrics.count(coordinator.alias, metrics.HITS if cached.fresh else metrics.STALE)
            results[request.user_key] = LoadResult(cached.value, "hit" if cached.fresh else "stale", cached.fresh_for)
        if _needs_load(request, cached):
            wanted.append(_BatchEntry(request, cached))
    batch = yield from _join_all(wanted)
    if options.refresh != "inline":
        in_background = [entry for entry in batch if entry.request.user_key in results]
        batch = [entry for entry in batch if entry.request.user_key not in results]
        if in_background:
            yield LeadInBackground(
                *_leading_program(coordinator, in_background, loader, InflightLoad()), iscoroutinefunction(loader)
            )
    if batch:
        done = InflightLoad()
        yield Lead(*_leading_program(coordinator, batch, loader, done))
        yield Follow(coordinator.single_flight, done, inf)
        _collect(batch, results)
    for key, request in requests.items():
        if key not in results:
            results[key] = yield from get_value(request)
    return {key: results[key] for key in requests}


def _join_all(wanted: list[_BatchEntry]) -> Program[list[_BatchEntry]]:
    """Return the entries that this caller loads: those that no other caller of this process is loading."""
    if wanted and (yield from transactions.never_leaves_transactions(wanted[0].request)):
        return [entry.without_claim() for entry in wanted if entry.before.value is MISSING]
    return [entry for entry in wanted if entry.join()]


def _collect(batch: list[_BatchEntry], results: dict[str, LoadResult[Any]]) -> None:
    for entry in batch:
        if entry.error is not None and entry.request.user_key not in results:
            raise entry.error
        if entry.result is not None:
            results[entry.request.user_key] = entry.result


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


def _fetch_effect(requests: list[LoadRequest]) -> FetchMany:
    return FetchMany({request.user_key: request.key for request in requests}, requests[0].version)


def _read_all(
    coordinator: CacheCoordinator, requests: list[LoadRequest]
) -> Program[list[tuple[LoadRequest, CachedValue]]]:
    uncommitted = {request.user_key: transactions.pending_value(request) for request in requests}
    to_read = [request for request in requests if uncommitted[request.user_key] is None]
    if not coordinator.same_server:
        cached: dict[str, Any] = (yield _fetch_effect(to_read)) if to_read else {}
        return [
            (request, uncommitted[request.user_key] or read_envelope(cached.get(request.user_key, MISSING)))
            for request in requests
        ]
    replies: list[tuple[int, Any]] = [(-2, None)] * len(to_read)
    if to_read and not coordinator.down:
        command = read_command(tuple(request.key for request in to_read))
        try:
            replies, _, _ = yield from retry_command(command, clock.now())
        except LockBackendError as failure:
            coordinator.record_failure(failure)
    decoded = {request.user_key: request.decode(*reply) for request, reply in zip(to_read, replies, strict=True)}
    return [(request, uncommitted[request.user_key] or decoded[request.user_key]) for request in requests]


class _BatchEntry:
    """One key of a batch that this caller loads, unless another caller does.

    Attributes:
        before: the value that the cache had before this load, if any.
        inflight: the load, once this caller leads it.
        claim: the reply to its claim.
        claims: whether a claim is made at all.
    """

    def __init__(self, request: LoadRequest, before: CachedValue) -> None:
        self.request = request
        self.before = before
        self.inflight: InflightLoad | None = None
        self.claim: Claim | None = None
        self.claims = request.cacheable
        self.result: LoadResult[Any] | None = None
        self.error: BaseException | None = None

    def join(self) -> bool:
        """Start the load of this key; False if another caller of this process is loading it."""
        if nesting.is_inside(self.request.lock_id):
            return False
        inflight, is_leader = self.request.coordinator.single_flight.join(self.request.key)
        self.inflight = inflight if is_leader else None
        return is_leader

    def without_claim(self) -> _BatchEntry:
        """Load without a claim, and without followers."""
        self.inflight = InflightLoad()
        self.claims = False
        return self

    def finish(self, outcome: LoadOutcome) -> None:
        assert self.inflight is not None  # noqa: S101 - the load was started
        self.request.coordinator.single_flight.finish(self.request.key, self.inflight, outcome)
        if outcome.error is not None:
            self.error = outcome.error
        elif outcome is not RETRY:
            self.result = LoadResult(outcome.value, outcome.source, outcome.fresh_for)


def _leading_program(
    coordinator: CacheCoordinator, batch: list[_BatchEntry], loader: Callable[..., Any], done: InflightLoad
) -> tuple[Program[None], Callable[[], None]]:
    return _lead(coordinator, batch, loader, done), partial(_finish_all, coordinator, batch, done)


def _lead(
    coordinator: CacheCoordinator, batch: list[_BatchEntry], loader: Callable[..., Any], done: InflightLoad
) -> Program[None]:
    try:
        yield from _claim_and_load(coordinator, batch, loader)
    finally:
        _finish_all(coordinator, batch, done)


def _finish_all(coordinator: CacheCoordinator, batch: list[_BatchEntry], done: InflightLoad) -> None:
    for entry in batch:
        entry.finish(RETRY)
    coordinator.single_flight.finish("", done, RETRY)


def _claim_and_load(
    coordinator: CacheCoordinator, batch: list[_BatchEntry], loader: Callable[..., Any]
) -> Program[None]:
    owned = batch
    if batch[0].claims and not coordinator.down:
        programs = [
            claim_load(
                entry.request,
                entry.request.claim(0.0, fresh_above=max(entry.before.remaining_ms, entry.request.stale_ms)),
            )
            for entry in batch
        ]
        owned = _resolve_claims(coordinator, batch, (yield from run_pipelined(programs)))
    if not coordinator.same_server:
        try:
            owned = yield from _reread(coordinator, owned)
        except GeneratorExit:
            raise
        except BaseException:
            for entry in owned:
                if entry.claim is not None:
                    yield entry.request.load.abandoning(entry.claim.token, entry.claim.hold, entry.request.lease)
            raise
    if owned:
        yield from _run_loader(coordinator, owned, loader)


def _resolve_claims(
    coordinator: CacheCoordinator, batch: list[_BatchEntry], claims: list[Claim | Exception | None]
) -> list[_BatchEntry]:
    """Return the entries whose claim was granted, and finish the others."""
    owned = []
    for entry, claim in zip(batch, claims, strict=True):
        if isinstance(claim, Exception):
            raise claim
        entry.claim = claim
        cached = NOT_FOUND if claim is None else entry.request.decode(claim.value_left, claim.value)
        if claim is None or claim.verdict == CLAIMED:
            if claim is not None and coordinator.same_server:
                entry.before = cached  # the value may have been invalidated since the read
            owned.append(entry)
            continue
        fresh = claim.verdict == FRESH and cached.value is not MISSING
        entry.finish(outcome_of_read(entry.request, cached, claim.sent_at) if fresh else RETRY)
    return owned


def _reread(coordinator: CacheCoordinator, owned: list[_BatchEntry]) -> Program[list[_BatchEntry]]:
    """Read the values again under the claims. Return the entries that still have to be loaded, and finish those whose
    value was stored since the first read."""
    if not owned:
        return owned
    as_of = clock.now()
    cached: dict[str, Any] = yield _fetch_effect([entry.request for entry in owned])
    unchanged = []
    for entry in owned:
        current = read_envelope(cached.get(entry.request.user_key, MISSING))
        if not current.newer_than(entry.before):
            entry.before = current
            unchanged.append(entry)
            continue
        if entry.claim is not None:
            yield entry.request.load.abandoning(entry.claim.token, entry.claim.hold, entry.request.lease)
        entry.finish(outcome_of_read(entry.request, current, as_of))
    return unchanged


def _failed(
    coordinator: CacheCoordinator, owned: list[_BatchEntry], completions: list[LoadCompletion], error: Exception
) -> Program[None]:
    """Finish all entries after the loader raised: with the stale value if there is one, otherwise with the error."""
    metrics.count(coordinator.alias, metrics.FAILURES)
    options = owned[0].request.options
    serve_stale = [entry.before.value is not MISSING and options.stale_if_error for entry in owned]
    pauses = [options.pause_after_error(stale_served=serves) for serves in serve_stale]
    shared_flags = yield from run_pipelined(
        [completion.failed(error, seconds) for completion, seconds in zip(completions, pauses, strict=True)]
    )
    for entry, serves, pause, shared in zip(owned, serve_stale, pauses, shared_flags, strict=True):
        leader_only = shared is not True
        if not serves:
            entry.finish(LoadOutcome(error=error, leader_only=leader_only))
            continue
        if not leader_only:
            coordinator.back_off(entry.request.key, pause)
        before = entry.before
        entry.finish(
            LoadOutcome(
                before.value, "stale", values=coordinator.values, fresh_for=before.fresh_for, leader_only=leader_only
            )
        )


def _run_loader(coordinator: CacheCoordinator, owned: list[_BatchEntry], loader: Callable[..., Any]) -> Program[None]:
    isolation = transactions.Isolation()
    completions = [
        LoadCompletion(entry.request, entry.claim, loaders.LoadContext(entry.request.user_key, MISSING), isolation)
        for entry in owned
    ]
    for entry in owned:
        if entry.inflight is not None:
            limit_waiting(entry.request, entry.inflight, entry.claim)
    begin = clock.now()
    try:
        keys = [entry.request.user_key for entry in owned]
        loaded: Any = yield loader_effect(
            loader, (keys,), tuple((entry.request.lock_id, entry.inflight) for entry in owned)
        )
        values = [loaded.get(key) for key in keys]
    except Exception as error:  # noqa: BLE001 - whatever a loader raises
        yield from _failed(coordinator, owned, completions, error)
        return
    except GeneratorExit:
        raise
    except BaseException:
        for completion in completions:
            yield from completion.interrupted()
        raise
    seconds = clock.now() - begin
    metrics.count(coordinator.alias, metrics.LOADS)
    results = yield from run_pipelined(
        [completion.loaded(value) for completion, value in zip(completions, values, strict=True)]
    )
    for entry, result in zip(owned, results, strict=True):
        if isinstance(result, BaseException):
            entry.finish(LoadOutcome(error=result))
            continue
        outcome, storage = result
        entry.finish(outcome)
        metrics.send_load_finished(
            coordinator.cache_class, coordinator.alias, entry.request.key, entry.request.name, seconds, storage
        )

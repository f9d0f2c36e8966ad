"""Many values at once: one question for all, one call of the loader for those that nobody else loads.

No claim waits while others are held, so callers who ask in different orders can't wait for each other. What somebody else
loads is looked at again when one's own is done.
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
from ..values import NOT_FOUND, CachedValue, kept
from . import early
from . import loader as loaders
from . import transactions as commits
from .effects import Behind, FetchMany, Follow, Lead
from .get import getting
from .pipeline import together
from .request import LoadRequest
from .run import as_landing, bounded, claiming, running
from .singleflight import RETRY, InflightLoad, LoadOutcome
from .store import StoreResult

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ...core.commands import Program
    from ...primitives.load import Claim
    from ..options import CheckedOptions
    from .coordinator import CacheCoordinator


def getting_many(
    coordinator: CacheCoordinator,
    keys: Iterable[str],
    version: int | None,
    loader: Callable[..., Any],
    options: CheckedOptions,
) -> Program[dict[str, LoadResult[Any]]]:
    """The values of all keys, in their order. The loader is given the keys to load, and returns a mapping."""
    calls = {key: LoadRequest(coordinator, key, version, _one(loader, key), options) for key in keys}
    if not calls:
        return {}
    results: dict[str, LoadResult[Any]] = {}
    wanted: list[_Wanted] = []
    for call, now in (yield from _looking(coordinator, list(calls.values()))):
        if now.value is not MISSING:
            metrics.count(coordinator.alias, metrics.HITS if now.fresh else metrics.STALE)
            results[call.plain] = LoadResult(now.value, "hit" if now.fresh else "stale", now.left)
        if _is_wanted(call, now):
            wanted.append(_Wanted(call, now))
    batch = yield from _boarding(wanted)
    if options.refresh != "inline":
        behind = [one for one in batch if one.call.plain in results]
        batch = [one for one in batch if one.call.plain not in results]
        if behind:
            yield Behind(*_led_by_one(coordinator, behind, loader, InflightLoad()), iscoroutinefunction(loader))
    if batch:
        done = InflightLoad()
        yield Lead(*_led_by_one(coordinator, batch, loader, done))
        yield Follow(coordinator.single_flight, done, inf)
        _note(batch, results)
    for key, call in calls.items():
        if key not in results:
            results[key] = yield from getting(call)
    return {key: results[key] for key in calls}


def _boarding(wanted: list[_Wanted]) -> Program[list[_Wanted]]:
    """Those that this caller loads, if no other one has claimed them."""
    if wanted and (yield from commits.private(wanted[0].call)):
        return [one.apart() for one in wanted if one.before.value is MISSING]
    return [one for one in wanted if one.board()]


def _note(batch: list[_Wanted], results: dict[str, LoadResult[Any]]) -> None:
    for one in batch:
        if one.error is not None and one.call.plain not in results:
            raise one.error
        if one.result is not None:
            results[one.call.plain] = one.result


def _is_wanted(call: LoadRequest, now: CachedValue) -> bool:
    if now.value is MISSING:
        return True
    if not now.fresh:
        return not call.coordinator.rests(call.key)
    return now.left is not None and early.due(call.options.early, call.name, now.left, call.ttl or inf)


def _one(loader: Callable[..., Any], key: str) -> Callable[[], Any]:
    """A loader for one of them, which is what somebody else's failed load leaves to do."""
    if iscoroutinefunction(loader):

        async def aload() -> Any:
            return (await loader([key])).get(key)

        return aload
    return lambda: loader([key]).get(key)


def _fetching(calls: list[LoadRequest]) -> FetchMany:
    return FetchMany({call.plain: call.key for call in calls}, calls[0].version)


def _looking(coordinator: CacheCoordinator, calls: list[LoadRequest]) -> Program[list[tuple[LoadRequest, CachedValue]]]:
    pending = {call.plain: commits.pending_value(call) for call in calls}
    asked = [call for call in calls if pending[call.plain] is None]
    if not coordinator.fused:
        there: dict[str, Any] = (yield _fetching(asked)) if asked else {}
        return [(call, pending[call.plain] or kept(there.get(call.plain, MISSING))) for call in calls]
    answers: list[tuple[int, Any]] = [(-2, None)] * len(asked)
    if asked and not coordinator.down:
        try:
            answers, _, _ = yield from retry_command(read_command(tuple(call.key for call in asked)), clock.now())
        except LockBackendError as failure:
            coordinator.failed(failure)
    seen = {call.plain: call.found(*answer) for call, answer in zip(asked, answers, strict=True)}
    return [(call, pending[call.plain] or seen[call.plain]) for call in calls]


class _Wanted:
    """A value that is to be loaded by us, if nobody else is at it."""

    def __init__(self, call: LoadRequest, before: CachedValue) -> None:
        self.call = call
        self.before = before
        self.inflight: InflightLoad | None = None
        self.claim: Claim | None = None
        self.claims = call.stores
        self.result: LoadResult[Any] | None = None
        self.error: BaseException | None = None

    def board(self) -> bool:
        """Begin a flight, unless there is one."""
        if self.call.nested_in(self.call.lock_id) is not None:
            return False
        inflight, mine = self.call.coordinator.single_flight.join(self.call.key)
        self.inflight = inflight if mine else None
        return mine

    def apart(self) -> _Wanted:
        """Load it without a claim, in a flight that no other caller joins."""
        self.inflight = InflightLoad()
        self.claims = False
        return self

    def land(self, load_outcome: LoadOutcome) -> None:
        assert self.inflight is not None  # noqa: S101 - it has boarded
        self.call.coordinator.single_flight.land(self.call.key, self.inflight, load_outcome)
        if load_outcome.error is not None:
            self.error = load_outcome.error
        elif load_outcome is not RETRY:
            self.result = LoadResult(load_outcome.value, load_outcome.source, load_outcome.fresh_for)


def _led_by_one(
    coordinator: CacheCoordinator, batch: list[_Wanted], loader: Callable[..., Any], done: InflightLoad
) -> tuple[Program[None], Callable[[], None]]:
    return _leading(coordinator, batch, loader, done), partial(_land_all, coordinator, batch, done)


def _leading(
    coordinator: CacheCoordinator, batch: list[_Wanted], loader: Callable[..., Any], done: InflightLoad
) -> Program[None]:
    try:
        yield from _led(coordinator, batch, loader)
    finally:
        _land_all(coordinator, batch, done)


def _land_all(coordinator: CacheCoordinator, batch: list[_Wanted], done: InflightLoad) -> None:
    for one in batch:
        one.land(RETRY)
    coordinator.single_flight.land("", done, RETRY)


def _led(coordinator: CacheCoordinator, batch: list[_Wanted], loader: Callable[..., Any]) -> Program[None]:
    ours = batch
    if batch[0].claims and not coordinator.down:
        wishes = [
            claiming(one.call, one.call.claim(0.0, fresh_above=max(one.before.lives, one.call.stale_ms)))
            for one in batch
        ]
        ours = _ours_of(coordinator, batch, (yield from together(wishes)))
    if not coordinator.fused:
        try:
            ours = yield from _looked_again(coordinator, ours)
        except GeneratorExit:
            raise
        except BaseException:
            for one in ours:
                if one.claim is not None:
                    yield one.call.load.abandoning(one.call.token, one.claim.hold, one.call.lease)
            raise
    if ours:
        yield from _loading(coordinator, ours, loader)


def _ours_of(
    coordinator: CacheCoordinator, batch: list[_Wanted], claims: list[Claim | Exception | None]
) -> list[_Wanted]:
    """Those that are ours to load; the others land."""
    ours = []
    for one, claim in zip(batch, claims, strict=True):
        if isinstance(claim, Exception):
            raise claim
        one.claim = claim
        there = NOT_FOUND if claim is None else one.call.found(claim.value_left, claim.value)
        if claim is None or claim.verdict == CLAIMED:
            if claim is not None and coordinator.fused:
                one.before = there  # it may have been invalidated since we looked
            ours.append(one)
            continue
        fresh = claim.verdict == FRESH and there.value is not MISSING
        one.land(as_landing(one.call, there, claim.asked) if fresh else RETRY)
    return ours


def _looked_again(coordinator: CacheCoordinator, ours: list[_Wanted]) -> Program[list[_Wanted]]:
    """What may have been stored between our look and our claim."""
    if not ours:
        return ours
    as_of = clock.now()
    there: dict[str, Any] = yield _fetching([one.call for one in ours])
    left = []
    for one in ours:
        now = kept(there.get(one.call.plain, MISSING))
        if not now.newer_than(one.before):
            one.before = now
            left.append(one)
            continue
        if one.claim is not None:
            yield one.call.load.abandoning(one.call.token, one.claim.hold, one.call.lease)
        one.land(as_landing(one.call, now, as_of))
    return left


def _failed(
    coordinator: CacheCoordinator, ours: list[_Wanted], endings: list[StoreResult], error: Exception
) -> Program[None]:
    """The loader raised: who has a stale value is served that."""
    metrics.count(coordinator.alias, metrics.FAILURES)
    options = ours[0].call.options
    serves = [one.before.value is not MISSING and options.stale_if_error for one in ours]
    pauses = [options.pause_after_error(stale_served=served) for served in serves]
    told = yield from together([ending.failed(error, seconds) for ending, seconds in zip(endings, pauses, strict=True)])
    for one, served, pause, in_force in zip(ours, serves, pauses, told, strict=True):
        alone = in_force is not True
        if not served:
            one.land(LoadOutcome(error=error, alone=alone))
            continue
        if not alone:
            coordinator.rest(one.call.key, pause)
        before = one.before
        one.land(LoadOutcome(before.value, "stale", values=coordinator.values, fresh_for=before.left, alone=alone))


def _loading(coordinator: CacheCoordinator, ours: list[_Wanted], loader: Callable[..., Any]) -> Program[None]:
    isolation = commits.Isolation()
    endings = [
        StoreResult(one.call, one.claim, loaders.LoadContext(one.call.plain, MISSING), isolation) for one in ours
    ]
    for one in ours:
        if one.inflight is not None:
            bounded(one.call, one.inflight, one.claim)
    begin = clock.now()
    try:
        keys = [one.call.plain for one in ours]
        brought: Any = yield running(loader, (keys,), tuple((one.call.lock_id, one.inflight) for one in ours))
        values = [brought.get(key) for key in keys]
    except Exception as error:  # noqa: BLE001 - whatever a loader raises
        yield from _failed(coordinator, ours, endings, error)
        return
    except GeneratorExit:
        raise
    except BaseException:
        for ending in endings:
            yield from ending.interrupted()
        raise
    seconds = clock.now() - begin
    metrics.count(coordinator.alias, metrics.LOADS)
    results = yield from together([ending.brought(value) for ending, value in zip(endings, values, strict=True)])
    for one, result in zip(ours, results, strict=True):
        if isinstance(result, BaseException):
            one.land(LoadOutcome(error=result))
            continue
        load_outcome, outcome = result
        one.land(load_outcome)
        metrics.finished(coordinator.kind, coordinator.alias, one.call.key, one.call.name, seconds, outcome)

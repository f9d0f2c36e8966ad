"""How a load ends: its value is stored, or refused, or kept for the end of a transaction; or there is none."""

from __future__ import annotations

from functools import partial
from random import random
from typing import TYPE_CHECKING, Any, Final

from ...core import clock
from ...core.errors import LockBackendError
from ...core.owners import running_loop
from ...core.runner import run
from .. import metrics, values
from ..results import MISSING
from . import transactions as commits
from .effects import Keep, Remove
from .singleflight import LoadOutcome

if TYPE_CHECKING:
    from ...core.commands import Program
    from ...primitives.load import Claim
    from ..results import Source
    from .loader import LoadContext
    from .request import LoadRequest

UNSHARED: Final = "unshared"
"""Said of such a load."""


def cut_off(call: LoadRequest, claim: Claim, seconds: float = 0.0, why: str = "") -> Program[bool]:
    """Give a claim up; False if it was void. If the store doesn't answer it ends by itself."""
    try:
        ours: bool = yield from call.load.giving_up(call.token, claim.hold, round(seconds * 1000), why)
    except LockBackendError as failure:
        call.coordinator.failed(failure)
        return True
    return ours


class StoreResult:
    """The end of one load. Without a claim nothing is stored: it isn't known what was written or invalidated meanwhile."""

    def __init__(
        self, call: LoadRequest, claim: Claim | None, context: LoadContext, isolation: commits.Isolation
    ) -> None:
        self._call = call
        self._claim = claim
        self._token = call.token
        self._by_permit = False
        self._context = context
        self._isolation = isolation

    def failed(self, error: BaseException, seconds: float) -> Program[bool]:
        """The loader raised. For so many seconds other callers get that, too.

        Returns:
            Whether that concerns other callers: not if something was written or invalidated meanwhile, nor if it happened
            inside of a transaction.
        """
        private = bool((yield from commits.around(self._call)))
        if self._claim is None:
            return not private
        why = f"{type(error).__name__}: {error}"
        return (yield from cut_off(self._call, self._claim, 0.0 if private else seconds, why)) and not private

    def interrupted(self) -> Program[None]:
        """By what is no failure of the loader: the next one loads. All that is left to do is done in the background."""
        if self._claim is not None:
            yield self._call.load.abandoning(self._call.token, self._claim.hold, self._call.lease)

    def brought(self, value: Any) -> Program[tuple[LoadOutcome, str]]:
        """The loader's value: what callers get, and what became of it in the cache. Whatever the cache, or a connection to
        the database, raises: the claim ends."""
        try:
            return (yield from self._brought(value))
        except Exception as error:  # noqa: BLE001 - the caller's landing raises it
            shared = yield from self.failed(error, self._call.options.pause_after_error(stale_served=False))
            return LoadOutcome(error=error, alone=not shared), "failed"
        except GeneratorExit:
            raise
        except BaseException:
            yield from self.interrupted()
            raise

    def _brought(self, value: Any) -> Program[tuple[LoadOutcome, str]]:
        call, claim = self._call, self._claim
        keep = self._keep(value)
        transactions = yield from commits.around(call)
        source: Source = "unlocked" if claim is None and call.stores else "loaded"
        if keep == 0 or not self._context.stores:
            if claim is not None:
                yield from cut_off(call, claim, call.coordinator.performer.tuning.unstored_memory, UNSHARED)
            return LoadOutcome(value, source, values=call.coordinator.values, alone=bool(transactions)), "unstored"
        if claim is None and not transactions:
            return LoadOutcome(value, source, values=call.coordinator.values), "unstored"
        data = call.coordinator.values.dumps(value)
        if transactions:
            return (yield from self._awaiting_commit(transactions, value, data, keep))
        return (yield from self.stored(value, data, keep))

    def _awaiting_commit(
        self, transactions: list[Any], value: Any, data: Any, keep: float | None
    ) -> Program[tuple[LoadOutcome, str]]:
        """Only these transactions see the value before they commit; no other caller waits for that."""
        call, claim = self._call, self._claim
        store = None
        if (
            claim is not None
            and commits.may_store(call, transactions)
            and self._isolation.is_read_committed(transactions)
        ):
            try:
                self._token = yield from call.load.deferring(call.token, claim.hold)
            except LockBackendError as failure:
                call.coordinator.failed(failure)
                self._token = ""
            self._by_permit = True
            if self._token:
                store = partial(self._store_now, value, data, keep)
        elif claim is not None:
            yield from cut_off(call, claim)
        if running_loop() is None:
            commits.keep(transactions, call, value, data, store)
        return LoadOutcome(value, alone=True), "unstored"

    def _store_now(self, value: Any, data: Any, keep: float | None) -> None:
        if (
            self._call.coordinator.down
        ):  # another hook of this COMMIT has waited for it already; the permit ends by itself
            return
        run(self.stored(value, data, keep), self._call.coordinator.performer)

    def stored(self, value: Any, data: Any, keep: float | None) -> Program[tuple[LoadOutcome, str]]:
        """Store it, unless the claim, or the permit, is void."""
        call, claim, as_of = self._call, self._claim, clock.now()
        if call.coordinator.fused:
            storing = self._fused(data, keep)
        else:
            storing = self._local(value, keep) if call.coordinator.local else self._beside(value, keep)
        try:
            outcome = yield from storing
        except LockBackendError as failure:  # the claim may have been void
            call.coordinator.failed(failure)
            outcome = "unstored"
        if outcome == "fenced":
            metrics.count(call.coordinator.alias, metrics.FENCED)
        if outcome != "stored":
            return LoadOutcome(value, alone=True), outcome
        if claim is not None:
            call.coordinator.retries.replaced(call.key, claim.asked)
        return LoadOutcome(value, data=data, values=call.coordinator.values, fresh_for=keep, as_of=as_of), outcome

    def _fused(self, data: Any, keep: float | None) -> Program[str]:
        call, claim = self._call, self._claim
        assert claim is not None  # noqa: S101 - else it isn't stored
        lives = -1 if keep is None else max(1, round((keep + call.options.stale) * 1000))
        stored = yield from call.load.storing(self._token, lives, data, claim.hold, by_permit=self._by_permit)
        return "stored" if stored else "fenced"

    def _local(self, value: Any, keep: float | None) -> Program[str]:
        """Checked and written in one step, as leases and values are in this process."""
        call, claim = self._call, self._claim
        assert claim is not None  # noqa: S101

        def write(settling: int) -> None:
            call.coordinator.performer.handlers[Keep](self._keeping(value, _settled(keep, settling)))

        stored = yield from call.load.storing(self._token, 0, write, claim.hold, by_permit=self._by_permit)
        return "stored" if stored else "fenced"

    def _beside(self, value: Any, keep: float | None) -> Program[str]:
        """In two steps, so what is written between the check and our own write is overwritten for a moment: the check
        after it tells, and it is taken out again."""
        call, claim = self._call, self._claim
        assert claim is not None  # noqa: S101
        try:
            ours, settling = yield from call.load.checking(self._token, call.lease, by_permit=self._by_permit)
        except LockBackendError:
            yield call.load.abandoning(call.token, claim.hold, call.lease)
            raise
        if not ours:
            yield from cut_off(call, claim)
            return "fenced"
        remove = Remove(call.plain, call.version, call.key)
        try:
            yield self._keeping(value, _settled(keep, settling))
            if (yield from call.load.storing(self._token, 0, b"", claim.hold, by_permit=self._by_permit)):
                return "stored"
            yield remove
        except GeneratorExit:
            raise
        except BaseException as failure:  # the claim may have been void before the value was written
            removed = False
            try:
                if isinstance(failure, Exception):
                    yield remove
                    removed = True
            finally:
                if not removed:
                    call.coordinator.retries.add([(call.key, call.plain, call.version)], failure)
            raise
        return "fenced"

    def _keeping(self, value: Any, keep: float | None) -> Keep:
        call = self._call
        options, lives = call.options, keep
        if keep is not None and (options.stale or options.early is not None):
            value, lives = values.keep(value, keep), keep + options.stale
        return Keep(call.plain, call.version, call.key, value, lives)

    def _keep(self, value: Any) -> float | None:
        """For how many seconds it is fresh; None: for ever, 0: it isn't stored."""
        call = self._call
        ttl: float | None
        if self._context.ttl is not MISSING:
            ttl = self._context.ttl
        elif value is None:
            ttl = call.options.none_ttl if call.ttl is None else min(call.options.none_ttl, call.ttl)
        else:
            ttl = call.ttl
        if ttl is None:
            return None
        # Not below a second: memcached counts these, and drops what lives for less
        return max(0.0, min(ttl, 1.0), ttl * (1 - call.options.jitter * random()))  # noqa: S311 - no secret


def _settled(keep: float | None, settling: int) -> float | None:
    """For how many seconds a value is kept while values settle for so many milliseconds."""
    if not settling:
        return keep
    return settling / 1000 if keep is None else min(keep, settling / 1000)

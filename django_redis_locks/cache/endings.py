"""How a load ends: its value is stored, or refused, or kept for the end of a transaction; or there is none."""

from __future__ import annotations

from random import random
from typing import TYPE_CHECKING, Any, Final

from asgiref.sync import sync_to_async

from ..core import clock
from ..core.errors import LockBackendError
from ..core.owners import running_loop
from . import commits, metrics, values
from .flights import Landing
from .loaders import served_by_a_thread
from .results import MISSING
from .worlds import Keep, Remove, Run

if TYPE_CHECKING:
    from ..core.effects import Program
    from ..primitives.load import Claim
    from .calls import Call
    from .flights import Flight
    from .loaders import LoadContext

IN_ATOMIC: Final = Run(commits.open_now, sync_to_async(commits.open_now, thread_sensitive=True))
"""Whether the thread of the synchronous code has transactions."""

UNSHARED: Final = "unshared"
"""Said of such a load."""


def cut_off(call: Call, claim: Claim, seconds: float = 0.0, why: str = "") -> Program[bool]:
    """Give a claim up; False if it was void. If the store doesn't answer it ends by itself."""
    try:
        ours: bool = yield from call.load.giving_up(call.token, claim.hold, round(seconds * 1000), why)
    except LockBackendError as failure:
        call.road.failed(failure)
        return True
    return ours


class Ending:
    """The end of one load. Without a claim nothing is stored where leases could have told that it must not be."""

    def __init__(self, call: Call, flight: Flight, claim: Claim | None, context: LoadContext) -> None:
        self._call = call
        self._flight = flight
        self._claim = claim
        self._context = context

    def failed(self, error: BaseException, seconds: float) -> Program[bool]:
        """Tell those who wait, and who ask within so many seconds; False if something was written or invalidated meanwhile,
        so that it is no news for them."""
        if self._claim is None:
            return True
        return (yield from cut_off(self._call, self._claim, seconds, f"{type(error).__name__}: {error}"))

    def interrupted(self) -> Program[None]:
        """By what is no failure of the loader: the next one loads. All that is left to do is done in the background."""
        if self._claim is not None:
            yield self._call.load.abandoning(self._call.token, self._claim.hold, self._call.options.expire)

    def brought(self, value: Any) -> Program[tuple[Landing, str]]:
        """The loader's value: what callers get, and what became of it in the cache."""
        call, claim = self._call, self._claim
        keep = self._keep(value)
        if claim is None:
            return (yield from self._brought_alone(value, keep))
        if keep == 0 or not self._context.stores:
            yield from cut_off(call, claim, call.road.world.tuning.unstored_memory, UNSHARED)
            return Landing(value, values=call.road.values), "unstored"
        try:
            data = call.road.values.dumps(value)
        except Exception as error:  # noqa: BLE001 - as the cache itself would raise
            yield from self.failed(error, call.options.error_ttl)
            return Landing(error=error), "failed"
        except BaseException:
            yield from self.interrupted()
            raise
        in_atomic = call.options.store_in_atomic
        if in_atomic != "now" and running_loop() is None and (connections := commits.open_now()):
            if in_atomic == "skip":
                yield from cut_off(call, claim)
            else:
                commits.defer(connections, call, claim, self, value, data, keep)
            return Landing(value, alone=True), "unstored"
        if in_atomic != "now" and served_by_a_thread() and (yield IN_ATOMIC):
            yield from cut_off(call, claim)  # its thread has nobody who could wait for COMMIT
            return Landing(value, alone=True), "unstored"
        return (yield from self.stored(value, data, keep))

    def stored(self, value: Any, data: Any, keep: float | None) -> Program[tuple[Landing, str]]:
        """Store it, unless the claim is void."""
        call, as_of = self._call, clock.now()
        storing = self._fused(data, keep) if call.road.fused else self._beside(value, keep)
        try:
            outcome = yield from storing
        except LockBackendError as failure:  # the claim may have been void
            call.road.failed(failure)
            outcome = "unstored"
        if outcome == "fenced":
            metrics.count(call.road.alias, metrics.FENCED)
        if outcome != "stored":
            return Landing(value, alone=True), outcome
        return Landing(value, data=data, values=call.road.values, fresh_for=keep, as_of=as_of), outcome

    def _brought_alone(self, value: Any, keep: float | None) -> Program[tuple[Landing, str]]:
        """Where only the leases' server is down the cache is written all the same, or every caller would load: what is
        written or invalidated in this process is still noticed."""
        call, flights = self._call, self._call.road.flights
        landing = Landing(value, "unlocked" if call.stores else "loaded", values=call.road.values)
        if call.road.fused or keep == 0 or not self._context.stores or not call.road.down:
            return landing, "unstored"
        if not flights.knows(call.key, self._flight) or (running_loop() is None and commits.open_now()):
            return landing, "unstored"
        yield self._keeping(value, keep)
        if flights.knows(call.key, self._flight):
            return landing, "stored"
        yield Remove(call.plain, call.version)
        return Landing(value, "unlocked", alone=True), "fenced"

    def _fused(self, data: Any, keep: float | None) -> Program[str]:
        call, claim = self._call, self._claim
        assert claim is not None  # noqa: S101 - else it isn't stored
        lives = -1 if keep is None else max(1, round((keep + call.options.stale) * 1000))
        stored = yield from call.load.storing(call.token, lives, data, claim.hold)
        return "stored" if stored else "fenced"

    def _beside(self, value: Any, keep: float | None) -> Program[str]:
        """In two steps, so what is written between the check and our own write is overwritten for a moment: the check
        after it tells, and it is taken out again."""
        call, claim = self._call, self._claim
        assert claim is not None  # noqa: S101
        try:
            ours, settling = yield from call.load.checking(call.token, call.options.expire)
        except LockBackendError:
            yield call.load.abandoning(call.token, claim.hold, call.options.expire)
            raise
        if not ours:
            yield from cut_off(call, claim)
            return "fenced"
        if settling:
            keep = settling / 1000 if keep is None else min(keep, settling / 1000)
        try:
            yield self._keeping(value, keep)
        except BaseException as error:
            if isinstance(error, Exception):
                yield from self.failed(error, call.options.error_ttl)
            else:
                yield from self.interrupted()
            raise
        try:
            if (yield from call.load.storing(call.token, 0, b"", claim.hold)):
                return "stored"
        except LockBackendError:  # nobody knows whether the claim was void by then
            yield Remove(call.plain, call.version)
            raise
        yield Remove(call.plain, call.version)
        return "fenced"

    def _keeping(self, value: Any, keep: float | None) -> Keep:
        call = self._call
        options, lives = call.options, keep
        if keep is not None and (options.stale or options.early is not None):
            value, lives = values.keep(value, keep), keep + options.stale
        return Keep(call.plain, call.version, value, lives)

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

"""The lease of a page: its holder renders the page, other requests wait. Django's middleware reads and stores it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ...core import clock
from ...core.errors import LockBackendError
from ...core.owners import running_loop
from ...primitives.load import BUSY, CLAIMED, FAILED, Claim, ClaimRequest
from .. import metrics
from ..loading.effects import Follow
from ..loading.singleflight import RETRY
from ..loading.store import REASON_NOT_STORED

if TYPE_CHECKING:
    from ...core.commands import Program
    from ...primitives.load import LoadLease
    from ..loading.coordinator import CacheCoordinator
    from ..loading.singleflight import InflightLoad

MAX_RENEWAL: Final = 3600.0
"""Seconds for which a render lease is renewed at most."""


class RenderLease:
    """The right of one request to render a page. ``acquire`` sets the attributes.

    Attributes:
        owned: this request holds the lease: it renders and stores the page.
        waited: another request held the lease while this one waited, so the page has to be read again.
        bypass: the request renders without the lease: pages of this key aren't stored, or the wait is over.
    """

    def __init__(self, coordinator: CacheCoordinator, key: str) -> None:
        self.owned = self.waited = self.bypass = False
        self._coordinator = coordinator
        self._key = key
        self._lease = round(1000 * coordinator.performer.tuning.load_lease)
        self._load_lease: LoadLease = coordinator.load(key, "")
        self._inflight: InflightLoad | None = None
        self._claim: Claim | None = None
        self._token = ""
        self._bypass_seconds = 0.0

    def bypass_for(self, seconds: float) -> None:
        """Let requests bypass the lease for some seconds after its release, since the page isn't stored."""
        self._bypass_seconds = seconds

    def acquire(self, wait: float) -> Program[None]:
        """Claim the lease, or wait for its holder.

        Args:
            wait: seconds to wait at most.
        """
        until = clock.now() + wait
        while True:
            inflight, is_leader = self._coordinator.single_flight.join(self._key)
            if is_leader:
                self._inflight = inflight
                yield from self._claim_lease(max(until - clock.now(), 0.0))
                return
            outcome = yield Follow(self._coordinator.single_flight, inflight, until)
            if outcome is not None:
                metrics.count(self._coordinator.alias, metrics.WAITS)
                self.waited = True
                return
            if clock.now() >= until:
                metrics.count(self._coordinator.alias, metrics.TIMEOUTS)
                self.bypass = True
                return

    def _claim_lease(self, wait: float) -> Program[None]:
        if self._coordinator.down:
            self.owned = True
            return
        request = ClaimRequest(0.0, running_loop(), lease=self._lease, renew_for=MAX_RENEWAL)
        self._token = request.token
        try:
            # The first attempt doesn't wait, so that a store that is down is noticed without a wait
            claim = yield from self._load_lease.claiming(request)
            if claim.verdict == BUSY and wait > 0:
                request.wait = wait
                claim = yield from self._load_lease.claiming(request)
        except LockBackendError as failure:
            self._coordinator.record_failure(failure)
            self.owned = True
            return
        except BaseException:
            yield from self.release()
            raise
        if claim.verdict == CLAIMED:
            self._claim = claim
            self.owned = True
            self.waited = request.wait > 0  # the first claim was refused: the page may have been stored since
        elif claim.verdict == FAILED and claim.reason == REASON_NOT_STORED:
            self.bypass = True
        elif claim.verdict == BUSY:
            metrics.count(self._coordinator.alias, metrics.TIMEOUTS)
            self.bypass = True
        else:
            self.waited = True

    def is_held(self) -> Program[bool]:
        """Whether the lease is still valid: the cache wasn't cleared. True if the store can't be reached."""
        if self._claim is None:
            return True
        try:
            owned, _ = yield from self._load_lease.checking(self._token, self._lease)
        except LockBackendError as failure:
            self._coordinator.record_failure(failure)
            return True
        return bool(owned)

    def release(self) -> Program[None]:
        """Give up the lease, if this request holds it, and wake the requests that wait for it."""
        claim, self._claim = self._claim, None
        try:
            if claim is not None:
                why = REASON_NOT_STORED if self._bypass_seconds else ""
                yield from self._load_lease.giving_up(self._token, claim.hold, round(self._bypass_seconds * 1000), why)
        except LockBackendError as failure:
            self._coordinator.record_failure(failure)
        finally:
            if self._inflight is not None:
                self._coordinator.single_flight.finish(self._key, self._inflight, RETRY)

    def abandon(self) -> None:
        """Release the lease in the background, from a finalizer."""
        claim, self._claim = self._claim, None
        if claim is not None:
            cleanup = self._load_lease.abandoning(self._token, claim.hold, self._lease)
            self._coordinator.performer.handlers[type(cleanup)](cleanup)
        if self._inflight is not None:
            self._coordinator.single_flight.finish(self._key, self._inflight, RETRY)

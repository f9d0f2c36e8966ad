"""The lease of a page: its holder renders the page, other requests wait. Django's middleware reads and stores it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, NoReturn

from ...core import clock
from ...core.errors import LockBackendError
from ...core.runner import run_twice_if_interrupted
from ...primitives.load import BUSY, CLAIMED, FAILED, NEVER_FRESH, Claim
from .. import metrics
from ..loading.effects import Follow
from ..loading.request import LoadRequest
from ..loading.run import abandon_unstarted, send_claim
from ..loading.singleflight import RETRY, InflightLoad
from ..loading.store import REASON_NOT_STORED, give_up_claim
from ..options import CheckedOptions

if TYPE_CHECKING:
    from ...core.commands import Program
    from ..loading.coordinator import CacheCoordinator

OPTIONS: Final = CheckedOptions(max_hold=3600.0)
"""The options of all render leases. One is renewed for an hour at most."""


class RenderLease:
    """The right of one request to render a page: the claim of a load, which Django's middleware carries out. ``acquire``
    sets the attributes.

    Attributes:
        key: the key of the lease, as the cache would store it.
        owned: this request holds the lease: it renders and stores the page.
        waited: another request held the lease while this one waited, so the page has to be read again.
        bypass: the request renders without the lease: pages of this key aren't stored, or the wait is over.
    """

    def __init__(self, coordinator: CacheCoordinator, user_key: str) -> None:
        self.owned = self.waited = self.bypass = False
        self._request = LoadRequest(coordinator, user_key, None, _not_called, OPTIONS)
        self.key = self._request.key
        self._single_flight = coordinator.single_flight
        self._alias = coordinator.alias
        self._inflight = InflightLoad()
        self._claim: Claim | None = None
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
        try:
            while (inflight := self._single_flight.join(self.key, self._inflight)) is not self._inflight:
                outcome = yield Follow(self._single_flight, inflight, until)
                if outcome is not None:
                    metrics.count(self._alias, metrics.WAITS)
                    self.waited = True
                    return
                if clock.now() >= until:
                    metrics.count(self._alias, metrics.TIMEOUTS)
                    self.bypass = True
                    return
            yield from self._claim_lease(max(until - clock.now(), 0.0))
        except BaseException:
            yield from self.release()
            raise

    def _claim_lease(self, wait: float) -> Program[None]:
        claim = yield from send_claim(self._request, self._request.claim(wait, fresh_above=NEVER_FRESH), retry=False)
        if claim is None:
            self.owned = True
        elif claim.verdict == CLAIMED:
            self._claim = claim
            self.owned = True
            self.waited = claim.waited  # the page may have been stored since it was read
        elif claim.verdict == FAILED and claim.reason == REASON_NOT_STORED:
            self.bypass = True
        elif claim.verdict == BUSY:
            metrics.count(self._alias, metrics.TIMEOUTS)
            self.bypass = True
        else:
            self.waited = True

    def is_held(self) -> Program[bool]:
        """Whether the lease is still valid: the cache wasn't cleared. True if the store can't be reached."""
        if self._claim is None:
            return True
        try:
            owned, _ = yield from self._request.load.checking(self._claim.token, self._request.lease)
        except LockBackendError as failure:
            self._request.coordinator.record_failure(failure)
            return True
        return bool(owned)

    def release(self) -> Program[None]:
        """Give up the lease, if this request holds it, and wake the requests that wait for it."""
        claim, self._claim = self._claim, None
        try:
            if claim is not None:
                why = REASON_NOT_STORED if self._bypass_seconds else ""
                yield from give_up_claim(self._request, claim, self._bypass_seconds, why)
        finally:
            run_twice_if_interrupted(partial(self._single_flight.finish, self.key, self._inflight, RETRY))

    def abandon(self) -> None:
        """Release the lease in the background, from a finalizer."""
        claim, self._claim = self._claim, None
        abandon_unstarted(self._request, self._inflight, claim)


def _not_called(*_: Any) -> NoReturn:
    """The loader of a page: none, since the view renders it."""
    raise NotImplementedError

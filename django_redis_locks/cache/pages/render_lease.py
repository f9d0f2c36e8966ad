"""A load whose value is read and stored by somebody else's code: of a page, by Django's own middleware."""

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

RENEWED: Final = 3600.0
"""Seconds for which the lease of a turn is renewed at most."""


class RenderLease:
    """Whose turn it is to load.

    Attributes:
        mine: it is ours: load, and store; look again first if we ``waited``.
        waited: somebody else has finished meanwhile: look again.
        passing: whoever comes now needn't wait, since what is loaded here isn't stored, or the wait is over.
    """

    def __init__(self, coordinator: CacheCoordinator, key: str) -> None:
        self.mine = self.waited = self.passing = False
        self._coordinator = coordinator
        self._key = key
        self._lease = round(1000 * coordinator.performer.tuning.load_lease)
        self._load: LoadLease = coordinator.load(key, "")
        self._flight: InflightLoad | None = None
        self._claim: Claim | None = None
        self._token = ""
        self._pass_by = 0.0

    def pass_by(self, seconds: float) -> None:
        """What was loaded isn't stored: for so long nobody waits for it."""
        self._pass_by = seconds

    def begin(self, wait: float) -> Program[None]:
        """Wait for it, so many seconds at most."""
        until = clock.now() + wait
        while True:
            inflight, lead = self._coordinator.single_flight.join(self._key)
            if lead:
                self._flight = inflight
                yield from self._ask(max(until - clock.now(), 0.0))
                return
            outcome = yield Follow(self._coordinator.single_flight, inflight, until)
            if outcome is not None:
                metrics.count(self._coordinator.alias, metrics.WAITS)
                self.waited = True
                return
            if clock.now() >= until:
                metrics.count(self._coordinator.alias, metrics.TIMEOUTS)
                self.passing = True
                return

    def _ask(self, wait: float) -> Program[None]:
        if self._coordinator.down:
            self.mine = True
            return
        request = ClaimRequest(0.0, running_loop(), lease=self._lease, renew_for=RENEWED)
        self._token = request.token
        try:
            claim = yield from self._load.claiming(request)  # one that is down isn't waited for
            if claim.verdict == BUSY and wait > 0:
                request.wait = wait
                claim = yield from self._load.claiming(request)
        except LockBackendError as failure:
            self._coordinator.failed(failure)
            self.mine = True
            return
        except BaseException:
            yield from self.end()
            raise
        if claim.verdict == CLAIMED:
            self._claim = claim
            self.mine = True
            self.waited = request.wait > 0  # it was busy at first: it may have been stored meanwhile
        elif claim.verdict == FAILED and claim.said == REASON_NOT_STORED:
            self.passing = True
        elif claim.verdict == BUSY:
            metrics.count(self._coordinator.alias, metrics.TIMEOUTS)
            self.passing = True
        else:
            self.waited = True

    def holding(self) -> Program[bool]:
        """Whether it is still ours, as far as can be known: nothing was cleared meanwhile."""
        if self._claim is None:
            return True
        try:
            ours, _ = yield from self._load.checking(self._token, self._lease)
        except LockBackendError as failure:
            self._coordinator.failed(failure)
            return True
        return ours

    def end(self) -> Program[None]:
        claim, self._claim = self._claim, None
        try:
            if claim is not None:
                why = REASON_NOT_STORED if self._pass_by else ""
                yield from self._load.giving_up(self._token, claim.hold, round(self._pass_by * 1000), why)
        except LockBackendError as failure:
            self._coordinator.failed(failure)
        finally:
            if self._flight is not None:
                self._coordinator.single_flight.finish(self._key, self._flight, RETRY)

    def drop(self) -> None:
        """As ``end``, in a finalizer."""
        claim, self._claim = self._claim, None
        if claim is not None:
            sweep = self._load.abandoning(self._token, claim.hold, self._lease)
            self._coordinator.performer.handlers[type(sweep)](sweep)
        if self._flight is not None:
            self._coordinator.single_flight.finish(self._key, self._flight, RETRY)

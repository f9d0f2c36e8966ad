"""One caller's request for one value."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from math import inf
from typing import TYPE_CHECKING, Any

from django.core.cache.backends.base import DEFAULT_TIMEOUT

from ...core import clock
from ...core.keys import default_name
from ...core.owners import running_loop
from ...primitives.load import NEVER_FRESH
from ...primitives.shared.requests import ClaimRequest
from .. import metrics
from ..results import MISSING, LoadResult
from ..values import NOT_FOUND, CachedValue, Envelope, value_with_lifetime

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...core.keys import LockId
    from ...primitives.load import LoadLease
    from ..options import CheckedOptions
    from .coordinator import CacheCoordinator
    from .singleflight import LoadOutcome


@dataclass(eq=False)
class LoadRequest:
    """The request of one caller for one value: its key, loader and options. It doesn't change once its value is
    read; the state of a load is in the program that carries it out.

    Attributes:
        user_key: the key as the caller passed it; ``key``: as the cache stores it.
        name: the label of the load in metrics and messages.
        job: the ``Job`` with which another process can load the value, or None.
        asynchronous: the load needs an event loop: the loader is a coroutine function, or the caller runs in a loop.
        groups: the names of the value's groups, if they aren't an option.
        group_keys: the key of the stamp of each of its groups, and that key as the cache stores it.
        deadline: when the caller stops waiting for any load, on the monotonic clock.
        ttl: seconds for which a value stays fresh; None: forever, or each value has its own ttl.
        cacheable: loaded values are stored: their ttl is positive.
        needs_lifetime: reads must return the remaining lifetime of the value, for ``stale`` or ``early``.
        wake_readers: wakes the callers of the process that wait for this caller's read, which found no value. They wait
            until its claim is answered: hundreds of threads that run before that would delay it.
        claim_request: its last request to claim the load.
    """

    coordinator: CacheCoordinator
    user_key: str
    version: int | None
    loader: Callable[..., Any]
    options: CheckedOptions
    name: str = ""
    job: object = None
    asynchronous: bool = False
    groups: tuple[str, ...] = ()
    group_keys: tuple[tuple[str, str], ...] = field(init=False, default=())
    key: str = field(init=False)
    ttl: float | None = field(init=False)
    cacheable: bool = field(init=False)
    needs_lifetime: bool = field(init=False)
    deadline: float = field(init=False, default=inf)
    wake_readers: Callable[[], object] | None = field(init=False, default=None)
    claim_request: ClaimRequest | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        """Make the key, and the default name."""
        coordinator = self.coordinator
        make_key = coordinator.key if coordinator.same_server else coordinator.unchecked_key
        self.key = make_key(self.user_key, self.version)
        if not self.name:
            self.name = default_name(str(self.user_key))
        if names := self.groups or self.options.groups:
            names = names(self.user_key) if callable(names) else names
            self.group_keys = coordinator.group_keys(names, self.version)
        if self.options.load_timeout < inf:
            self.deadline = clock.now() + self.options.load_timeout
        ttl: Any = self.options.ttl
        self.ttl = coordinator.default_ttl if ttl is DEFAULT_TIMEOUT else None if callable(ttl) else ttl
        self.cacheable = self.ttl is None or self.ttl > 0
        self.needs_lifetime = self.options.stale > 0 or self.options.early is not None

    @cached_property
    def load(self) -> LoadLease:
        """The load primitive of the key."""
        return self.coordinator.load(self.key, self.name)

    @property
    def lock_id(self) -> LockId:
        """The address of the load in the store."""
        return self.load.lock_id

    @property
    def lease(self) -> int:
        """Milliseconds after which the claim of a dead process ends."""
        return max(10, round(1000 * min(self.coordinator.engine.tuning.load_lease, self.options.max_hold or inf)))

    def result_of(self, outcome: LoadOutcome, *, is_leader: bool, waited: float = 0.0) -> LoadResult[Any]:
        """Return the value of a load to one of its callers; or the default, or raise its error. Followers get
        copies."""
        if outcome.error is not None:
            return self.default_or_raise(outcome.failure(is_leader), waited)
        value = outcome.value if is_leader else outcome.copy()
        source = outcome.source if is_leader or outcome.source in ("stale", "unlocked") else "waited"
        return LoadResult(value, source, outcome.fresh_for, waited)

    def default_or_raise(self, error: BaseException, waited: float = 0.0) -> LoadResult[Any]:
        """Return the option ``default``. Without one, or after an interruption, raise the error."""
        if self.options.default is MISSING or not isinstance(error, Exception):
            raise error
        return LoadResult(self.options.default, "default", None, waited)

    def decode(self, remaining_ms: int, data: Any) -> CachedValue:
        """Deserialize a value that the store returned. One that can't be deserialized, as its class is gone, counts as
        absent."""
        if data is None:
            return NOT_FOUND
        try:
            value = self.coordinator.values.loads(data)
        except Exception as error:  # noqa: BLE001 - whatever a pickle raises
            metrics.log.warning("A value of %r can't be deserialized, and is loaded again: %r", self.name, error)
            return NOT_FOUND
        if type(value) is Envelope:  # with the stamps of its groups
            return value_with_lifetime(value.value, remaining_ms, self.options.stale)._replace(stamps=value.stamps)
        return value_with_lifetime(value, remaining_ms, self.options.stale)

    def claim(
        self,
        wait: float,
        before: CachedValue = NOT_FOUND,
        *,
        fresh_above: int | None = None,
        override: int = 0,
        extra_interval: int | None = None,
        lease: int | None = None,
    ) -> ClaimRequest:
        """Return a request to claim the load.

        Args:
            wait: seconds to wait at most while another caller has the claim.
            before: the value to replace. If the store has a newer one that is fresh, that is returned, and nothing
                claimed.
            fresh_above: milliseconds that a value must have left to count as newer, instead of those of ``before``.
            override: ``OVERRIDE_CLAIM``: replace any other claim; ``OVERRIDE_FAILURE``: claim although a load has just
                failed.
            extra_interval: if another caller has the claim, one caller in this number of milliseconds may load without
                storing the value; None: none may.
            lease: lease in milliseconds of the claim, by default ``self.lease``.
        """
        if self.group_keys:
            fresh_above = NEVER_FRESH  # the store doesn't compare stamps
        elif fresh_above is None:
            fresh_above = max(before.remaining_ms, round(self.options.stale * 1000))
        self.claim_request = ClaimRequest(
            wait,
            running_loop(),
            lease=self.lease if lease is None else lease,
            renew_for=self.options.max_hold,
            fresh_above=fresh_above,
            override=override,
            extra_interval=extra_interval,
            on_busy=self.wake_readers,
        )
        return self.claim_request

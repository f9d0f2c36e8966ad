"""One caller's request for one value."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

from django.core.cache.backends.base import DEFAULT_TIMEOUT

from ...core.keys import default_name
from ...core.owners import running_loop
from ...primitives.load import ClaimRequest
from .. import metrics
from ..values import NOT_FOUND, CachedValue, value_with_lifetime
from . import loader as loaders

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...core.keys import LockId
    from ..options import CheckedOptions
    from .coordinator import CacheCoordinator
    from .singleflight import InflightLoad


class LoadRequest:
    """The request of one caller for one value: its key, loader and options.

    Attributes:
        user_key: the key as the caller passed it; ``key``: as the cache stores it.
        name: the label of the load in metrics and messages.
        token: the token of the last claim that this caller made.
        job: the ``Job`` with which another process can load the value, or None.
        asynchronous: the loader is a coroutine function.
        in_task: the caller runs in an event loop.
        needs_lifetime: whether reads must return the remaining lifetime of the value, for ``stale`` or ``early``.
    """

    def __init__(
        self,
        coordinator: CacheCoordinator,
        user_key: str,
        version: int | None,
        loader: Callable[..., Any],
        options: CheckedOptions,
        *,
        name: str = "",
        job: object = None,
    ) -> None:
        self.coordinator = coordinator
        self.user_key = user_key
        self.version = version
        self.key = (
            coordinator.key(user_key, version)
            if coordinator.same_server
            else coordinator.unchecked_key(user_key, version)
        )
        self.first_read: CachedValue | None = None
        """The cached value, if the caller has read it already."""
        self.name = name or default_name(str(user_key))
        self.loader = loader
        self.options = options
        self.token = ""
        self.job = job
        self.stale_ms = round(options.stale * 1000)
        self.asynchronous = self.in_task = False
        self.needs_lifetime = options.stale > 0 or options.early is not None
        self._load: Any = None

    @property
    def load(self) -> Any:
        """The load primitive of the key."""
        if self._load is None:
            self._load = self.coordinator.load(self.key, self.name)
        return self._load

    @property
    def lock_id(self) -> LockId:
        """The address of the load in the store."""
        lock_id: LockId = self.load.lock_id
        return lock_id

    @property
    def lease(self) -> int:
        """Milliseconds after which the claim of a dead process ends."""
        return max(10, round(1000 * min(self.coordinator.performer.tuning.load_lease, self.options.max_hold or inf)))

    @property
    def ttl(self) -> float | None:
        """Seconds for which a value stays fresh; None: forever."""
        ttl: float | None = self.options.ttl
        return self.coordinator.default_ttl if self.options.ttl is DEFAULT_TIMEOUT else ttl

    @property
    def cacheable(self) -> bool:
        """Whether loaded values are stored: their ttl is positive."""
        ttl = self.ttl
        return ttl is None or ttl > 0

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
        return value_with_lifetime(value, remaining_ms, self.options.stale)

    def claim(
        self,
        wait: float,
        *,
        fresh_above: int | None = None,
        override: int = 0,
        extra_interval: int | None = None,
        lease: int | None = None,
    ) -> ClaimRequest:
        """Return a request to claim the load.

        Args:
            wait: seconds to wait at most while another caller has the claim.
            fresh_above: milliseconds; if the value's remaining lifetime is longer, it is returned, and nothing claimed.
                By default the option ``stale``.
            override: ``OVERRIDE_CLAIM``: replace any other claim; ``OVERRIDE_FAILURE``: claim although a load has just
                failed.
            extra_interval: if another caller has the claim, one caller in this number of milliseconds may load without
                storing the value; None: none may.
            lease: lease in milliseconds of the claim, by default ``self.lease``.
        """
        return ClaimRequest(
            wait,
            running_loop(),
            lease=self.lease if lease is None else lease,
            renew_for=self.options.max_hold,
            fresh_above=self.stale_ms if fresh_above is None else fresh_above,
            override=override,
            extra_interval=extra_interval,
        )

    def nested_in(self, lock_id: LockId) -> tuple[LockId, InflightLoad | None] | None:
        """Return the load of the same value whose loader makes this call, directly or indirectly; or None."""
        for outer in loaders.active_loads.get():
            if outer[0] == lock_id:
                return outer
        return None

    def start_following(self, inflight: InflightLoad) -> bool:
        """Record that all loads inside which this caller runs wait for another load.

        Returns:
            False, with nothing recorded, if that load itself waits for one of them: waiting would be a deadlock.
        """
        self._outer_loads = [outer for _, outer in loaders.active_loads.get() if outer is not None]
        # Record before the check: of two callers that start to wait for each other, at least one finds the other
        for outer in self._outer_loads:
            outer.waits_for.append(inflight)
        if self._outer_loads and inflight.depends_on(self._outer_loads):
            self.stop_following(inflight)
            return False
        return True

    def stop_following(self, inflight: InflightLoad) -> None:
        """Undo ``start_following``."""
        for outer in self._outer_loads:
            outer.waits_for.remove(inflight)

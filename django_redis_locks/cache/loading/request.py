"""One caller's question for one value."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

from django.core.cache.backends.base import DEFAULT_TIMEOUT

from ...core.keys import usual_name
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
    """Attributes:
    plain: the key as the caller has it; ``key``: as the cache stores it.
    name: the label of the load, for figures and messages.
    token: of the claim that this caller makes.
    job: the ``Job`` with which another process can load it, if there is one.
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
        """What a first look has brought."""
        self.name = name or usual_name(str(user_key))
        self.loader = loader
        self.options = options
        self.token = ""
        self.job = job
        self.stale_ms = round(options.stale * 1000)
        self.asynchronous = self.in_task = False
        self.needs_lifetime = options.stale > 0 or options.early is not None
        """Whether it must be known how long a value has left."""
        self._load: Any = None

    @property
    def load(self) -> Any:
        if self._load is None:
            self._load = self.coordinator.load(self.key, self.name)
        return self._load

    @property
    def lock_id(self) -> LockId:
        lock_id: LockId = self.load.lock_id
        return lock_id

    @property
    def lease(self) -> int:
        """Milliseconds after which the claim of a process that has died is over."""
        return max(10, round(1000 * min(self.coordinator.performer.tuning.load_lease, self.options.max_hold or inf)))

    @property
    def ttl(self) -> float | None:
        """Seconds for which a value is fresh; None: for ever."""
        ttl: float | None = self.options.ttl
        return self.coordinator.default_ttl if self.options.ttl is DEFAULT_TIMEOUT else ttl

    @property
    def stores(self) -> bool:
        """Whether a value is kept at all."""
        ttl = self.ttl
        return ttl is None or ttl > 0

    def decode(self, remaining_ms: int, data: Any) -> CachedValue:
        """What the store has. What can't be read, because its class is gone, counts as absent."""
        if data is None:
            return NOT_FOUND
        try:
            value = self.coordinator.values.loads(data)
        except Exception as error:  # noqa: BLE001 - whatever a pickle raises
            metrics.log.warning("A value of %r can't be read, and is loaded anew: %r", self.name, error)
            return NOT_FOUND
        return value_with_lifetime(value, remaining_ms, self.options.stale)

    def claim(
        self,
        wait: float,
        *,
        fresh_above: int | None = None,
        take: int = 0,
        extra: int | None = None,
        lease: int | None = None,
    ) -> ClaimRequest:
        """A wish to load it."""
        return ClaimRequest(
            wait,
            running_loop(),
            lease=self.lease if lease is None else lease,
            renew_for=self.options.max_hold,
            fresh_above=self.stale_ms if fresh_above is None else fresh_above,
            take=take,
            extra=extra,
        )

    def nested_in(self, lock_id: LockId) -> tuple[LockId, InflightLoad | None] | None:
        """The load of the same value within which this one runs."""
        for outer in loaders.active_loads.get():
            if outer[0] == lock_id:
                return outer
        return None

    def start_following(self, inflight: InflightLoad) -> bool:
        """All loads within which this one runs wait for a flight from now on. False if that waits for one of them."""
        self._outer = [outer for _, outer in loaders.active_loads.get() if outer is not None]
        for outer in self._outer:  # before we look: of two who are about to wait for each other one sees it
            outer.waits_for.append(inflight)
        if self._outer and inflight.depends_on(self._outer):
            self.stop_following(inflight)
            return False
        return True

    def stop_following(self, inflight: InflightLoad) -> None:
        """They wait for it no longer."""
        for outer in self._outer:
            outer.waits_for.remove(inflight)

"""``GrantState``: what a grant knows about its hold, without a request."""

from __future__ import annotations

import weakref
from typing import Any, NoReturn

from . import clock
from .errors import LockBackendError, LockLost
from .hold import Hold, State, no_grant


class GrantState:
    """A grant's attributes and the checks that need no request."""

    __slots__ = ("__weakref__", "_block", "hold", "id", "lock")

    deferred = False
    """Whether it keeps the lock after the caller has released it."""

    @property
    def whole(self) -> Any:
        """The grant that the caller was given: this one, or that of a multi lock of which this is a part."""
        return self

    def waits_for_transaction(self) -> bool:
        """Return whether a deferred grant keeps the lock for an open transaction of the calling thread."""
        return False

    def __init__(self, hold: Hold, keeper: Any, id: int, block: int = 0) -> None:
        self.hold = hold
        self.id = id
        self.lock = keeper
        self._block = block
        if hold.grant is no_grant:
            hold.grant = weakref.ref(self)

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a grant can't be pickled, because it belongs to its process. Pass its key, its fence, or the text of detach()"
        )

    def __repr__(self) -> str:
        state = "released" if self.released else "lost" if self.lost else "held" if self.protected else "unprotected"
        return f"<Grant {self.name!r} fence={self.fence} {state}>"

    @property
    def key(self) -> str:
        """The key of the lock."""
        return self.hold.key

    @property
    def name(self) -> str:
        """The name of the lock: its label in settings, messages and metrics."""
        return self.hold.name

    @property
    def alias(self) -> str:
        """The alias in ``REDIS_LOCKS``."""
        return self.hold.alias

    @property
    def fence(self) -> int | None:
        """The fencing token, or None if the grant isn't ``protected``, or the store has no fences. It grows with every hold
        of the key."""
        hold = self.hold
        return hold.fence if hold.fenced else None

    @property
    def held(self) -> bool:
        """Whether the lock is held by this grant now, as far as this process knows: neither released nor lost."""
        return not self.released and self.hold.live

    @property
    def protected(self) -> bool:
        """False if the store was down and ``ON_BACKEND_ERROR`` is "open": the section runs without a lock."""
        return self.hold.fence is not None

    @property
    def released(self) -> bool:
        """Whether the grant was released, or is being released."""
        return self.id not in self.hold.open_grants

    @property
    def lost(self) -> bool:
        """Whether the lock was lost before its release, as far as this process knows, without a request. In a forked
        child always True."""
        hold = self.hold
        if hold.inherited_by_fork:
            return True
        return hold.loss_reason is not None or (hold.held and clock.now() >= hold.deadline)

    def remaining(self) -> float:
        """Return the seconds until the lease ends, by this process's clock; 0.0 if the lock is lost or released."""
        if not self.held:
            return 0.0
        return max(0.0, self.hold.deadline - clock.now())

    def _check(self) -> None:
        hold = self.hold
        error_context: dict[str, Any] = {"key": hold.key, "name": hold.name, "alias": hold.alias}
        if not self.protected and not self.released:
            raise LockBackendError("the store was down when this section began: there is no lock", **error_context)
        if not self.held:
            if hold.loss_reason is not None:
                why = hold.loss_reason
            elif hold.inherited_by_fork:
                why = "this process was forked from its holder"
            else:
                why = "released" if self.released or hold.state is not State.HELD else "expired"
            raise LockLost(f"lock {hold.name!r} isn't held any more: {why}", **error_context)

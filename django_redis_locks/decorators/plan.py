"""The arguments of the decorator, checked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..core import durations, templates
from .deferred import UNTIL, Until

if TYPE_CHECKING:
    from ..core.durations import Duration
    from ..core.hold import OnLost


class Plan:
    def __init__(
        self,
        key: Any,
        expire: Duration | None,
        wait: Duration | None,
        renew: bool | None,
        reentrant: bool,
        name: str | None,
        using: str,
        on_lost: OnLost,
        on_backend_error: str | None,
        hold: Until,
    ) -> None:
        if expire is not None:
            durations.lease_ms(expire)
        if wait is not None:
            durations.patience(wait)
        if key is not None and not isinstance(key, str) and not callable(key):
            raise TypeError(f"the key of @redis_lock is a text or a callable, not {key!r}")
        if isinstance(key, str):
            templates.parse(key)
        if hold not in UNTIL:
            raise ValueError(f"hold is 'call', 'transaction' or 'response', not {hold!r}")
        self.key = key
        self.wait = wait
        self.name = name or (key if isinstance(key, str) else None)
        self.using = using
        self.reentrant = reentrant
        self.hold = hold
        self.options: dict[str, Any] = {
            "expire": expire,
            "renew": renew,
            "on_lost": on_lost,
            "on_backend_error": on_backend_error,
        }

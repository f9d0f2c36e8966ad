"""Changes the delays and timeouts of this process's engines for a test."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from django_redis_locks import locks
from django_redis_locks.core import forks
from django_redis_locks.engine import outages
from django_redis_locks.engine.engine import Engine
from tests.servers import UNHURRIED


class Tune:
    """``tune(max_poll_interval=60.0)`` changes all engines, present and future."""

    def __call__(self, **changes: Any) -> None:
        for owner in self._owners():
            owner.tuning = replace(owner.tuning, **changes)

    def reset(self) -> None:
        """Restore the defaults, except a long socket timeout for machines that pause, and forget known outages."""
        base = replace(type(locks.tuning)(), socket_timeout=UNHURRIED)
        for owner in self._owners():
            owner.tuning = base
        for outage in outages._outages.values():
            outage.forget()

    @staticmethod
    def _owners() -> list[Any]:
        return [locks, *(aware for aware in forks._aware if isinstance(aware, Engine))]

"""The delays and time-outs of this process's engines, as a test wants them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from django_redis_locks import locks
from django_redis_locks.core import forks
from django_redis_locks.engine import outages
from django_redis_locks.engine.engine import Engine
from tests.servers import UNHURRIED


class Tune:
    """``tune(max_poll_interval=60.0)`` changes those of all engines, present and future."""

    def __call__(self, **changes: Any) -> None:
        for owner in self._owners():
            owner.tuning = replace(owner.tuning, **changes)

    def reset(self) -> None:
        """No server is given up because the machine stood still: tests in which one falls silent say for how long. None is
        known to be down."""
        base = replace(type(locks.tuning)(), socket_timeout=UNHURRIED)
        for owner in self._owners():
            owner.tuning = base
        for outage in outages._outages.values():
            outage.forget()

    @staticmethod
    def _owners() -> list[Any]:
        return [locks, *(aware for aware in forks._aware if isinstance(aware, Engine))]

"""The commands of the load of one value, for threads and tasks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django_redis_locks.core import clock
from django_redis_locks.core.commands import Command, Program
from django_redis_locks.core.hold import State
from django_redis_locks.core.keys import LockId
from django_redis_locks.core.owners import running_loop
from django_redis_locks.core.runner import arun, run
from django_redis_locks.primitives.load import (
    BUSY,
    CLAIMED,
    FAILED,
    FRESH,
    UNCOORDINATED,
    Claim,
    LoadKeys,
    LoadLease,
)
from django_redis_locks.primitives.shared.load_commands import (
    block_command,
    clear_command,
    read_command,
    unblock_command,
)
from django_redis_locks.primitives.shared.requests import ClaimRequest
from django_redis_locks.primitives.shared.retry import DEFAULT_LIMITS, retry_command
from tests.probes.engine import engine

__all__ = ["BUSY", "CLAIMED", "FAILED", "FRESH", "UNCOORDINATED", "Claim"]

MINUTE = 60_000
"""In milliseconds, like leases and lifetimes of values."""


class sync_and_async:  # noqa: N801 - a decorator
    """Make two methods of a program: a synchronous one, and a coroutine function whose name begins with ``a``."""

    def __init__(self, program: Callable[..., Program[Any]]) -> None:
        self._program = program

    def __set_name__(self, owner: type, name: str) -> None:
        program = self._program

        def call(load: LoadCalls, *args: Any, **how: Any) -> Any:
            return run(program(load, *args, **how), engine())

        async def acall(load: LoadCalls, *args: Any, **how: Any) -> Any:
            return await arun(program(load, *args, **how), engine())

        call.__name__ = name
        setattr(owner, name, call)
        setattr(owner, f"a{name}", acall)


class LoadCalls:
    """The load of one value. Its keys share a hash tag, so that they are in one slot of a Cluster.

    Args:
        key: of the cache.
        value: the name of the value.
        same_server: the value is on the store of the leases.
    """

    def __init__(self, key: str, value: str = "v", *, same_server: bool = True) -> None:
        tag = f"{{{key}}}"
        keys = LoadKeys(
            lease=f"{tag}:k:{value}",
            waiters=f"{tag}:w:{value}",
            generation=f"{tag}:generation",
            replica_lag=f"{tag}:s:{value}",
            permit=f"{tag}:p:{value}",
            value=f"{tag}:{value}" if same_server else "",
            inbox=f"{tag}:inbox:",
        )
        self.key = key
        self.same_server = same_server
        self.lock_id = LockId(engine().backend.identity, keys.lease)
        self._load = LoadLease(engine(), self.lock_id, keys, "report", "default", DEFAULT_LIMITS)

    def sibling(self, value: str) -> LoadCalls:
        """The load of another value of the same cache."""
        return LoadCalls(self.key, value, same_server=self.same_server)

    @sync_and_async
    def claim(self, token: str, *, wait: float = 0.0, lease: float = 60, **how: Any) -> Program[Claim]:
        request = ClaimRequest(
            wait, running_loop(), lease=round(lease * 1000), token=token, **{"fresh_above": 0, **how}
        )
        return self._load.claiming(request)

    @sync_and_async
    def store(
        self, token: str, value: Any = b"new", ttl_ms: int = MINUTE, hold: Any = None, *, by_permit: bool = False
    ) -> Program[bool]:
        return self._load.storing(token, ttl_ms, value, hold, by_permit=by_permit)

    @sync_and_async
    def defer(self, token: str) -> Program[str]:
        return self._load.deferring(token, None)

    @sync_and_async
    def give_up(self, token: str, reason_ms: int = 0, why: str = "") -> Program[bool]:
        return self._load.giving_up(token, None, reason_ms, why)

    @sync_and_async
    def check(self, token: str, lease: int = MINUTE, *, by_permit: bool = False) -> Program[tuple[bool, int]]:
        return self._load.checking(token, lease, by_permit=by_permit)

    @sync_and_async
    def invalidate(self, stale_ms: int = 0, lag_ms: int = 0) -> Program[bool]:
        return self._load.invalidating(stale_ms, lag_ms)

    @sync_and_async
    def read(self) -> Program[tuple[int, Any]]:
        found = yield from _sent(read_command((self._load.keys.value,)))
        return found[0]

    @sync_and_async
    def clear(self) -> Program[Any]:
        return _sent(clear_command(self._load.keys.generation))

    @sync_and_async
    def block(self, token: str, *others: LoadCalls, lease: int = MINUTE) -> Program[Any]:
        return _sent(block_command([self._load, *(other._load for other in others)], token, lease))

    @sync_and_async
    def unblock(self, token: str, *others: LoadCalls) -> Program[Any]:
        return _sent(unblock_command([self._load, *(other._load for other in others)], token))


def is_held(claim: Claim) -> bool:
    """Whether a renewed claim is still held, by the knowledge of this process."""
    return claim.hold is not None and claim.hold.state is State.HELD


def _sent(command: Command[Any]) -> Program[Any]:
    """Send a command, once more if the idle connection had been closed."""
    reply, _, _ = yield from retry_command(command, clock.now())
    return reply

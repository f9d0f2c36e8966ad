"""Information about a store, for the checks and the command. None or "" where the store doesn't report it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MEMORY: Final = "memory"
"""The ``server`` of a backend in the memory of one process."""


@dataclass(frozen=True, slots=True)
class Facts:
    """A store that has just answered.

    Attributes:
        server: what it is, such as "Redis".
        version: its own, such as "7.0.15".
        address: where, without a password.
        round_trip: seconds that it took to answer, on a connection that was open.
        role: "master" or "replica".
        mode: "standalone" or "cluster".
        ahead: seconds by which its clock is ahead of ours.
        database: equal where two addresses lead to one database.
        denied: the rights that locks need and this user hasn't, as ``ACL SETUSER`` spells them, or commands that the
            server doesn't have.
        policy: its ``maxmemory-policy``.
        memory, most_memory: bytes that are used, and that may be; 0 for no limit.
        clients, most_clients: that are connected, and that may be.
        evicted: the number of keys evicted for lack of memory since it started.
        uptime: seconds since it started.
        appends: whether it keeps an append-only file; ``syncs``: how often that is on the disk ("always", "everysec",
            "no").
        saves: whether it saves snapshots by itself.
    """

    server: str
    version: str = ""
    address: str = ""
    round_trip: float = 0.0
    role: str = "master"
    mode: str = "standalone"
    ahead: float | None = None
    database: str = ""
    denied: tuple[str, ...] = ()
    policy: str = ""
    memory: int | None = None
    most_memory: int | None = None
    clients: int | None = None
    most_clients: int | None = None
    evicted: int | None = None
    uptime: int | None = None
    appends: bool | None = None
    syncs: str = ""
    saves: bool | None = None


@dataclass(frozen=True, slots=True)
class FenceCounter:
    """The state of a bucket's fence counter.

    Attributes:
        bucket: its number; a single server has one bucket, 0.
        last: the last fence that was given, or kept; 0 if there is none.
        clock: the store's clock, in microseconds since 1970.
    """

    bucket: int
    last: int
    clock: int

    @property
    def next(self) -> int:
        """The fence of the next hold, if it begins now."""
        return max(self.last + 1, self.clock)

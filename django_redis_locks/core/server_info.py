"""Information about a store, for the system checks and the management command."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MEMORY: Final = "memory"
"""The ``server`` of a backend in the memory of one process."""


@dataclass(frozen=True, slots=True)
class Facts:
    """The properties of a store. A property that the store doesn't report is None or "".

    Attributes:
        server: the product, such as "Redis".
        version: its version, such as "7.0.15".
        address: its address, without a password.
        round_trip: the seconds that one request took on an open connection.
        role: "master" or "replica".
        mode: "standalone", "cluster" for one node or all masters of a Cluster, "sentinel" if sentinels named the server, or
            "redlock" for a majority of servers.
        ahead: the seconds by which its clock is ahead of this process's clock.
        database: an id of the database; it is equal if two addresses lead to the same database.
        denied: the rights that locks need and that this user lacks, as ``ACL SETUSER`` spells them, and the commands
            that the server lacks.
        policy: its ``maxmemory-policy``.
        memory, most_memory: the bytes in use, and their limit; 0 for no limit.
        clients, most_clients: the number of connected clients, and its limit.
        evicted: the number of keys evicted for lack of memory since the start.
        uptime: seconds since the start.
        appends: whether it writes an append-only file.
        syncs: how often that file is synced to the disk: "always", "everysec" or "no".
        saves: whether it saves snapshots automatically.
        node: the address of the master that the sentinels named; "" without sentinels.
        other_sentinels: the largest number of other sentinels that a sentinel knows.
        bad_sentinels: the sentinels that don't name a master, each with the reason.
        failover_after: the seconds for which it must be silent before the sentinels, or the nodes of a Cluster, replace it.
        replicas: the number of replicas that are connected and up to date.
        min_replicas: its ``min-replicas-to-write``; with fewer replicas it refuses writes.
        full_coverage: whether a Cluster refuses all requests while a slot has no node.
        session: the seconds after which ZooKeeper ends a silent session, and frees its locks.
        members: the properties of each server of a Redlock, or of each master of a Cluster, that answered. What one of them
            lacks, the store lacks.
        unreachable: why each of the others can't be asked.
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
    node: str = ""
    other_sentinels: int | None = None
    bad_sentinels: tuple[str, ...] = ()
    failover_after: float | None = None
    replicas: int | None = None
    min_replicas: int | None = None
    full_coverage: bool | None = None
    session: float | None = None
    members: tuple[Facts, ...] = ()
    unreachable: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The address, and the node that the sentinels named."""
        return f"{self.address} ({self.node})" if self.node else self.address


@dataclass(frozen=True, slots=True)
class Topology:
    """The servers of a store, as far as this process knows them. Addresses have no login.

    Attributes:
        kind: "memory", "standalone", "sentinel", "cluster" or "redlock", in the words of ``Facts.mode``; "zookeeper", or the
            name of another backend.
        servers: the address of the server, or of the master that sentinels named; the masters of a Cluster; the servers of a
            Redlock or of ZooKeeper. Empty until they are known.
        service: the service that the sentinels monitor.
        asked: those of the servers of a Cluster that have the lock in question.
    """

    kind: str
    servers: tuple[str, ...] = ()
    service: str = ""
    asked: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FenceCounter:
    """The state of the fence counter of one bucket.

    Attributes:
        bucket: the number of the bucket; a single server has one bucket, 0.
        last: the last fence that was issued or reserved; 0 if there is none.
        clock: the store's clock, in microseconds since 1970.
    """

    bucket: int
    last: int
    clock: int

    @property
    def next(self) -> int:
        """The fence that a hold acquired now would get."""
        return max(self.last + 1, self.clock)

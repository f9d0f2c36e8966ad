"""A Redis Cluster of three masters, each with a replica, for the tests.

    with RedisCluster() as cluster:
        locks.configure(cluster.location())
        cluster.move_slot(slot_of("lock:{7}:"), cluster.masters[1])

It is up after about three seconds, and ends by pid with the object.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from functools import partial
from typing import Self

from .processes import HOST, ServerFailed
from .redis_server import SLOTS, Config, RedisServer, ReplyError

PATIENCE = 30.0


class RedisCluster:
    """Nodes that run on ports of this machine. `config` is for all of them, `node_timeout` in milliseconds."""

    def __init__(
        self, config: Config | None = None, *, masters: int = 3, replicas: int = 1, node_timeout: int = 1500
    ) -> None:
        self._config = {
            "cluster-enabled": "yes",
            "cluster-node-timeout": node_timeout,
            "cluster-replica-validity-factor": 0,
            "cluster-require-full-coverage": "no",
            "repl-diskless-sync-delay": 0,
            "repl-ping-replica-period": 1,  # a replica is listed after its first byte
            **(config or {}),
        }
        self._masters = masters
        self._replicas = replicas
        self.nodes: list[RedisServer] = []

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    def stop(self) -> None:
        for node in self.nodes:
            node.stop()

    def _start(self) -> None:
        for _ in range(self._masters * (1 + self._replicas)):
            self.nodes.append(RedisServer(self._config).start())
        masters = self.nodes[: self._masters]
        for number, master in enumerate(masters):
            master.command("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
            first, last = SLOTS * number // self._masters, SLOTS * (number + 1) // self._masters - 1
            master.command("CLUSTER", "ADDSLOTSRANGE", first, last)
        for node in self.nodes[1:]:
            self.nodes[0].command("CLUSTER", "MEET", HOST, node.port)
        _eventually(lambda: all(len(self._lines(node)) == len(self.nodes) for node in self.nodes))
        for number, replica in enumerate(self.nodes[self._masters :]):
            master_id = masters[number % self._masters].command("CLUSTER", "MYID")
            _eventually(partial(_replicates, replica, master_id))
        self.wait_until_whole()

    def location(self) -> str:
        """The LOCATION of the locks: two of the nodes."""
        password = self._config.get("requirepass")
        login = f":{password}@" if password else ""
        return f"redis+cluster://{login}{','.join(f'{HOST}:{node.port}' for node in self.nodes[:2])}"

    def flush(self) -> None:
        for master in self.masters:
            master.flush()

    @property
    def masters(self) -> list[RedisServer]:
        """The running nodes that have slots, in the order of their first slots."""
        ports = [int(servers[0][1]) for _, _, *servers in sorted(self._asked().command("CLUSTER", "SLOTS"))]
        found = [next(node for node in self.nodes if node.port == port) for port in dict.fromkeys(ports)]
        return [node for node in found if node.running]

    def owner(self, slot: int) -> RedisServer:
        """The master that has a slot."""
        for first, last, *servers in self._asked().command("CLUSTER", "SLOTS"):
            if first <= slot <= last:
                return next(node for node in self.nodes if node.port == int(servers[0][1]))
        raise ServerFailed(f"No node has the slot {slot}.")

    def replica_of(self, master: RedisServer) -> RedisServer:
        """A replica of a master."""
        line = next(line for line in master.command("INFO", "replication").splitlines() if line.startswith("slave0:"))
        port = int(line.partition("port=")[2].partition(",")[0])
        return next(node for node in self.nodes if node.port == port)

    def begin_move(self, slot: int, target: RedisServer) -> RedisServer:
        """Declare that a slot moves to another master, and return the present one."""
        source = self.owner(slot)
        target.command("CLUSTER", "SETSLOT", slot, "IMPORTING", source.command("CLUSTER", "MYID"))
        source.command("CLUSTER", "SETSLOT", slot, "MIGRATING", target.command("CLUSTER", "MYID"))
        return source

    def move_keys(self, slot: int, source: RedisServer, target: RedisServer, most: int = 100) -> int:
        """Move some keys of a slot, and return how many."""
        keys = source.command("CLUSTER", "GETKEYSINSLOT", slot, most)
        if keys:
            source.command("MIGRATE", HOST, target.port, "", 0, 5000, "KEYS", *keys)
        return len(keys)

    def end_move(self, slot: int, target: RedisServer) -> None:
        """Declare that a slot has moved. New keys may arise until then, so they are moved, too."""
        source = self.owner(slot)
        target_id = target.command("CLUSTER", "MYID")
        while True:
            while self.move_keys(slot, source, target):
                pass
            with contextlib.suppress(ReplyError):  # a key has expired, or been written, at this moment
                target.command("CLUSTER", "SETSLOT", slot, "NODE", target_id)
                source.command("CLUSTER", "SETSLOT", slot, "NODE", target_id)
                break
        for master in self.masters:
            master.command("CLUSTER", "SETSLOT", slot, "NODE", target_id)

    def move_slot(self, slot: int, target: RedisServer) -> None:
        """Move a slot with its keys, one key at a time."""
        source = self.begin_move(slot, target)
        while self.move_keys(slot, source, target, 1):
            pass
        self.end_move(slot, target)

    def wait_until_whole(self) -> None:
        """Wait until all running nodes agree that each slot has a master, and each master a replica."""
        _eventually(self._is_whole)

    def _is_whole(self) -> bool:
        views = set()
        for node in self.nodes:
            if not node.running:
                continue
            if "cluster_state:ok" not in node.command("CLUSTER", "INFO"):
                return False
            slots = sorted(node.command("CLUSTER", "SLOTS"))
            if sum(last + 1 - first for first, last, *_ in slots) != SLOTS:
                return False
            if any(len(servers) != 1 + self._replicas for _, _, *servers in slots):
                return False
            views.add(tuple((first, last, int(servers[0][1])) for first, last, *servers in slots))
        if len(views) != 1:
            return False
        infos = [master.command("INFO", "replication") for master in self.masters]
        return all(info.count("state=online") == self._replicas for info in infos)

    def _asked(self) -> RedisServer:
        """A running node that sees the whole Cluster."""
        for node in self.nodes:
            if node.running:
                with contextlib.suppress(OSError, ReplyError):
                    if "cluster_state:ok" in node.command("CLUSTER", "INFO"):
                        return node
        return next(node for node in self.nodes if node.running)

    def _lines(self, node: RedisServer) -> list[str]:
        lines: list[str] = node.command("CLUSTER", "NODES").splitlines()
        return [line for line in lines if "handshake" not in line]


def _replicates(replica: RedisServer, master_id: str) -> bool:
    return bool(replica.command("CLUSTER", "REPLICATE", master_id) == "OK")


def _eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        with contextlib.suppress(OSError, ReplyError):  # a node that starts, ends or is about to agree
            if condition():
                return
        if time.monotonic() > deadline:
            raise ServerFailed("The nodes of the Cluster don't agree in time.")
        time.sleep(0.02)

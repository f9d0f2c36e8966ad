"""The slots of a Cluster: which node has which. Read from any node, and corrected by redirections."""

from __future__ import annotations

import random
import threading
from binascii import crc_hqx
from typing import TYPE_CHECKING, Any, Final

from ...core.background_thread import run_to_end
from ...core.clock import system_now as now
from ...core.commands import PARSE_ERRORS
from ...core.errors import LockBackendError
from .redispy import Failure
from .resp import ServerError, pack

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .cluster_node import ClusterNode
    from .server_list import Address

SLOTS: Final = 16384

_READ_TABLE = pack("CLUSTER", "SLOTS")


def slot_of(key: str) -> int:
    """Return the slot of a key. If it has a hash tag, text in braces, that decides alone."""
    begin = key.find("{") + 1
    end = key.find("}", begin)
    return crc_hqx((key[begin:end] if 0 < begin < end else key).encode(), 0) % SLOTS


class SlotTable:
    """The nodes of one Cluster, by their slots.

    Args:
        seeds: the nodes that LOCATION names, as this process reaches them.
        make_node: returns the backend of the node at an address.
        remap: returns the address at which this process reaches a node, from the one that the Cluster announces.
        location: the LOCATION without its password, for messages.
        timeout: seconds to read the table, from all nodes together.

    Attributes:
        owners: the node of each slot; None if it isn't known.
        on_change: called, in any thread, when slots have another node than before.
    """

    def __init__(
        self,
        seeds: tuple[Address, ...],
        make_node: Callable[[Address], ClusterNode],
        remap: Callable[[Address], Address],
        location: str,
        timeout: float,
    ) -> None:
        self._seeds = seeds
        self._make_node = make_node
        self._remap = remap
        self._location = location
        self._timeout = timeout
        self.on_change: Callable[[], object] = _do_nothing
        self.owners: list[ClusterNode | None] = [None] * SLOTS
        self._known: tuple[Address, ...] = ()
        self._nodes: dict[Address, ClusterNode] = {}
        self.after_fork_in_child()

    def after_fork_in_child(self) -> None:
        """Make new mutexes, and drop the nodes' connections."""
        self._mutex = threading.RLock()
        self._reads = 0
        self._failure = ""
        self._reading = False
        for node in self._nodes.values():
            node.after_fork_in_child()

    @property
    def nodes(self) -> list[ClusterNode]:
        """All nodes that were used so far."""
        return list(self._nodes.copy().values())

    @property
    def masters(self) -> list[ClusterNode]:
        """The nodes that have slots."""
        return list(dict.fromkeys(node for node in self.owners if node is not None))

    def owner(self, slot: int) -> ClusterNode:
        """Return the node of a slot. Reads the table if it isn't known.

        Raises:
            LockBackendError: no node can be asked, or the slot has none.
        """
        return self.owners[slot] or self.require_owner(slot, self.refresh())

    def require_owner(self, slot: int, failure: str) -> ClusterNode:
        """Return the node of a slot. ``failure``: why the table couldn't be read, or "".

        Raises:
            LockBackendError: it isn't known.
        """
        node = self.owners[slot]
        if node is None:
            text = failure or f"{self._location} has no node for slot {slot}"
            raise LockBackendError(text, transient=True, unreachable=True, awaits_failover=True)
        return node

    def node_at(self, address: Address) -> ClusterNode:
        """Return the node at an announced address."""
        address = self._remap(address)
        return self._nodes.get(address) or self._nodes.setdefault(address, self._make_node(address))

    def redirected(self, error: ServerError, asked: ClusterNode) -> tuple[int, ClusterNode]:
        """Return the slot and the node that a MOVED or ASK error names.

        Raises:
            LookupError, ValueError: the error can't be parsed.
        """
        *_, slot, address = str(error).split()
        host, _, port = address.rpartition(":")
        return int(slot), self.node_at((_host(host) or asked.address[0], int(port)))

    def move(self, slot: int, node: ClusterNode) -> None:
        """Record that a slot has moved, and read the whole table in the background: other slots may have moved, too."""
        if self.owners[slot] is not node:
            self.owners[slot] = node
            self.on_change()
            self.refresh_soon()

    def refresh_soon(self) -> None:
        """Read the table in the background."""
        if self._reading:
            return
        self._reading = True
        try:
            threading.Thread(
                target=run_to_end, args=(self._refresh_now,), name="django-redis-locks cluster", daemon=True
            ).start()
        except RuntimeError:  # no thread can be started: the next redirection corrects the table
            self._reading = False

    def _refresh_now(self) -> None:
        with self._mutex:  # one thread at most waits for it, however many requests fail
            self._reading = False  # before: a slot may move while the table is read
            self.refresh()

    def refresh(self) -> str:
        """Read the table. Callers that come meanwhile share the result.

        Returns:
            Why no node could tell it, or "".
        """
        reads = self._reads
        with self._mutex:
            if reads == self._reads:
                self._failure = self._read()
                self._reads += 1
            return self._failure

    def _read(self) -> str:
        deadline = now() + self._timeout
        reasons: list[str] = []
        for node, seconds in self._candidates(deadline):
            try:
                reply = node.execute_plain(_READ_TABLE, seconds)
                if type(reply) is ServerError:
                    raise reply
                self._apply(reply, node)
            except (Failure, ServerError, *PARSE_ERRORS) as failure:
                reasons.append(f"{node.name}: {failure}")
            else:
                return ""
        hint = ""
        if any("permission" in reason for reason in reasons):
            hint = ". The user needs +cluster|slots"
        if any("cluster support disabled" in reason for reason in reasons):
            hint = ". This server isn't a node of a Cluster: begin LOCATION with redis://"
        return f"can't reach {self._location}: no node tells the slots ({', '.join(reasons)}){hint}"

    def _candidates(self, deadline: float) -> Iterator[tuple[ClusterNode, float]]:
        """Yield the nodes to ask, those that have slots first, and the seconds in which each must answer."""
        masters = [node.address for node in self.masters]
        random.shuffle(masters)
        addresses = list(dict.fromkeys((*masters, *self._known, *self._seeds)))
        for asked, address in enumerate(addresses):
            left = max(deadline - now(), 0.001)
            node = self._nodes.get(address) or self._nodes.setdefault(address, self._make_node(address))
            yield node, left / min(3, len(addresses) - asked)

    def _apply(self, reply: Any, asked: ClusterNode) -> None:
        owners: list[ClusterNode | None] = [None] * SLOTS
        known: list[Address] = []
        for first, last, *servers in reply:
            addresses = [(_host(server[0]) or asked.address[0], int(server[1])) for server in servers]
            node = self.node_at(addresses[0])
            owners[first : last + 1] = [node] * (last + 1 - first)
            known += map(self._remap, addresses)
        if len(owners) != SLOTS or not known:
            raise ValueError("it has no slots")
        self._known = tuple(dict.fromkeys(known))
        if owners != self.owners:
            self.owners[:] = owners
            self.on_change()


def _host(name: Any) -> str:
    """Return an announced host; "" if it is that of the node which was asked."""
    text = name.decode() if isinstance(name, bytes) else name or ""
    return "" if text == "?" else text


def _do_nothing() -> None:
    """Stand in for ``on_change``."""

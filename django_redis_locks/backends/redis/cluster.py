"""``ClusterBackend``: the store on the nodes of a Cluster. Each command goes to the node that has the slot of its keys.

A node that doesn't have the slot, or not at this moment, says so and executes nothing. Then the command goes where it
says, or is repeated. Whether a lost reply belongs to an executed command isn't known here, as on a single server.
"""

from __future__ import annotations

import asyncio
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ...core import forks
from ...core.background_thread import run_to_end
from ...core.clock import system_now as now
from ...core.errors import LockBackendError
from ...core.merged_facts import merge
from ...core.prepared import PreparedCommand
from ...core.server_info import Facts, Topology
from ...core.tuning import DEFAULT, Tuning
from ..base import FEATURES, Backend, Subscriber
from . import cluster_url, versions
from .backend import NO_ARGUMENTS, PreparedRequest
from .cluster_node import REDIRECTIONS, ClusterNode, code_of
from .cluster_route import Route
from .cluster_subscriber import ClusterSubscriber
from .slot_table import SlotTable, slot_of
from .urls import access_digest, mask_password, parse_nodes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ...core.commands import Command
    from ..base import MessageHandler
    from .scripts import PackedArguments
    from .server_list import Address

BUCKETS: Final = 256
"""The number of buckets: enough for an even load on some dozens of nodes. Processes of all versions must agree on it."""


class ClusterBackend(Backend):
    """Locks on a Redis or Valkey Cluster. ``RedisBackend`` makes it if the scheme of LOCATION is that of a Cluster.

    Args:
        location: the URL, such as ``redis+cluster://n1:7000,n2:7000``: some nodes, from which the others are discovered.
        options: as of ``RedisBackend``, for the connections to all nodes; and ``address_remap``, a callable that returns
            the address of a node as this process reaches it, from the address that the Cluster announces, each as a
            tuple of host and port.

    Raises:
        ValueError, TypeError: the URL or an option is invalid.
    """

    supports = frozenset(FEATURES)
    buckets = BUCKETS
    fails_as_one = False

    def __init__(self, location: str, options: Mapping[str, Any], tuning: Tuning = DEFAULT) -> None:
        nodes = parse_nodes(location, options)
        node_options = dict(options)
        remap = node_options.pop("address_remap", _same)
        if not callable(remap):
            raise TypeError(f"the option address_remap is callable, not {type(remap).__name__}")

        def make_node(address: Address) -> ClusterNode:
            return ClusterNode(address, cluster_url.node_url(nodes, address), node_options, tuning)

        self.replicas = make_node(nodes.hosts[0]).replicas  # raises if an option is invalid
        self.identity = cluster_url.identity(nodes)
        self._node = f"{self.identity} {access_digest(location, options)}"
        self.location = mask_password(location)
        self._timeout = options.get("socket_timeout") or tuning.socket_timeout
        self.table = SlotTable(nodes.hosts, make_node, remap, self.location, self._timeout)
        self._subscriber: ClusterSubscriber | None = None

    incompatibility = staticmethod(versions.incompatibility)
    compatibility_warning = staticmethod(versions.compatibility_warning)

    def __repr__(self) -> str:
        return f"<ClusterBackend {self.location}>"

    @property
    def node(self) -> str:
        return self._node

    def call(self, command: Command[Any]) -> Any:
        forks.pid()
        return self._follow(Route(self.table, command, now() + self._timeout), command)

    def _follow(self, route: Route, command: Command[Any], failure: LockBackendError | None = None) -> Any:
        """Execute a command, which was sent to the first node of the route before if there is a ``failure``."""
        while True:
            node = route.node
            try:
                if failure is not None:
                    raise failure
                return node.call_asking(command) if route.asking else node.call(command)
            except LockBackendError as error:
                failure = None
                pause = route.after(error)
                if pause is None:
                    self.table.refresh()
                    if not route.relocate():
                        raise
            if pause:
                time.sleep(pause)

    async def acall(self, command: Command[Any]) -> Any:
        forks.pid()
        if self.table.owners[slot_of(command.keys[0])] is None:
            failure = await asyncio.to_thread(self.table.refresh)
            self.table.require_owner(slot_of(command.keys[0]), failure)
        if command.replicas:
            return await asyncio.to_thread(self.call, command)
        route = Route(self.table, command, now() + self._timeout)
        while True:
            node = route.node
            try:
                return await (node.acall_asking(command) if route.asking else node.acall(command))
            except LockBackendError as error:
                pause = route.after(error)
                if pause is None:
                    await asyncio.to_thread(self.table.refresh)
                    if not route.relocate():
                        raise
            if pause:
                await asyncio.sleep(pause)

    def prepare(self, name: str, keys: tuple[str, ...]) -> PreparedCommand:
        return RoutedRequest(self, name, keys)

    def together(self, keys: tuple[str, ...]) -> int:
        """Return the slot: a command may use the keys of one."""
        return slot_of(keys[0])

    def call_many(self, commands: Sequence[Command[Any]], timeout: float) -> list[Any]:
        """Execute commands in one write for each node, on all nodes at once. A node that doesn't answer in ``timeout``
        seconds fails its own commands only."""
        forks.pid()
        deadline = now() + timeout
        replies: list[Any] = [None] * len(commands)
        by_node: dict[ClusterNode, list[int]] = {}
        slots = [slot_of(command.keys[0]) for command in commands]
        owners = self.table.owners
        unread = self.table.refresh() if any(owners[slot] is None for slot in slots) else ""
        for number, slot in enumerate(slots):
            try:
                by_node.setdefault(self.table.require_owner(slot, unread), []).append(number)
            except LockBackendError as failure:
                replies[number] = failure

        def call_node(node: ClusterNode, numbers: list[int]) -> None:
            found = node.call_many([commands[number] for number in numbers], timeout)
            for number, reply in zip(numbers, found, strict=True):
                replies[number] = reply

        _at_once([partial(call_node, node, numbers) for node, numbers in by_node.items()])
        for node, numbers in by_node.items():
            for number in numbers:
                if isinstance(reply := replies[number], LockBackendError) and now() < deadline:
                    route = Route(self.table, commands[number], deadline, node)
                    replies[number] = self._after_failure(route, commands[number], reply)
        return replies

    def _after_failure(self, route: Route, command: Command[Any], failure: LockBackendError) -> Any:
        """Return the reply to a redirected command of a batch, or the failure."""
        if code_of(failure) in REDIRECTIONS - {"CLUSTERDOWN"}:
            try:
                return self._follow(route, command, failure)
            except LockBackendError as other:
                return other
        if failure.unreachable:
            self.table.refresh_soon()
        return failure

    def probe(self) -> None:
        if failure := self.table.refresh():
            raise LockBackendError(failure, transient=True, unreachable=True, awaits_failover=True)

    def facts(self, prefix: str, timeout: float) -> Facts:
        deadline = now() + timeout
        self.probe()
        found: dict[ClusterNode, Facts | LockBackendError] = {}

        def ask(node: ClusterNode) -> None:
            try:
                found[node] = node.facts(prefix, max(0.001, deadline - now()))
            except LockBackendError as failure:
                found[node] = failure

        masters = self.table.masters
        _at_once([partial(ask, node) for node in masters])
        return merge(self.location, "cluster", [found[node] for node in masters])

    def topology(self, key: str = "") -> Topology:
        owner = self.table.owners[slot_of(key)] if key else None
        asked = () if owner is None else (owner.name,)
        return Topology("cluster", tuple(node.name for node in self.table.masters), asked=asked)

    def subscriber(self, handler: MessageHandler) -> Subscriber:
        subscriber = self._subscriber = ClusterSubscriber(self.table, handler)
        self.table.on_change = subscriber.follow_slots
        return subscriber

    def close(self) -> None:
        for node in self.table.nodes:
            node.close()

    def after_fork_in_child(self) -> None:
        self.table.after_fork_in_child()


class RoutedRequest(PreparedCommand):
    """A prepared request to the node that has the slot."""

    __slots__ = ("_node", "_owners", "_request", "_slot")

    _backend: ClusterBackend

    def __init__(self, backend: ClusterBackend, name: str, keys: tuple[str, ...]) -> None:
        super().__init__(backend, name, keys)
        self._slot = slot_of(keys[0])
        self._owners = backend.table.owners
        self._node: ClusterNode | None = None
        self._request: PreparedRequest | None = None

    packed = staticmethod(PreparedRequest.packed)
    packed_once = staticmethod(PreparedRequest.packed_once)

    def send(self, first: str, rest: PackedArguments = NO_ARGUMENTS, *, messages_first: bool = False) -> Any:
        if (request := self._current()) is None:
            return super().send(first, rest)
        reply = request.send(first, rest, messages_first=messages_first)
        return super().send(first, rest) if _was_not_executed(reply) else reply

    async def asend(self, first: str, rest: PackedArguments = NO_ARGUMENTS) -> Any:
        if (request := self._current()) is None:
            return await super().asend(first, rest)
        reply = await request.asend(first, rest)
        return await super().asend(first, rest) if _was_not_executed(reply) else reply

    def post(self, first: str, rest: PackedArguments, on_reply: Callable[[Any], object]) -> LockBackendError | None:
        if (request := self._current()) is None:
            return super().post(first, rest, on_reply)
        return request.post(first, rest, on_reply)

    def _current(self) -> PreparedRequest | None:
        """Return the request to the present node of the slot, or None if that isn't known."""
        node = self._owners[self._slot]
        if node is not self._node:
            self._node, self._request = None, None  # a signal handler may raise in between
            self._request = None if node is None else PreparedRequest(node, self._name, self._keys)
            self._node = node
        return self._request

    def _as_command(self, first: str, rest: PackedArguments) -> Command[Any]:  # type: ignore[override]
        return super()._as_command(first, rest.values)


def _was_not_executed(reply: Any) -> bool:
    """Return whether another node may execute a request: this one was redirected, or its node can't be reached."""
    return isinstance(reply, LockBackendError) and (
        (reply.unreachable and not reply.outcome_unknown) or code_of(reply) in REDIRECTIONS
    )


def _at_once(calls: list[Callable[[], object]]) -> None:
    """Call functions in threads, the last one in this thread."""
    threads: list[threading.Thread] = []
    for call in calls[:-1]:
        thread = threading.Thread(target=run_to_end, args=(call,), name="django-redis-locks node", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # no thread can be started, or the interpreter is exiting
            call()
        else:
            threads.append(thread)
    for call in calls[-1:]:
        call()
    for thread in threads:
        thread.join()


def _same(address: Address) -> Address:
    """Stand in for ``address_remap``."""
    return address

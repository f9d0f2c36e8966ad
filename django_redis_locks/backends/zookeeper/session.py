"""The session of this process with one ensemble: its nodes, its watches, and the ends of fixed leases."""

from __future__ import annotations

import logging
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Mapping
from math import inf
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from ...core import clock
from ...core.clock import system_now
from ...core.errors import LockBackendError
from ...core.keys import CONFIRM
from ...core.tuning import SESSION_SHARE
from ..redis import timers
from . import line
from .client import Client
from .runs import Run

if TYPE_CHECKING:
    from ..base import MessageHandler
    from .nodes import Node
    from .requests import Step

_log = logging.getLogger("django_redis_locks.backend")

REAP_RETRY: Final = 1.0
"""The seconds after which the deletion of a node is tried again after its lease."""

GUARD_DELAY: Final = 1.0
"""The seconds for which a lock must be held before its node is watched. Most locks are released earlier."""

Key: TypeAlias = "tuple[str, str]"
"""The store's key of a lock, and a token."""


class Session:
    """The session, which starts with the first request. Aliases with equal settings share it.

    Args:
        hosts: kazoo's hosts string.
        timeout: its timeout in seconds.
        options: other arguments of kazoo's client.

    Attributes:
        nodes: the nodes of this process, by the lock and the token.
        lines: how many of them each lock has.
        unanswered: the requests to create a node that got no reply: the node may exist.
        lease: the largest lease in milliseconds, by the timeout that the ensemble has granted.
    """

    def __init__(self, hosts: str, timeout: float, options: Mapping[str, Any]) -> None:
        self.hosts = hosts
        self.timeout = timeout
        self._options = options
        self._handlers: weakref.WeakSet[MessageHandler] = weakref.WeakSet()
        self.after_fork_in_child()

    def after_fork_in_child(self) -> None:
        """Forget the parent's client, without touching its connection, and the parent's nodes."""
        self._mutex = threading.RLock()
        self._client: Client | None = None
        self.nodes: dict[Key, Node] = {}
        self.lines: Counter[str] = Counter()
        self.unanswered: set[Key] = set()
        self.lease: float = inf
        self.generation = 0
        self._by_path: dict[str, Node] = {}
        self._followers: dict[str, Node] = {}
        self._on_connect: list[Callable[[], object]] = []
        self._reaps_at = inf
        self._guards = False

    def add_handler(self, handler: MessageHandler) -> None:
        """Send messages to this engine, too."""
        self._handlers.add(handler)

    @property
    def client(self) -> Client:
        """The client, which is started if it isn't."""
        client = self._client
        if client is None:
            with self._mutex:
                client = self._client
                if client is None:
                    client = Client(self.hosts, self.timeout, self._options, self)
                    client.start()
                    self._client = client
        return client

    def close(self) -> None:
        """End the session if it has no nodes."""
        with self._mutex:
            if self.nodes or self.unanswered or self._client is None:
                return
            client, self._client = self._client, None
        client.stop()

    def when_connected(self, callback: Callable[[], object]) -> None:
        """Call ``callback`` once there is a connection, perhaps at once."""
        client = self.client
        with self._mutex:
            if not client.connected:
                self._on_connect.append(callback)
                return
        callback()

    # The nodes

    def add(self, node: Node) -> None:
        """Keep a node that was created."""
        with self._mutex:
            self.nodes[node.lock, node.token] = node
            self._by_path[node.path] = node
            self.lines[node.lock] += 1

    def forget(self, node: Node) -> None:
        """Forget a node, before or because it is deleted."""
        with self._mutex:
            if self.nodes.get((node.lock, node.token)) is node:
                del self.nodes[node.lock, node.token]
                self.lines[node.lock] -= 1
                if not self.lines[node.lock]:
                    del self.lines[node.lock]
            self._by_path.pop(node.path, None)
            for path in [path for path, follower in self._followers.items() if follower is node]:
                del self._followers[path]

    def follow(self, path: str, node: Node) -> bool:
        """Have this node notified when the one at ``path`` is deleted. Return whether it is already."""
        with self._mutex:
            known = self._followers.get(path) is node
            self._followers[path] = node
            return known

    def left_of(self, path: str) -> int | None:
        """Return the milliseconds that are left of the lease of a node of this process; None for a node of another one."""
        node = self._by_path.get(path)
        return None if node is None or node.ends == inf else max(1, round(1000 * (node.ends - system_now())))

    def leases(self) -> dict[str, int]:
        """Return the milliseconds that are left of the leases of this process's holds, by the store's keys of the locks."""
        now, nodes = system_now(), list(self.nodes.values())
        return {node.lock: round(1000 * (node.ends - now)) for node in nodes if node.granted and node.ends > now}

    def deleted_by_force(self, path: str, lock: str) -> None:
        """Tell the engines at once if the deleted node was that of a hold of this process."""
        node = self._by_path.get(path)
        if node is not None:
            self.forget(node)
            self.confirm(lock)

    def is_followed(self, path: str) -> bool:
        """Return whether a node of this process waits for the end of the one at ``path``."""
        return path in self._followers

    def unfollow(self, path: str, node: Node) -> None:
        """Undo ``follow``: the other node was gone."""
        with self._mutex:
            if self._followers.get(path) is node:
                del self._followers[path]

    def hold(self, node: Node, lease: int) -> None:
        """Let the lease of a lock that was granted to a node end after these milliseconds, or later if it did anyway."""
        ends = system_now() + lease / 1000
        node.ends = max(ends, node.ends) if node.granted else ends
        if not node.granted:
            node.granted = True
            node.granted_at = system_now()
            node.since = round(1000 * clock.wall())
        with self._mutex:
            guards, self._guards = self._guards, True
            reaps, self._reaps_at = self._reaps_at, min(ends, self._reaps_at)
        if not guards:
            timers.call_at(node.granted_at + GUARD_DELAY, self._guard)
        if ends < reaps:
            timers.call_at(ends, self._reap)

    def _reap(self) -> None:
        """Delete the nodes after the ends of their leases."""
        now = system_now()
        with self._mutex:
            held = [node for node in self.nodes.values() if node.granted]
            self._reaps_at = min((node.ends for node in held if node.ends > now), default=inf)
        if self._reaps_at < inf:
            timers.call_at(self._reaps_at, self._reap)
        for node in held:
            if node.ends <= now:
                self.forget(node)
                self.run(line.deleting(self, node), lambda reply, node=node: self._reaped(node, reply))  # type: ignore[misc]

    def _reaped(self, node: Node, reply: Any) -> None:
        if isinstance(reply, LockBackendError):
            self.add(node)
            node.ends = system_now() + REAP_RETRY
            self.hold(node, 1000)

    # Messages to the engines

    def tell(self, node: Node) -> None:
        """Report that the lock was granted to the waiter of this node."""
        for handler in list(self._handlers)[:1]:  # engines of one store share their queues
            handler.on_message(f"{node.number},{node.token},{node.created}", node.lock)

    def confirm(self, lock: str) -> None:
        """Have the engines check whether they still have their holds of this lock."""
        for handler in list(self._handlers):
            handler.on_message(CONFIRM, lock)

    # Events of the client

    def on_connect(self, lease: int) -> None:
        if abs(lease - 1000 * self.timeout) > 10 and self.lease != lease * SESSION_SHARE:
            _log.warning("ZooKeeper ends sessions after %g s instead of %g s: see W121", lease / 1000, self.timeout)
        with self._mutex:
            self.lease = lease * SESSION_SHARE
            waiting, self._on_connect = self._on_connect, []
            held = {node.lock for node in self.nodes.values() if node.granted}
        for callback in waiting:
            callback()
        for handler in list(self._handlers):
            handler.on_reconnect()
        for lock in held:
            self.confirm(lock)

    def on_disconnect(self) -> None:
        with self._mutex:
            self._followers.clear()
            for node in self.nodes.values():
                node.guarded = False

    def on_expired(self) -> None:
        with self._mutex:
            self.generation += 1
            held = {node.lock for node in self.nodes.values() if node.granted}
            self.nodes.clear()
            self.lines.clear()
            self.unanswered.clear()
            self._by_path.clear()
            self._followers.clear()
        for lock in held:
            self.confirm(lock)

    def on_change(self, path: str, deleted: bool) -> None:
        with self._mutex:
            follower, own = self._followers.pop(path, None), self._by_path.get(path)
        if own is not None:
            own.guarded = False
            if deleted:
                self.forget(own)
                self.confirm(own.lock)
                if not own.granted:
                    self._wake()
            else:
                self.run(line.guarding(self, [own]))
        if follower is not None:
            self.run(line.looking(self, follower), lambda reply: self._looked(follower, reply))

    def _looked(self, node: Node, reply: Any) -> None:
        """Handle the end of a look at the line. Without a reply the waiters ask: they find their nodes again."""
        if isinstance(reply, LockBackendError) and (node.lock, node.token) in self.nodes:
            self._wake()

    def _wake(self) -> None:
        for handler in list(self._handlers):
            handler.on_reconnect()

    def _guard(self) -> None:
        """Watch the nodes of holds that aren't new, so that a forced release is noticed at once."""
        newest = system_now() - GUARD_DELAY
        with self._mutex:
            unguarded = [node for node in self.nodes.values() if node.granted and not node.guarded]
            wanted = [node for node in unguarded if node.granted_at <= newest]
            self._guards = len(wanted) < len(unguarded)
        if self._guards:
            timers.call_at(system_now() + GUARD_DELAY, self._guard)
        if wanted:
            self.run(line.guarding(self, wanted))

    def run(self, step: Step, on_reply: Callable[[Any], object] = lambda reply: None) -> None:
        """Execute a step in the background."""
        Run(self, step, on_reply).begin()

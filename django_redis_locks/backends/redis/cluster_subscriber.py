"""``ClusterSubscriber``: the subscriber of this process on a Cluster. Each channel is subscribed at the node that has its
slot, and follows it to another one."""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING

from ...core.commands import PARSE_ERRORS
from ..base import Subscriber
from .sharded_subscriber import ShardedSubscriber
from .slot_table import slot_of
from .subscriber import new_id

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...core.wait_events import ThreadEvent
    from ..base import MessageHandler
    from .cluster_node import ClusterNode
    from .resp import ServerError
    from .slot_table import SlotTable


class ClusterSubscriber(Subscriber):
    """A subscriber for each node that has a channel of this process.

    Args:
        table: the slots.
        handler: receives the messages.
    """

    def __init__(self, table: SlotTable, handler: MessageHandler) -> None:
        self._table = table
        self._handler = handler
        self._by_node: dict[ClusterNode, ShardedSubscriber] = {}
        self.after_fork_in_child()

    def after_fork_in_child(self) -> None:
        for subscriber in self._by_node.values():
            subscriber.after_fork_in_child()
        self._mutex = threading.RLock()
        self._by_node = {}
        self._homes: dict[str, ShardedSubscriber] = {}
        self._id = new_id()

    def channel_name(self, channel: str) -> str:
        home = self._homes.get(channel)
        return "" if home is None else home.channel_name(channel)

    def open(self, channel: str, callback: Callable[[], object]) -> None:
        with self._mutex:
            home = self._homes.get(channel)
            node = self._table.owners[slot_of(channel)]
            if home is None and node is not None:
                home = self._homes[channel] = self._subscriber_at(node)
        if home is None:  # the waiters poll until a request finds the node
            callback()
        else:
            self._open_at(home, channel, callback)

    def _open_at(self, home: ShardedSubscriber, channel: str, callback: Callable[[], object]) -> None:
        home.open(channel, callback)
        if self._homes.get(channel) is not home:  # the slot has moved since
            for moved in home.discard(channel):
                self.open(channel, moved)

    def wait(self, event: ThreadEvent, seconds: float, channel: str) -> None:
        home = self._homes.get(channel)
        if home is None:
            event.wait(seconds)
        else:
            home.wait(event, seconds, channel)

    def close(self) -> None:
        with self._mutex:
            subscribers = list(self._by_node.values())
        for subscriber in subscribers:
            subscriber.close()

    def follow_slots(self) -> None:
        """Subscribe at the nodes that have the slots of the channels now. The table calls it when they change."""
        opened: list[Callable[[], object]] = []
        with self._mutex:
            for channel, home in list(self._homes.items()):
                node = self._table.owners[slot_of(channel)]
                if node is None or node is home.node:
                    continue
                waiting = home.discard(channel)
                other = self._homes[channel] = self._subscriber_at(node)
                opened.append(partial(self._open_at, other, channel, partial(self._on_moved, waiting)))
        for call in opened:
            call()

    def _on_moved(self, callbacks: list[Callable[[], object]]) -> None:
        """Have all waiters send a request: messages at the former node may have been lost."""
        for callback in callbacks:
            callback()
        self._handler.on_reconnect()

    def _subscriber_at(self, node: ClusterNode) -> ShardedSubscriber:
        subscriber = self._by_node.get(node)
        if subscriber is None:
            subscriber = ShardedSubscriber(node, self._handler, self._id, self._on_redirected)
            self._by_node[node] = subscriber
            node.reconnect_subscriber(subscriber)
        return subscriber

    def _on_redirected(self, node: ClusterNode, error: ServerError | None) -> None:
        """Follow the redirection of a subscription; or read the table, because a node has closed its connection."""
        if error is not None and error.code == "MOVED":
            try:
                slot, other = self._table.redirected(error, node)
            except PARSE_ERRORS:
                return
            self._table.move(slot, other)
        else:
            self._table.refresh_soon()

"""Subscribes to the sharded channels of one node of a Cluster: each belongs to a slot, as the keys of the locks do. So the
number of receivers, by which a script knows whether a waiter lives, is right on the node that executes it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from ...core.keys import BROADCAST
from .cluster_node import REDIRECTIONS
from .resp import ServerError, pack
from .subscriber import RedisSubscriber

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..base import MessageHandler
    from .cluster_node import ClusterNode


class ShardedSubscriber(RedisSubscriber):
    """The subscriber at one node.

    Args:
        node: the node.
        handler: receives the messages.
        own_id: the end of the names of this process's channels, which are the same on all nodes.
        on_moved: called when the node doesn't serve a channel, with its redirection, or None if there is none.
    """

    def __init__(
        self,
        node: ClusterNode,
        handler: MessageHandler,
        own_id: str,
        on_moved: Callable[[ClusterNode, ServerError | None], object],
    ) -> None:
        self.node = node
        self._on_moved = on_moved
        make, max_age = node.subscriber_settings
        super().__init__(make, handler, node.location, max_age, fails_over=True)
        self._id = own_id

    def discard(self, channel: str) -> list[Callable[[], object]]:
        """Forget a channel that another node serves. Return the callbacks that wait for it."""
        with self._mutex:
            self._channels.discard(channel)
            self._names.pop(channel, None)
            self._subscribed = {other: name for other, name in self._subscribed.items() if other != channel}
            found = [callback for other, callback in self._callbacks if other == channel]
            self._callbacks = [entry for entry in self._callbacks if entry[0] != channel]
            if not self._channels:
                self._interrupt()
        return found

    def _subscribe_to(self, channel: str) -> None:
        """Subscribe to another channel on the same connection, if there is one, and its other messages continue."""
        reader = self._reader
        if reader is None or not reader.sends_anywhere:
            self._interrupt()
            return
        self._names[channel] = channel + self._id
        try:
            reader.send(self._subscription({channel: self._names[channel]}))
        except OSError:
            self._interrupt()

    def _subscription(self, names: dict[str, str]) -> bytes:
        return b"".join(pack("SSUBSCRIBE", name, channel + BROADCAST) for channel, name in names.items())

    def _handle(self, message: Any) -> None:
        if message[0] == b"smessage":
            word, _, lock = message[2].decode().partition(" ")
            self._handler.on_message(word, lock)
        elif message[0] == b"ssubscribe":
            self._confirm(message[1].decode())
        elif message[0] == b"sunsubscribe":
            raise ConnectionResetError("the slot of a channel has moved")

    def _confirm(self, name: str) -> None:
        """Record that a channel is subscribed: its broadcasts are its second name."""
        channel = name.removesuffix(BROADCAST)
        with self._mutex:
            if channel == name or self._reader is None or channel not in self._names:
                return
            self._subscribed = {**self._subscribed, channel: self._names[channel]}
        self._run_callbacks({channel})

    def _on_lost(self) -> None:
        self._on_moved(self.node, None)

    def _on_refused(self, error: Exception) -> None:
        if isinstance(error, ServerError) and error.code in REDIRECTIONS and self._pid == os.getpid():
            self._on_moved(self.node, error)
            self._pause()
        else:
            super()._on_refused(error)

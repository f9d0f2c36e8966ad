"""``ClusterNode``: one node of a Cluster. It executes commands as a single server does, and those of a slot that moves."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from ...core.tuning import DEFAULT, Tuning
from .backend import RedisBackend
from .redispy import Failure
from .resp import ServerError, pack
from .scripts import by_sha, by_source, prepared_head
from .server_errors import CLUSTER_HINTS
from .server_list import join_address

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ...core.commands import Command
    from ...core.errors import LockBackendError
    from .server_list import Address
    from .subscriber import RedisSubscriber

ASKING = pack("ASKING")
"""Sent before a request, it makes the target of a moving slot execute it."""


class ClusterNode(RedisBackend):
    """One node of a Cluster.

    Args:
        address: its address.
        url: the URL of it alone.
        options: as of ``RedisBackend``.
    """

    fails_over = True
    hints = CLUSTER_HINTS
    sharded = True
    by_sha = staticmethod(partial(by_sha, sharded=True))
    by_source = staticmethod(partial(by_source, sharded=True))
    prepared_head = staticmethod(partial(prepared_head, sharded=True))

    def __init__(self, address: Address, url: str, options: Mapping[str, Any], tuning: Tuning = DEFAULT) -> None:
        super().__init__(url, options, tuning)
        self.address = address
        self.name = join_address(*address)
        self.location = f"{url.partition('://')[0]}://{self.name}/0"

    @property
    def subscriber_settings(self) -> tuple[Callable[[], Any], float]:
        """The function that makes a connection for a subscriber, and the seconds after which it is replaced."""
        return self._make_resp2, self._max_age

    def reconnect_subscriber(self, subscriber: RedisSubscriber) -> None:
        """Have a subscriber reconnect when the node says that it isn't the master any more."""
        self._subscriber = subscriber

    def execute_plain(self, request: bytes, seconds: float) -> Any:
        """Send a request, and return its reply, which may be a ``ServerError``.

        Raises:
            Failure: the connection failed.
        """
        return self._pool.execute_many([request], seconds)[0]

    def call_asking(self, command: Command[Any]) -> Any:
        """Execute a command in a slot that is moving to this node.

        Raises:
            LockBackendError: as of ``call``.
        """
        if command.replicas:
            return self._call_replicated(command, (ASKING,))
        try:
            reply = self._pool.execute(ASKING + self.by_sha(command), 2)
            if type(reply) is ServerError and reply.code == "NOSCRIPT":
                reply = self._pool.execute(ASKING + self.by_source(command), 2)
        except Failure as failure:
            raise self._error_of_failure(failure) from failure.cause
        if type(reply) is ServerError:
            raise self._error_of_reply(reply)
        return reply

    async def acall_asking(self, command: Command[Any]) -> Any:
        """Execute a command in a slot that is moving to this node, without blocking the event loop.

        Raises:
            LockBackendError: as of ``acall``.
        """
        try:
            reply = await self._loop_connections.execute_second(ASKING, self.by_sha(command))
            if type(reply) is ServerError and reply.code == "NOSCRIPT":
                reply = await self._loop_connections.execute_second(ASKING, self.by_source(command))
        except Failure as failure:
            raise self._error_of_failure(failure) from failure.cause
        if type(reply) is ServerError:
            raise self._error_of_reply(reply)
        return reply

    def _error_of_reply(self, error: Exception, on_reused_connection: bool = False) -> LockBackendError:
        found = super()._error_of_reply(error, on_reused_connection)
        if code_of(found) in REDIRECTIONS:  # more of them than are followed: the table is out of date
            found.transient = found.awaits_failover = True
        return found


REDIRECTIONS = {"MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN"}
"""Codes of errors of a node that doesn't serve the slot at this moment. Nothing was executed."""


def code_of(error: LockBackendError) -> str:
    """Return the code of the server's error; "" if it sent none."""
    cause = error.__cause__
    return cause.code if isinstance(cause, ServerError) else ""

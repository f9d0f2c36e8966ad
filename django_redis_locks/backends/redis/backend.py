"""``RedisBackend``: the store on one Redis or Valkey server, or on the master that sentinels name. Each command is one
EVALSHA request."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from ...core import forks
from ...core.clock import system_now as now
from ...core.commands import PARSE_ERRORS
from ...core.errors import LockBackendError
from ...core.prepared import PreparedCommand
from ...core.server_info import Facts, Topology
from ...core.text import escape_unprintable
from ...core.tuning import DEFAULT, Tuning
from ..base import FEATURES, Backend, Subscriber
from . import versions
from .async_connections import LoopConnections
from .cluster_url import is_cluster
from .idle import LastTimeout
from .redispy import Failure, connection_makers, validate_replicas, validate_seconds
from .resp import ServerError, pack
from .scripts import PackedArguments, by_sha, by_source, pack_arguments, pack_arguments_once, prepared_head
from .sentinels import OPTIONS as SENTINEL_OPTIONS
from .sentinels import Sentinels
from .server_errors import (
    ERROR_REPLIES,
    HINTS,
    NOT_EXECUTED_CODES,
    RECONNECT_CODES,
    SENTINEL_HINT,
    TRANSIENT_CODES,
    error_code,
    is_no_script_engine,
    suggest_fix,
)
from .server_info import read_facts
from .subscriber import PING, RedisSubscriber
from .sync_connections import ConnectionPool
from .urls import access_digest, database_in, identity, mask_password, parse_sentinels, redis_url, server_in

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ...core.commands import Command
    from ..base import MessageHandler

MAX_CONNECTION_AGE = 3600.0
"""Seconds after which a connection is replaced, so that a changed password or address takes effect."""

PROTOCOL = 2
"""RESP2 is sufficient, and every server and proxy supports it. redis-py's default is RESP3 since version 8."""


class RedisBackend(Backend):
    """Locks on one Redis or Valkey server, or on the master of a service that sentinels monitor.

    Args:
        location: the URL, such as ``redis://127.0.0.1:6379/0`` or ``redis+sentinel://s1:26379,s2:26379/mymaster/0``.
        options: keyword arguments of redis-py's connection (``socket_timeout``, default 2 s; ``username``,
            ``ssl_ca_certs``, …), and ``max_connection_age``: seconds after which a connection is replaced (default
            3600); ``replicas``: how many replicas must have a lock before its caller gets it (default 0). With sentinels
            also ``sentinel_kwargs``, the arguments of their connections, and ``min_other_sentinels``: a sentinel that
            knows fewer others isn't believed (default 0).

    Raises:
        ValueError, TypeError: the URL or an option is invalid.
    """

    supports = frozenset(FEATURES)
    fails_over = False
    """Whether another server may take over from one that fails."""
    hints = HINTS
    """What to do, for each code of an error."""
    sharded = False
    """Whether messages reach the subscribers of one node only, so that their number is right on a Cluster."""
    by_sha, by_source, prepared_head = staticmethod(by_sha), staticmethod(by_source), staticmethod(prepared_head)

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        if cls is RedisBackend and is_cluster(args[0] if args else kwargs.get("location", "")):
            from .cluster import ClusterBackend  # noqa: PLC0415 - its nodes are of this class

            return ClusterBackend(*args, **kwargs)
        return super().__new__(cls)

    def __init__(self, location: str, options: Mapping[str, Any], tuning: Tuning = DEFAULT) -> None:
        url = redis_url(location)
        timeouts = {"socket_timeout": tuning.socket_timeout, "socket_connect_timeout": tuning.socket_timeout}
        connection_options = {"protocol": PROTOCOL, **timeouts, **options}
        self.replicas = validate_replicas(connection_options.pop("replicas", 0))
        self._wait_timeout: float = connection_options["socket_timeout"]
        max_age = validate_seconds(
            connection_options.pop("max_connection_age", MAX_CONNECTION_AGE), "max_connection_age"
        )
        sentinel_url = parse_sentinels(location)
        self._sentinels = Sentinels(sentinel_url, connection_options) if sentinel_url is not None else None
        self.fails_over = self.fails_over or self._sentinels is not None
        server_options = {
            name: value
            for name, value in connection_options.items()
            if self._sentinels is None or name not in SENTINEL_OPTIONS
        }
        make, make_async, self._make_resp2 = connection_makers(url, server_options, self._sentinels)
        self.identity = identity(location, options)
        access = location if self._sentinels else url
        self._node = f"{server_in(self.identity)} {access_digest(access, connection_options)}"
        self._database = database_in(self.identity)
        self.location = mask_password(location)
        self._max_age = max_age
        self._timeout = tuning.socket_timeout
        last_timeout = LastTimeout()
        self._pool = ConnectionPool(make, max_age, last_timeout)
        self._loop_connections = LoopConnections(make_async, max_age, last_timeout)
        self._subscriber: RedisSubscriber | None = None
        if self._sentinels is not None:
            self._sentinels.on_switch = self._leave_former_master

    incompatibility = staticmethod(versions.incompatibility)
    compatibility_warning = staticmethod(versions.compatibility_warning)

    def __repr__(self) -> str:
        return f"<RedisBackend {self.location}>"

    @property
    def node(self) -> str:
        """The server and a digest of the connection settings, so that wrong settings of one alias don't count as an
        outage for another alias."""
        return self._node

    def call(self, command: Command[Any]) -> Any:
        forks.pid()
        if command.replicas:
            return self._call_replicated(command)
        try:
            reply = self._pool.execute(self.by_sha(command))
            if type(reply) is ServerError and reply.code == "NOSCRIPT":
                reply = self._pool.execute(self.by_source(command))
        except Failure as failure:
            raise self._error_of_failure(failure) from failure.cause
        if type(reply) is ServerError:
            raise self._error_of_reply(reply)
        return reply

    async def acall(self, command: Command[Any]) -> Any:
        forks.pid()
        if command.replicas:  # in a thread: WAIT would block the other requests on the connection of the loop
            return await asyncio.to_thread(self._call_replicated, command)
        try:
            reply = await self._loop_connections.execute(self.by_sha(command))
            if type(reply) is ServerError and reply.code == "NOSCRIPT":
                reply = await self._loop_connections.execute(self.by_source(command))
        except Failure as failure:
            raise self._error_of_failure(failure) from failure.cause
        if type(reply) is ServerError:
            raise self._error_of_reply(reply)
        return reply

    def _call_replicated(self, command: Command[Any], before: tuple[bytes, ...] = ()) -> list[Any]:
        """Execute a command, and wait on the same connection until replicas have its writes. The source of the script is
        sent: after a NOSCRIPT the wait would last its whole time, and be repeated. ``before``: requests that are sent
        first, whose replies aren't needed."""
        wait = pack("WAIT", command.replicas, round(1000 * self._wait_timeout))
        timeout = self._wait_timeout + self._timeout
        try:
            requests = [*before, self.by_source(command), wait]
            replies = self._pool.execute_many(requests, timeout)[len(before) :]
        except Failure as failure:
            raise self._error_of_failure(failure) from failure.cause
        for reply in replies:
            if type(reply) is ServerError:
                raise self._error_of_reply(reply)
        return replies

    def prepare(self, name: str, keys: tuple[str, ...]) -> PreparedCommand:
        return PreparedRequest(self, name, keys)

    def call_many(self, commands: Sequence[Command[Any]], timeout: float) -> list[Any]:
        """Execute commands in one write. Either all replies arrive within ``timeout`` seconds, or every command
        fails."""
        try:
            requests = [self.by_sha(command) for command in commands]
            try:
                replies = self._pool.execute_many(requests, timeout)
            except Failure as failure:
                if not failure.on_reused_connection:
                    raise
                replies = self._pool.execute_many(requests, timeout)
            missing = [index for index, reply in enumerate(replies) if _unknown_script(reply)]
            if missing:
                repeated = self._pool.execute_many([self.by_source(commands[index]) for index in missing], timeout)
                for index, reply in zip(missing, repeated, strict=True):
                    replies[index] = reply
        except Failure as failure:
            return [self._error_of_failure(failure)] * len(commands)
        return [self._error_of_reply(reply) if type(reply) is ServerError else reply for reply in replies]

    def probe(self) -> None:
        try:
            self._pool.execute_many([PING], self._timeout)
        except Failure as failure:
            raise self._error_of_failure(failure) from failure.cause

    def facts(self, prefix: str, timeout: float) -> Facts:
        # a separate pool, because its connection ends up in subscriber mode
        pool = ConnectionPool(self._make_resp2, self._max_age)
        try:
            deadline, waits = now() + timeout, self.replicas > 0
            facts = read_facts(pool, self.location, self._database, prefix, timeout, waits=waits, sharded=self.sharded)
            return facts if self._sentinels is None else self._sentinels.add_facts(facts, deadline - now())
        except ServerError as error:
            raise self._error_of_reply(error) from error
        except Failure as failure:
            raise self._error_of_failure(failure) from failure.cause
        except PARSE_ERRORS as error:
            raise LockBackendError(f"{self.location} doesn't answer as Redis does: {error}", transient=True) from error
        finally:
            pool.close()

    def topology(self, key: str = "") -> Topology:
        single = Topology("standalone", (self.identity.removeprefix("redis:"),))
        return single if self._sentinels is None else self._sentinels.topology()

    def subscriber(self, handler: MessageHandler) -> Subscriber:
        subscriber = self._subscriber = RedisSubscriber(
            self._make_resp2, handler, self.location, self._max_age, fails_over=self.fails_over
        )
        return subscriber

    def close(self) -> None:
        self._pool.receive_arrived()  # else the posted requests are repeated
        self._pool.close()

    def after_fork_in_child(self) -> None:
        self._pool.after_fork_in_child()
        self._loop_connections.after_fork_in_child()

    def _leave_former_master(self) -> None:
        """Replace all connections before their next request, and subscribe at the new master."""
        self._pool.replace_all()
        self._loop_connections.replace_all()
        if self._subscriber is not None:
            self._subscriber.reconnect()

    def _error_of_failure(self, failure: Failure) -> LockBackendError:
        cause = failure.cause
        if isinstance(cause, ERROR_REPLIES):
            return self._error_of_reply(cause, failure.on_reused_connection)
        if failure.sent:
            text = f"no answer from {self.location}: {failure}"
        else:
            text = f"can't reach {self.location}: {failure}. {suggest_fix(str(failure), self.location)}"
        return LockBackendError(
            text,
            outcome_unknown=failure.sent,
            transient=True,
            unreachable=True,
            on_reused_connection=failure.on_reused_connection,
            awaits_failover=self.fails_over,
        )

    def _error_of_reply(self, error: Exception, on_reused_connection: bool = False) -> LockBackendError:
        code = error_code(error)
        if code in RECONNECT_CODES and self._subscriber is not None:
            self._subscriber.reconnect()
        hint = SENTINEL_HINT if is_no_script_engine(error) else self.hints.get(code, "")
        text = f"{self.location} refuses ({code}): {escape_unprintable(str(error).rstrip('.'))}{hint}"
        refusal = LockBackendError(
            text,
            outcome_unknown=code not in NOT_EXECUTED_CODES,
            transient=code in TRANSIENT_CODES,
            on_reused_connection=on_reused_connection,
            awaits_failover=self.fails_over and code in TRANSIENT_CODES,
        )
        refusal.__cause__ = error
        return refusal


NO_ARGUMENTS = pack_arguments()


class PreparedRequest(PreparedCommand):
    """A request of which all but the first argument is packed once."""

    __slots__ = ("_aexecute", "_execute", "_head")

    _backend: RedisBackend

    def __init__(self, backend: RedisBackend, name: str, keys: tuple[str, ...]) -> None:
        super().__init__(backend, name, keys)
        self._head = backend.prepared_head(name, keys)
        self._execute = backend._pool.execute
        self._aexecute = backend._loop_connections.execute

    packed = staticmethod(pack_arguments)
    packed_once = staticmethod(pack_arguments_once)

    def send(self, first: str, rest: PackedArguments = NO_ARGUMENTS, *, messages_first: bool = False) -> Any:
        try:
            request = b"%b$%d\r\n%b\r\n%b" % (self._head, len(data := first.encode()), data, rest.data)
            # The server writes to its clients in the reverse order in which they got their first byte of output: to this
            # one last, if a PING comes first. A process that is woken first finds a free CPU more often
            reply = self._execute(PING + request, 2) if messages_first else self._execute(request)
            if reply.__class__ is ServerError:
                return super().send(first, rest) if _unknown_script(reply) else self._backend._error_of_reply(reply)
        except Failure as failure:
            return self._failure(failure)
        return reply

    async def asend(self, first: str, rest: PackedArguments = NO_ARGUMENTS) -> Any:
        try:
            reply = await self._aexecute(
                b"%b$%d\r\n%b\r\n%b" % (self._head, len(data := first.encode()), data, rest.data)
            )
            if reply.__class__ is ServerError:
                return (
                    await super().asend(first, rest) if _unknown_script(reply) else self._backend._error_of_reply(reply)
                )
        except Failure as failure:
            return self._failure(failure)
        return reply

    def post(self, first: str, rest: PackedArguments, on_reply: Callable[[Any], object]) -> LockBackendError | None:
        data = first.encode()
        try:
            self._backend._pool.post(b"%b$%d\r\n%b\r\n%b" % (self._head, len(data), data, rest.data), on_reply)
        except LockBackendError as failure:
            return failure
        except Failure as failure:
            return self._failure(failure)
        return None

    def _as_command(self, first: str, rest: PackedArguments) -> Command[Any]:  # type: ignore[override]
        return super()._as_command(first, rest.values)

    def _failure(self, failure: Failure) -> LockBackendError:
        error = self._backend._error_of_failure(failure)
        error.__cause__ = failure.cause
        return error


def _unknown_script(reply: Any) -> bool:
    return type(reply) is ServerError and reply.code == "NOSCRIPT"

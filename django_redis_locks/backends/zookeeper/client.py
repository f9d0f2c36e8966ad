"""The only module that uses kazoo, which has no types: one session with an ensemble, its requests and its events."""

from __future__ import annotations

import atexit
import threading
from functools import partial
from inspect import signature
from typing import TYPE_CHECKING, Any, Final, Protocol

from ...core.clock import system_now
from ...core.errors import LockBackendError
from ..redis import timers
from .requests import Refused, Stored

try:
    from kazoo import exceptions as errors
    from kazoo.client import KazooClient
    from kazoo.handlers.threading import KazooTimeoutError
    from kazoo.hosts import collect_hosts
    from kazoo.protocol.states import EventType, KazooState
except ImportError:
    INSTALLED = False
else:
    INSTALLED = True

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from .requests import Request

RECONNECT: Final = {"max_tries": -1, "delay": 0.05, "backoff": 2, "max_jitter": 0.2, "max_delay": 1.0}
"""How long a client that has lost its connection waits between attempts."""

NUDGE: Final = 0.1
"""The seconds after which a request without a reply is followed by another one. A server sometimes (3.8: one of some thousand
times) keeps the reply to one of several requests until it gets the next one, such as a ping some seconds later."""

OURS: Final = frozenset(
    {"hosts", "timeout", "client_id", "handler", "connection_retry", "command_retry", "read_only", "logger"}
)
"""The arguments of kazoo's client that this backend sets."""


class SessionEvents(Protocol):
    """What a client reports, in a thread of its own: these methods mustn't block."""

    def on_connect(self, lease: int) -> None:
        """A connection was made. ``lease``: the milliseconds after which the ensemble ends a silent session."""

    def on_disconnect(self) -> None:
        """The connection was lost; the session may go on. Watches are gone."""

    def on_expired(self) -> None:
        """The session was ended, and its nodes are deleted."""

    def on_change(self, path: str, deleted: bool) -> None:
        """A watched node was deleted or changed, which ended the watch."""


def arguments() -> list[str]:
    """Return the names of the options: the arguments of kazoo's client without those that this backend sets."""
    parameters = signature(KazooClient).parameters.values()
    return [each.name for each in parameters if each.kind is not each.VAR_KEYWORD and each.name not in OURS]


def split_hosts(hosts: str) -> tuple[list[tuple[str, int]], str]:
    """Return the servers of a hosts string, and its path, "" for none.

    Raises:
        ValueError: it can't be read.
    """
    servers, path = collect_hosts(hosts)
    return servers, (path or "").rstrip("/")


class Client:
    """One session with an ensemble. It reconnects by itself, and begins a new session when the old one has expired.

    Args:
        hosts: kazoo's hosts string.
        timeout: the seconds after which the ensemble shall end a silent session.
        options: other arguments of kazoo's client.
        events: receives what happens.

    Raises:
        ValueError, TypeError: an argument is wrong.
    """

    def __init__(self, hosts: str, timeout: float, options: Mapping[str, Any], events: SessionEvents) -> None:
        self._hosts = hosts
        self._events = events
        self._lease = round(1000 * timeout)
        self._refused = {
            errors.NoNodeError: Refused.MISSING,
            errors.NodeExistsError: Refused.EXISTS,
            errors.NotEmptyError: Refused.NOT_EMPTY,
        }
        try:
            self._kazoo = KazooClient(hosts, timeout, connection_retry=RECONNECT, **options)
        except errors.ConfigurationError as error:
            raise ValueError(str(error)) from error
        self._open: dict[int, float] = {}
        self._nudges = False
        self._observe_timeout()
        self._kazoo.add_listener(self._on_state)

    def _observe_timeout(self) -> None:
        """Keep the negotiated timeout, which kazoo only logs."""
        connection = self._kazoo._connection
        invoke = connection._invoke

        def observed(*args: Any, **kwargs: Any) -> Any:
            result = invoke(*args, **kwargs)
            answer = result[0] if isinstance(result, tuple) else None
            self._lease = getattr(answer, "time_out", 0) or self._lease
            return result

        connection._invoke = observed

    @property
    def connected(self) -> bool:
        """Whether there is a connection."""
        return bool(self._kazoo.connected)

    def start(self) -> None:
        """Connect in the background."""
        try:
            self._kazoo.start_async()
        except RuntimeError as error:
            raise LockBackendError(f"can't start the threads of the ZooKeeper client: {error}") from error
        # else it stops before the locks are released at the exit of the interpreter
        atexit.unregister(self._kazoo.handler.stop)

    def wait_connected(self, seconds: float) -> bool:
        """Wait for a connection. Return whether there is one."""
        return bool(self._kazoo._live.wait(seconds))

    def not_connected(self) -> LockBackendError:
        """Return the error for a caller that has waited for a connection."""
        if self._kazoo.client_state == "AUTH_FAILED":
            return LockBackendError(f"ZooKeeper at {self._hosts} rejects the login: check auth_data in OPTIONS")
        return LockBackendError(f"ZooKeeper at {self._hosts} can't be reached", transient=True, unreachable=True)

    def stop(self) -> None:
        """End the session, which deletes its nodes. Its end is no event."""
        self._kazoo.remove_listener(self._on_state)
        self._kazoo.stop()
        self._kazoo.close()

    def _on_state(self, state: str) -> None:
        if state == KazooState.CONNECTED:
            self._events.on_connect(self._lease)
        elif state == KazooState.SUSPENDED:
            self._events.on_disconnect()
        else:
            self._events.on_expired()

    def _on_event(self, event: Any) -> None:
        if event.type != EventType.NONE:
            self._events.on_change(event.path, event.type == EventType.DELETED)

    # Requests

    def send(self, requests: Sequence[Request], seconds: float) -> list[Any]:
        """Send requests, and return the replies.

        Raises:
            LockBackendError: one of them wasn't answered in time, or was refused.
        """
        deadline = system_now() + seconds
        results = self._begin_all(requests)
        try:
            return [
                self._read(request, partial(result.get, timeout=max(0.001, deadline - system_now())))
                for request, result in zip(requests, results, strict=True)
            ]
        finally:
            self._open.pop(id(results), None)

    def post(self, requests: Sequence[Request], on_replies: Callable[[list[Any] | LockBackendError], object]) -> None:
        """Send requests, and have ``on_replies`` called with the replies or the error, in another thread."""
        results = self._begin_all(requests)
        left = threading.Semaphore(len(results) - 1)

        def completed(_: object) -> None:
            if left.acquire(blocking=False):
                return
            self._open.pop(id(results), None)
            replies: list[Any] | LockBackendError
            try:
                replies = [
                    self._read(request, partial(result.get, block=False))
                    for request, result in zip(requests, results, strict=True)
                ]
            except LockBackendError as failure:
                replies = failure
            on_replies(replies)

        for result in results:
            result.rawlink(completed)

    def _begin_all(self, requests: Sequence[Request]) -> list[Any]:
        """Send requests, and begin to look after their replies."""
        results = [self._begin(request) for request in requests]
        self._open[id(results)] = system_now()
        if not self._nudges:
            self._nudges = True
            timers.call_at(system_now() + NUDGE, self._nudge)
        return results

    def _nudge(self) -> None:
        """Send one more request if some have no reply yet."""
        self._nudges = False
        sent = list(self._open.values())
        if sent:
            self._nudges = True
            timers.call_at(system_now() + NUDGE, self._nudge)
            if min(sent) <= system_now() - NUDGE and self.connected:
                self._kazoo.exists_async("/")

    def _begin(self, request: Request) -> Any:
        kazoo, (method, path, data, watched) = self._kazoo, request
        match method:
            case "create":
                return kazoo.create_async(path, include_data=True)
            case "create_in_line":
                return kazoo.create_async(path, data, ephemeral=True, sequence=True, include_data=True)
            case "create_all":
                return kazoo.ensure_path_async(path)
            case "get":
                return kazoo.get_async(path, watch=self._on_event if watched else None)
            case "put":
                return kazoo.set_async(path, data)
            case "children":
                return kazoo.get_children_async(path)
            case _:
                return getattr(kazoo, f"{method}_async")(path)

    def _read(self, request: Request, get: Callable[[], Any]) -> Any:
        try:
            value = get()
        except tuple(self._refused) as refused:
            return next(reply for error, reply in self._refused.items() if isinstance(refused, error))
        except (errors.SessionExpiredError, errors.SessionMovedError) as error:
            raise self._failure("the session has expired", unreachable=False) from error
        except (errors.ConnectionLoss, errors.ConnectionClosedError, errors.OperationTimeoutError) as error:
            raise self._failure("the connection was lost") from error
        except KazooTimeoutError as error:
            raise self._failure("no reply in time") from error
        except (errors.NoAuthError, errors.AuthFailedError, errors.InvalidACLError) as error:
            raise LockBackendError(
                f"ZooKeeper at {self._hosts} denies access to {request.path}: check auth_data and default_acl in OPTIONS"
            ) from error
        except errors.KazooException as error:
            raise LockBackendError(f"ZooKeeper at {self._hosts} refuses: {error!r}") from error
        match request.method:
            case "create" | "create_in_line":
                return Stored(value[0], b"", value[1].czxid, value[1].ctime)
            case "get":
                return Stored(request.path, value[0], value[1].czxid, value[1].ctime)
            case "exists" | "put":
                return Refused.MISSING if value is None else Stored(request.path, b"", value.czxid, value.ctime)
            case _:
                return value

    def _failure(self, why: str, *, unreachable: bool = True) -> LockBackendError:
        return LockBackendError(
            f"ZooKeeper at {self._hosts}: {why}", outcome_unknown=True, transient=True, unreachable=unreachable
        )

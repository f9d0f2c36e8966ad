"""``RedlockBackend``: locks on a majority of independent Redis or Valkey servers.

Each step of a mutex is sent to all servers at once, and counts as carried out when a majority has done so. A server that
doesn't answer isn't a lock that is taken: without a majority of answers every step raises ``LockBackendError``.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ...core.errors import LockBackendError
from ...core.merged_facts import merge
from ...core.server_info import Facts, Topology
from ...core.tuning import DEFAULT, REDLOCK_TIMEOUT, Tuning
from ..base import Backend
from ..redis import RedisBackend
from .quorum import Quorum
from .votes import majority_of, no_majority
from .workers import Threads

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence

    from ...core.commands import Command
    from .workers import Starter

POLL_INTERVAL: Final = 0.05
POLL_JITTER: Final = 0.2
"""A waiter asks again after 50 to 250 ms: no server notifies it. The random part lets one of several waiters win."""

ALLOWED: Final = (3, 5, 7)

_REFUSED: Final = {
    "detach": "can't have them, as a majority has no order of moves",
    "semaphores": "can't have them, as a majority isn't a count",
    "rwlocks": "can't have them, as a majority can't count readers",
    "records": "can't have them, as a majority has no order of writes",
    "loads": "can't have them, as a majority stores no values",
}

_NO_REASON: Final = "can't have them"


class RedlockBackend(Backend):
    """Locks on a majority of 3, 5 or 7 independent Redis or Valkey servers.

    Args:
        location: the URL of each server, such as ``redis://10.0.0.1:6379/0``.
        options: ``fence``: False saves a round trip of each acquire, and its grants have no fence (default True). All
            others are those of ``RedisBackend``, for every server; ``socket_timeout`` is 0.5 s by default.

    Raises:
        ValueError, TypeError: a URL or an option is invalid.

    Example::

        REDIS_LOCKS = {
            "default": {
                "BACKEND": "django_redis_locks.backends.redlock.RedlockBackend",
                "LOCATION": ["redis://10.0.0.1:6379/0", "redis://10.0.0.2:6379/0", "redis://10.0.0.3:6379/0"],
            },
        }
    """

    supports = frozenset({"counters", "kept"})
    lists_servers = True

    def __init__(self, location: Sequence[str], options: Mapping[str, Any], tuning: Tuning = DEFAULT) -> None:
        locations = _validated(location)
        fence, server_options = _split(options)
        timeout = server_options["socket_timeout"]
        backends = [_member(url, server_options, tuning) for url in locations]
        _check_distinct(backends)
        self._take_members(backends, timeout, fence, Threads())

    def _take_members(self, backends: Sequence[Backend], timeout: float, fence: bool, starter: Starter) -> None:
        self.fences = fence
        self.members = tuple(backends)
        self.identity = "redlock:" + ",".join(sorted(backend.identity for backend in backends))
        nodes = sorted(backend.node.partition(" ")[::2] for backend in backends)
        self._node = f"{','.join(server for server, _ in nodes)} {'-'.join(digest for _, digest in nodes)}"
        self.location = ", ".join(getattr(backend, "location", backend.identity) for backend in backends)
        self._starter = starter
        self._timeout = timeout
        self._quorum = Quorum(backends, self.location, starter, timeout, fenced=fence)

    @classmethod
    def incompatibility(cls) -> str | None:
        return RedisBackend.incompatibility()

    @classmethod
    def compatibility_warning(cls) -> str | None:
        return RedisBackend.compatibility_warning()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.location}>"

    @property
    def node(self) -> str:
        return self._node

    def refusal(self, feature: str) -> str:
        return f"{type(self).__name__} {_REFUSED.get(feature, _NO_REASON)}"

    def tuned(self, tuning: Tuning) -> Tuning:
        return replace(
            tuning,
            max_poll_interval=min(tuning.max_poll_interval, POLL_INTERVAL),
            max_jitter=max(tuning.max_jitter, POLL_JITTER),
        )

    def together(self, keys: tuple[str, ...]) -> Hashable:
        return keys[0]  # each lock has its own majority

    def call(self, command: Command[Any]) -> Any:
        return self._quorum.call(command)

    async def acall(self, command: Command[Any]) -> Any:
        return await self._quorum.acall(command)

    def call_many(self, commands: Sequence[Command[Any]], timeout: float) -> list[Any]:
        """Execute commands, those for one server in one write. Each has its own majority."""
        return self._quorum.call_many(commands, min(timeout, self._timeout))

    def probe(self) -> None:
        replies = self._ask_members(_probe)
        if sum(reply is None for reply in replies) < majority_of(len(replies)):
            raise no_majority(self.location, replies)

    def facts(self, prefix: str, timeout: float) -> Facts:
        found = self._ask_members(lambda backend: backend.facts(prefix, timeout))
        if sum(isinstance(reply, Facts) for reply in found) < majority_of(len(found)):
            raise no_majority(self.location, found)
        return replace(merge(self.location, "redlock", found), database="")

    def topology(self, key: str = "") -> Topology:
        return Topology("redlock", tuple(server for member in self.members for server in member.topology().servers))

    def _ask_members(self, ask: Callable[[Backend], Any]) -> list[Any]:
        """Call a function for each server at the same time. Return its results, or their errors."""
        results: list[Any] = [None] * len(self.members)
        left = threading.Semaphore(0)

        def job(number: int) -> None:
            try:
                results[number] = ask(self.members[number])
            except LockBackendError as failure:
                results[number] = failure
            except Exception as error:  # noqa: BLE001 - the caller waits for a result
                results[number] = LockBackendError(repr(error))
            finally:
                left.release()

        for number in range(len(results)):
            self._starter.start(partial(job, number))
        for _ in results:
            left.acquire()
        return results

    def close(self) -> None:
        for backend in self.members:
            backend.close()

    def after_fork_in_child(self) -> None:
        for backend in self.members:
            backend.after_fork_in_child()
        self._quorum.after_fork_in_child()


def _probe(backend: Backend) -> None:
    backend.probe()


def _validated(location: Sequence[str]) -> list[str]:
    if isinstance(location, str) or not isinstance(location, list | tuple):
        raise ValueError("LOCATION of a Redlock is a list of 3, 5 or 7 URLs, not a text")
    if len(location) not in ALLOWED:
        raise ValueError(f"LOCATION of a Redlock is a list of 3, 5 or 7 URLs, not of {len(location)}")
    for number, url in enumerate(location, 1):
        if not isinstance(url, str):
            raise ValueError(f"server {number} of LOCATION is a URL, not {type(url).__name__}")
        scheme = url.partition("://")[0]
        if "+" in scheme:
            raise ValueError(
                f"server {number} of LOCATION is a single server, not {scheme}://: a Redlock has independent servers"
            )
    return list(location)


def _split(options: Mapping[str, Any]) -> tuple[bool, dict[str, Any]]:
    """Return the option ``fence``, and the options of each server."""
    given = dict(options)
    fence = given.pop("fence", True)
    if not isinstance(fence, bool):
        raise ValueError(f"the option fence is True or False, not {fence!r}")
    if given.get("replicas"):
        raise ValueError("the option replicas isn't for a Redlock: its servers are independent")
    given.pop("replicas", None)
    timeout = given.setdefault("socket_timeout", REDLOCK_TIMEOUT)
    given.setdefault("socket_connect_timeout", timeout)
    return fence, given


def _member(url: str, options: Mapping[str, Any], tuning: Tuning) -> RedisBackend:
    short = replace(tuning, socket_timeout=min(tuning.socket_timeout, options["socket_timeout"]))
    return RedisBackend(url, options, short)


def _check_distinct(backends: Sequence[RedisBackend]) -> None:
    seen: dict[str, str] = {}
    for backend in backends:
        server = backend.identity.rpartition("?" if backend.identity.startswith("unix:") else "/")[0]
        if server in seen:
            raise ValueError(
                f"LOCATION names the same server twice: {seen[server]} and {backend.location} are one server, which has one vote"
            )
        seen[server] = backend.location

"""``ZooKeeperBackend``: locks as ephemeral sequential nodes of an ensemble."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from ...core.clock import system_now
from ...core.server_info import Facts, Topology
from ...core.suggestions import closest, did_you_mean
from ...core.tuning import DEFAULT, SESSION_SHARE, Tuning
from ..base import Backend, Subscriber
from . import client, listing, requests, runs, steps
from .session import Session

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ...core.commands import Command
    from ..base import MessageHandler
    from .requests import Step

DEFAULT_LEASE: Final = 30_000
"""The lease in milliseconds of a store that is used without an alias."""

LEASE: Final = "EXPIRE"
"""The key of the alias's lease among the options."""

POLL_INTERVAL: Final = 10.0
"""The seconds after which a waiter reads its line although nothing was reported. Each time also renews its right to adopt
the lock without a request."""

GRANT_LEASE: Final = 30.0
"""The longest lease of a lock that was granted to a waiter and isn't confirmed yet. It needn't be short: if the process
dies, the session ends it."""

_NO_REASON: Final = "can't have them"

_REFUSED: Final = {
    "counters": "can't have them, as its fences are the numbers of its transactions",
    "kept": "can't have them, as a node ends with its process",
    "records": "can't have them, as its nodes end with their process",
}

_sessions: dict[tuple[str, str], Session] = {}


class ZooKeeperBackend(Backend):
    """Locks on an ensemble of ZooKeeper servers, version 3.5 or newer.

    Args:
        location: the servers and perhaps a path, such as ``zk1:2181,zk2:2181,zk3:2181/app``.
        options: the arguments of ``kazoo.client.KazooClient``, such as ``auth_data``, ``default_acl``, ``use_ssl`` and ``ca``.

    Raises:
        ValueError, TypeError: the location or an option is invalid.

    Example::

        REDIS_LOCKS = {
            "default": {
                "BACKEND": "django_redis_locks.backends.zookeeper.ZooKeeperBackend",
                "LOCATION": "zk1:2181,zk2:2181,zk3:2181/app",
            },
        }
    """

    supports = frozenset({"fair", "wakes"})
    always_fair = True
    longest_is_expire = True
    incompatible = "E054"

    def __init__(self, location: str, options: Mapping[str, Any], tuning: Tuning = DEFAULT) -> None:
        given = dict(options)
        lease = given.pop(LEASE, DEFAULT_LEASE)
        servers, path = _servers(location)
        known = client.arguments()
        for name in given:
            if name not in known:
                raise TypeError(f"ZooKeeper has no option {name!r}{did_you_mean(closest(name, known))}")
        names = sorted(f"{host}:{port}" for host, port in servers)
        self.location = ",".join(names) + path
        self.identity = f"zookeeper:{self.location}?{lease}"
        self._timeout = tuning.socket_timeout
        key = self.identity, repr(sorted(given.items()))
        self.session = _sessions.get(key) or _sessions.setdefault(
            key, Session(location, lease / 1000 / SESSION_SHARE, given)
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.location}>"

    @property
    def node(self) -> str:
        return f"zookeeper:{self.location}"

    @classmethod
    def with_lease(cls, options: Mapping[str, Any], lease: int) -> Mapping[str, Any]:
        return {**options, LEASE: lease}

    @classmethod
    def validation_error(cls, location: Any, options: Mapping[str, Any]) -> str | None:
        if LEASE in options:
            return f"the option {LEASE!r} belongs beside OPTIONS"
        try:
            cls(location, options)
        except (TypeError, ValueError) as error:
            return str(error)
        return None

    @classmethod
    def incompatibility(cls) -> str | None:
        if not client.INSTALLED:
            return "ZooKeeper needs the package kazoo: install django-redis-locks[zookeeper]"
        return None

    def refusal(self, feature: str) -> str:
        return f"{type(self).__name__} {_REFUSED.get(feature, _NO_REASON)}"

    def tuned(self, tuning: Tuning) -> Tuning:
        return replace(tuning, max_poll_interval=max(tuning.max_poll_interval, POLL_INTERVAL), grant_lease=GRANT_LEASE)

    def call(self, command: Command[Any]) -> Any:
        return runs.call(self.session, self._step(command), self._timeout)

    async def acall(self, command: Command[Any]) -> Any:
        return await runs.acall(self.session, self._step(command), self._timeout)

    def call_many(self, commands: Sequence[Command[Any]], timeout: float) -> list[Any]:
        """Execute independent commands at the same time."""
        return runs.call_many(self.session, [self._step(command) for command in commands], timeout)

    def _step(self, command: Command[Any]) -> Step:
        return _steps[command.name](self.session, command.keys, command.args)

    def probe(self) -> None:
        runs.call(self.session, _probing(), self._timeout)

    def facts(self, prefix: str, timeout: float) -> Facts:
        end = system_now() + timeout
        runs.call(self.session, _probing(), timeout)
        begin = system_now()
        runs.call(self.session, _probing(), max(0.001, end - begin))
        took = system_now() - begin
        return Facts(
            "ZooKeeper", address=self.location, round_trip=took, session=self.session.lease / 1000 / SESSION_SHARE
        )

    def topology(self, key: str = "") -> Topology:
        return Topology("zookeeper", tuple(self.location.split(",")))

    def subscriber(self, handler: MessageHandler) -> Subscriber:
        return _WatchSubscriber(self.session, handler)

    def close(self) -> None:
        """End the session if it holds nothing and nothing waits."""
        self.session.close()

    def after_fork_in_child(self) -> None:
        self.session.after_fork_in_child()


class _WatchSubscriber(Subscriber):
    """Messages come from watches, which need no channel: its name only tells processes apart."""

    def __init__(self, session: Session, handler: MessageHandler) -> None:
        session.add_handler(handler)
        self.after_fork_in_child()

    def channel_name(self, channel: str) -> str:
        return channel + self._id

    def open(self, channel: str, callback: Callable[[], object]) -> None:
        callback()

    def after_fork_in_child(self) -> None:
        self._id = os.urandom(9).hex()


def _servers(location: Any) -> tuple[list[tuple[str, int]], str]:
    if not isinstance(location, str) or "://" in location:
        raise ValueError(
            f"LOCATION of ZooKeeper is a text of servers, such as zk1:2181,zk2:2181,zk3:2181/app, not {location!r}"
        )
    if location:
        try:
            return client.split_hosts(location)
        except ValueError:
            pass
    raise ValueError(f"LOCATION of ZooKeeper names servers, such as zk1:2181,zk2:2181,zk3:2181/app: not {location!r}")


def _probing() -> Step:
    yield [requests.exists("/")]


_steps: dict[str, Callable[..., Step]] = {
    "lock/acquire_fair": steps.acquire_fair,
    "lock/release": steps.release,
    "lock/renew": steps.renew,
    "lock/adopt": steps.adopt,
    "lock/inspect": steps.inspect,
    "lock/force_release": steps.force_release,
    "waiters/unregister": steps.unregister,
    "index/page": listing.page,
    "index/inspect": listing.inspect_many,
}

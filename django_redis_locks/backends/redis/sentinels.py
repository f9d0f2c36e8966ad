"""Asks sentinels for the address of the master, each time a connection is opened.

The sentinels are asked one after the other, on a new connection each, until one names a master. That takes a part of the
time that the connection may take to open. redis-py's ``Sentinel`` isn't used: its clients may wait for longer, stay bound
to one event loop, and don't tell an unknown service from sentinels that are away.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

from redis.exceptions import ResponseError

from ...core.clock import system_now as now
from ...core.server_info import Topology
from .redispy import Failure, adrop, connect_time_limit, connection_makers
from .resp import ServerError, pack
from .sentinel_url import SentinelUrl
from .server_list import Address, join_address
from .sync_connections import ConnectionPool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from ...core.server_info import Facts
    from .redispy import ConnectionMakers

OPTIONS: Final = ("sentinel_kwargs", "min_other_sentinels")
"""The names in ``OPTIONS`` that only locations with sentinels have."""


class NoMasterError(ConnectionError):
    """No sentinel names a master."""


class Sentinels:
    """The sentinels of one location.

    Args:
        url: the location.
        options: ``OPTIONS``. Sentinels share the timeouts and TLS settings of the master unless ``sentinel_kwargs`` has
            others.

    Raises:
        ValueError, TypeError: an option is unknown or invalid.

    Attributes:
        on_switch: called, in any thread, when a sentinel names another master than the last one did.
    """

    def __init__(self, url: SentinelUrl, options: Mapping[str, Any]) -> None:
        self.url = url
        self.on_switch: Callable[[], object] = _ignore
        self._master: Address | None = None
        self._hosts = url.servers.hosts
        self._min_others = _min_other_sentinels(options)
        self._make, self._make_async, _ = _sentinel_makers(url, options)
        self._longest = connect_time_limit(self._make()) or 2.0

    def topology(self) -> Topology:
        """Return the master that a sentinel named last, if any."""
        master = () if self._master is None else (join_address(*self._master),)
        return Topology("sentinel", master, self.url.service)

    def locate(self, deadline: float) -> Address:
        """Return the address of the master.

        Args:
            deadline: when the connection to the master must be open, on the package's clock.

        Raises:
            NoMasterError: no sentinel names one.
        """
        replies: list[tuple[Address, Any]] = []
        for host, seconds in self._shares(deadline):
            reply = self._ask(host, seconds, "MASTER", self.url.service)
            replies.append((host, reply))
            if (master := self._master_in(host, reply)) is not None:
                return master
        raise self._no_master(replies)

    async def alocate(self, deadline: float) -> Address:
        """Return the address of the master, as ``locate`` does.

        Raises:
            NoMasterError: no sentinel names one.
        """
        replies: list[tuple[Address, Any]] = []
        for host, seconds in self._shares(deadline):
            reply = await self._aask(host, seconds, "MASTER", self.url.service)
            replies.append((host, reply))
            if (master := self._master_in(host, reply)) is not None:
                return master
        raise self._no_master(replies)

    def add_facts(self, facts: Facts, timeout: float) -> Facts:
        """Add what the sentinels tell to the facts of the master.

        Args:
            facts: the facts of the server that ``locate`` named last.
            timeout: seconds for all sentinels together.
        """
        replies = [
            (host, self._ask(host, seconds, "MASTER", self.url.service))
            for host, seconds in self._shares(now() + timeout)
        ]
        answers = [fields for _, reply in replies if (fields := fields_of(reply))]
        node = "".join(self.topology().servers)
        return replace(
            facts,
            mode="sentinel",
            node=node,
            other_sentinels=max((int(answer["num-other-sentinels"]) for answer in answers), default=None),
            failover_after=max((int(answer["down-after-milliseconds"]) / 1000 for answer in answers), default=None),
            bad_sentinels=tuple(self._described(host, reply) for host, reply in replies if self._reason(reply)),
        )

    def _shares(self, deadline: float) -> Iterator[tuple[Address, float]]:
        """Yield the sentinels, the one that named the master last time first, and the seconds in which each must
        answer. One share is left for the master."""
        hosts = self._hosts
        for asked, host in enumerate(hosts):
            left = max(deadline - now(), 0.001)
            yield host, min(left / (len(hosts) - asked + 1), self._longest)

    def _ask(self, host: Address, seconds: float, *words: str) -> Any:
        pool = ConnectionPool(lambda: _directed(self._make(), host), max_age=3600.0)
        try:
            return pool.execute_many([pack("SENTINEL", *words)], seconds)[0]
        except Failure as failure:
            return failure.cause
        finally:
            pool.close()

    async def _aask(self, host: Address, seconds: float, *words: str) -> Any:
        connection = _directed(self._make_async(), host)
        try:
            async with asyncio.timeout(seconds):
                await connection.connect()
                await connection.send_command("SENTINEL", *words)
                return await connection.read_response()
        except Exception as error:  # noqa: BLE001 - the next sentinel is asked after any failure
            return error
        finally:
            adrop(connection)

    def _master_in(self, host: Address, reply: Any) -> Address | None:
        fields = fields_of(reply)
        if not fields or _why_not_usable(fields, self._min_others):
            return None
        master = fields["ip"], int(fields["port"])
        if self._hosts[0] != host:
            self._hosts = host, *(other for other in self._hosts if other != host)
        previous, self._master = self._master, master
        if previous not in {None, master}:
            self.on_switch()
        return master

    def _no_master(self, replies: list[tuple[Address, Any]]) -> NoMasterError:
        service = self.url.service
        reasons = [self._described(host, reply) for host, reply in replies]
        answers = [reply for _, reply in replies if fields_of(reply) or is_unknown_service(reply)]
        if not answers:
            text = "no sentinel answers"
        elif all(map(is_unknown_service, answers)):
            text = f"no sentinel knows the service {service!r}"
        else:
            text = f"the sentinels name no master of {service!r}"
        return NoMasterError(f"{text} ({', '.join(reasons)})")

    def _described(self, host: Address, reply: Any) -> str:
        return f"{join_address(*host)}: {self._reason(reply)}"

    def _reason(self, reply: Any) -> str:
        """Return why a sentinel's reply isn't used, or ""."""
        fields = fields_of(reply)
        if fields:
            return _why_not_usable(fields, self._min_others)
        if is_unknown_service(reply):
            return "unknown service"
        if isinstance(reply, TimeoutError):
            return "no answer in time"
        if "unknown command" in str(reply):
            return "this server is no sentinel"
        return str(reply).rstrip(".").replace(". ", ": ") or type(reply).__name__


def fields_of(reply: Any) -> dict[str, str]:
    """Return the names and values of a reply as a dict; empty if it isn't one."""
    if not isinstance(reply, list) or not all(isinstance(word, bytes) for word in reply):
        return {}
    words = [word.decode(errors="replace") for word in reply]
    return dict(zip(words[::2], words[1::2], strict=False))


def is_unknown_service(reply: Any) -> bool:
    """Return whether a sentinel answered that it doesn't monitor the service."""
    return isinstance(reply, (ServerError, ResponseError)) and "No such master" in str(reply)


def _why_not_usable(fields: Mapping[str, str], min_others: int) -> str:
    """Return why the answer of a sentinel isn't used, or ""."""
    flags = fields.get("flags", "").split(",")
    others = int(fields.get("num-other-sentinels", 0))
    if "s_down" in flags or "o_down" in flags or "master" not in flags:
        return f"{join_address(fields['ip'], int(fields['port']))} is down"
    if others < min_others:
        return f"it knows {others} other sentinels, and min_other_sentinels is {min_others}"
    return ""


def _directed(connection: Any, host: Address) -> Any:
    connection.host, connection.port = host
    return connection


def _sentinel_makers(url: SentinelUrl, options: Mapping[str, Any]) -> ConnectionMakers:
    kwargs = options.get("sentinel_kwargs", {})
    if not hasattr(kwargs, "keys"):
        raise TypeError(f"the option sentinel_kwargs is a dict, not {type(kwargs).__name__}")
    shared = {name: value for name, value in options.items() if name.startswith(("socket_", "ssl_"))}
    kwargs = {**shared, **kwargs}
    tls = kwargs.pop("ssl", url.servers.tls)
    if not tls:
        kwargs = {name: value for name, value in kwargs.items() if not name.startswith("ssl_")}
    try:
        return connection_makers(
            f"redis{'s' * tls}://sentinel?{urlencode(url.sentinel_query)}", {**kwargs, "protocol": 2}
        )
    except TypeError as error:
        raise TypeError(f"sentinel_kwargs, or a sentinel_ option: {error}") from None
    except ValueError as error:
        raise ValueError(f"sentinel_kwargs, or a sentinel_ option: {error}") from None


def _min_other_sentinels(options: Mapping[str, Any]) -> int:
    number = options.get("min_other_sentinels", 0)
    if not isinstance(number, int) or isinstance(number, bool) or number < 0:
        raise ValueError(f"the option min_other_sentinels is a whole number from 0 on, not {number!r}")
    return number


def _ignore() -> None:
    """Stand in for ``on_switch``."""

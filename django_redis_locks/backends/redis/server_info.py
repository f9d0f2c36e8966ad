"""What a server says of itself: in INFO, in CONFIG, and by what it lets us do.

Which commands it lets us do is found out by doing them, on a key that isn't there, so that nothing changes; a user who
may not read the ACL, and a server that has none, need no other way.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ...core import clock
from ...core.clock import system_now as now
from ...core.server_info import Facts
from .resp import ServerError, pack

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .sync_connections import ConnectionPool

PROBES: dict[str, tuple[str, ...]] = {
    "del": ("DEL", "KEY"),
    "eval": ("EVAL", "return 0", "0"),
    "evalsha": ("EVALSHA", "0" * 40, "0"),
    "exists": ("EXISTS", "KEY"),
    "get": ("GET", "KEY"),
    "pexpire": ("PEXPIRE", "KEY", "1"),
    "ping": ("PING",),
    "pttl": ("PTTL", "KEY"),
    "publish": ("PUBLISH", "CHANNEL", ""),
    "set": ("SET", "KEY", "", "XX", "GET"),
    "time": ("TIME",),
    "type": ("TYPE", "KEY"),
    "zadd": ("ZADD", "KEY", "XX", "0", "nobody"),
    "zcard": ("ZCARD", "KEY"),
    "zcount": ("ZCOUNT", "KEY", "0", "0"),
    "zpopmin": ("ZPOPMIN", "KEY"),
    "zrangebyscore": ("ZRANGEBYSCORE", "KEY", "0", "0"),
    "zrem": ("ZREM", "KEY", "nobody"),
    "zrevrangebyscore": ("ZREVRANGEBYSCORE", "KEY", "0", "0"),
    "subscribe": ("SUBSCRIBE", "CHANNEL"),
}
"""Each command that locks need, so that it does nothing. The last one leaves the connection good for nothing else."""

_ASKED = (("HELLO",), ("INFO",), ("CONFIG", "GET", "appendfsync"), ("CONFIG", "GET", "save"))


def read_facts(pool: ConnectionPool, address: str, database: str, prefix: str, timeout: float) -> Facts:
    """The facts of a server, by a wire of one's own, within so many seconds.

    Raises:
        Failure: the connection failed.
        Refusal: it lets nobody do anything.
    """
    end = now() + timeout
    (first,) = pool.execute_many([pack("PING")], timeout)  # connects
    if type(first) is ServerError and first.code != "NOPERM":  # no login, still loading, or a disk that is full
        raise first
    began, here = now(), clock.wall()
    (time,) = pool.execute_many([pack("TIME")], end - began, fail_if_demoted=False)
    round_trip = now() - began
    hello, info, fsync, save = pool.execute_many([pack(*words) for words in _ASKED], end - now(), fail_if_demoted=False)
    replies = pool.execute_many([pack(*words) for words in _probes(prefix)], end - now(), fail_if_demoted=False)
    told = _told(info)
    greeting = _pairs(hello)
    role = told.get("role") or greeting.get("role", "master")
    valkey = told.get("server_name", greeting.get("server")) == "valkey"
    run_id = told.get("run_id", "")
    return Facts(
        server="Valkey" if valkey else "Redis",
        version=(told.get("valkey_version") if valkey else None)
        or told.get("redis_version")
        or greeting.get("version", ""),
        address=address,
        round_trip=round_trip,
        role="replica" if role in {"slave", "replica"} else "master",
        mode="cluster" if "cluster" in {told.get("redis_mode"), greeting.get("mode")} else "standalone",
        ahead=None if type(time) is ServerError else int(time[0]) + int(time[1]) / 1e6 - here - round_trip / 2,
        database=f"{run_id}/{database}" if run_id else "",
        denied=tuple(dict.fromkeys(_denied(replies, prefix))),
        policy=told.get("maxmemory_policy", ""),
        memory=_count(told, "used_memory"),
        most_memory=_count(told, "maxmemory"),
        clients=_count(told, "connected_clients"),
        most_clients=_count(told, "maxclients"),
        evicted=_count(told, "evicted_keys"),
        uptime=_count(told, "uptime_in_seconds"),
        appends=None if "aof_enabled" not in told else told["aof_enabled"] == "1",
        syncs=_pairs(fsync).get("appendfsync", ""),
        saves=None if "save" not in _pairs(save) else _pairs(save)["save"] != "",
    )


def _probes(prefix: str) -> Iterator[tuple[str, ...]]:
    names = {"KEY": f"{prefix}:{{0}}:probe", "CHANNEL": f"{prefix}:{{0}}:inbox:probe"}
    for words in PROBES.values():
        yield tuple(names.get(word, word) for word in words)


def _denied(replies: list[Any], prefix: str) -> Iterator[str]:
    for command, reply in zip(PROBES, replies, strict=True):
        if type(reply) is not ServerError:
            continue
        if "unknown command" in str(reply).lower():
            yield command.upper()
        elif reply.code == "NOPERM":
            what = _quoted("", str(reply).partition("permission")[2])  # before it, and in quotes, are names
            if "run the" in what:
                yield f"+{command}"
            else:
                yield f"&{prefix}:*" if "channel" in what else f"~{prefix}:*"


_quoted = re.compile(r"'[^']*'").sub


def _told(info: Any) -> dict[str, str]:
    """INFO, as pairs; empty if the user may not ask for it."""
    if not isinstance(info, bytes):
        return {}
    lines = info.decode(errors="replace").splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line and not line.startswith("#"))


def _pairs(reply: Any) -> dict[str, str]:
    """An array of names and values, as pairs; empty if that was refused."""
    if not isinstance(reply, list):
        return {}
    words = [word.decode(errors="replace") if isinstance(word, bytes) else "" for word in reply]
    return dict(zip(words[::2], words[1::2], strict=False))


def _count(told: dict[str, str], name: str) -> int | None:
    value = told.get(name, "")
    return int(value) if value.isdecimal() else None

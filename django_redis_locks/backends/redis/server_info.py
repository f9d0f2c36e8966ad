"""Reads the version, configuration and state of a server, and the rights of the user.

To check the rights, it executes each command on a missing key, which changes nothing. This doesn't need the right to
read the ACL, and works on servers without ACLs.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ...core import clock
from ...core.clock import system_now as now
from ...core.server_info import Facts
from .resp import ServerError, pack

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from .sync_connections import ConnectionPool

PROBES: dict[str, tuple[str, ...]] = {
    "del": ("DEL", "KEY"),
    "eval": ("EVAL", "return 0", "0"),
    "evalsha": ("EVALSHA", "0" * 40, "0"),
    "get": ("GET", "KEY"),
    "hdel": ("HDEL", "KEY", "field"),
    "hmget": ("HMGET", "KEY", "field"),
    "hset": ("HSET", "KEY", "field", "", "odd"),  # an error, after the check of rights
    "pexpire": ("PEXPIRE", "KEY", "1"),
    "ping": ("PING",),
    "pttl": ("PTTL", "KEY"),
    "publish": ("PUBLISH", "CHANNEL", ""),
    "pubsub": ("PUBSUB", "NUMSUB"),
    "set": ("SET", "KEY", "", "XX", "GET"),
    "time": ("TIME",),
    "type": ("TYPE", "KEY"),
    "zadd": ("ZADD", "KEY", "XX", "0", "member"),
    "zcard": ("ZCARD", "KEY"),
    "zcount": ("ZCOUNT", "KEY", "0", "0"),
    "zpopmin": ("ZPOPMIN", "KEY"),
    "zrange": ("ZRANGE", "KEY", "0", "0"),
    "zrangebyscore": ("ZRANGEBYSCORE", "KEY", "0", "0"),
    "zrem": ("ZREM", "KEY", "member"),
    "zrevrange": ("ZREVRANGE", "KEY", "0", "0"),
    "zrevrangebyscore": ("ZREVRANGEBYSCORE", "KEY", "0", "0"),
    "zscore": ("ZSCORE", "KEY", "member"),
    "subscribe": ("SUBSCRIBE", "CHANNEL"),
}
"""Each command that locks need, with arguments that have no effect. The last one leaves the connection in subscriber
mode."""

SHARDED: dict[str, tuple[str, ...]] = {
    "publish": ("SPUBLISH", "CHANNEL", ""),
    "pubsub": ("PUBSUB", "SHARDNUMSUB"),
    "subscribe": ("SSUBSCRIBE", "CHANNEL"),
}
"""What a node of a Cluster executes instead."""

_INFO_COMMANDS = (
    ("HELLO",),
    ("INFO",),
    ("CONFIG", "GET", "appendfsync"),
    ("CONFIG", "GET", "save"),
    ("CONFIG", "GET", "min-replicas-to-write"),
    ("CONFIG", "GET", "cluster-node-timeout"),
    ("CONFIG", "GET", "cluster-require-full-coverage"),
)


def read_facts(
    pool: ConnectionPool,
    address: str,
    database: str,
    prefix: str,
    timeout: float,
    *,
    waits: bool = False,
    sharded: bool = False,
) -> Facts:
    """Read the facts of a server.

    Args:
        pool: a pool that isn't used for anything else, since its connection ends up subscribed.
        address: the location, without its password.
        prefix: the prefix of the keys and channels for which rights are checked.
        timeout: seconds for all requests together.
        waits: whether the right to ``WAIT`` for replicas is needed, too.
        sharded: locks use sharded channels.

    Raises:
        Failure: the connection failed.
        ServerError: the server executes no command at all.
    """
    deadline = now() + timeout
    (ping_reply,) = pool.execute_many([pack("PING")], timeout)  # connects
    if type(ping_reply) is ServerError and ping_reply.code != "NOPERM":  # no login, loading, or the disk is full
        raise ping_reply
    sent_at, local_time = now(), clock.wall()
    (time_reply,) = pool.execute_many([pack("TIME")], deadline - sent_at, fail_if_demoted=False)
    round_trip = now() - sent_at
    ahead = None
    if type(time_reply) is not ServerError:
        ahead = int(time_reply[0]) + int(time_reply[1]) / 1e6 - local_time - round_trip / 2
    hello_reply, info_reply, *settings_replies = pool.execute_many(
        [pack(*words) for words in _INFO_COMMANDS], deadline - now(), fail_if_demoted=False
    )
    probes = PROBES | SHARDED if sharded else PROBES
    probes = {"wait": ("WAIT", "0", "1"), **probes} if waits else probes
    requests = _probe_requests(probes, prefix)
    probe_replies = pool.execute_many(
        [pack(*words) for words in requests.values()], deadline - now(), fail_if_demoted=False
    )
    settings: dict[str, str] = {}
    for reply in settings_replies:
        settings |= _parse_pairs(reply)
    info = _parse_info(info_reply)
    hello = _parse_pairs(hello_reply)
    role = info.get("role") or hello.get("role", "master")
    valkey = info.get("server_name", hello.get("server")) == "valkey"
    run_id = info.get("run_id", "")
    timeout_ms = _number(settings, "cluster-node-timeout")
    full_coverage = settings.get("cluster-require-full-coverage")
    return Facts(
        server="Valkey" if valkey else "Redis",
        version=(info.get("valkey_version") if valkey else None)
        or info.get("redis_version")
        or hello.get("version", ""),
        address=address,
        round_trip=round_trip,
        role="replica" if role in {"slave", "replica"} else "master",
        mode="cluster" if "cluster" in {info.get("redis_mode"), hello.get("mode")} else "standalone",
        ahead=ahead,
        database=f"{run_id}/{database}" if run_id else "",
        denied=tuple(dict.fromkeys(_denied(requests, probe_replies, prefix))),
        policy=info.get("maxmemory_policy", ""),
        memory=_number(info, "used_memory"),
        most_memory=_number(info, "maxmemory"),
        clients=_number(info, "connected_clients"),
        most_clients=_number(info, "maxclients"),
        evicted=_number(info, "evicted_keys"),
        uptime=_number(info, "uptime_in_seconds"),
        appends=None if "aof_enabled" not in info else info["aof_enabled"] == "1",
        syncs=settings.get("appendfsync", ""),
        replicas=_online_replicas(info),
        min_replicas=_number(settings, "min-replicas-to-write"),
        saves=None if "save" not in settings else settings["save"] != "",
        failover_after=timeout_ms / 1000 if sharded and timeout_ms is not None else None,
        full_coverage=None if full_coverage is None else full_coverage == "yes",
    )


def _probe_requests(probes: Mapping[str, tuple[str, ...]], prefix: str) -> dict[str, tuple[str, ...]]:
    """Return the requests that probe rights, by the command that each of them shows."""
    names = {"KEY": f"{prefix}:{{0}}:probe", "CHANNEL": f"{prefix}:{{0}}:inbox:probe"}
    return {words[0].lower(): tuple(names.get(word, word) for word in words) for words in probes.values()}


def _denied(probes: Iterable[str], replies: list[Any], prefix: str) -> Iterator[str]:
    for command, reply in zip(probes, replies, strict=True):
        if type(reply) is not ServerError:
            continue
        if "unknown command" in str(reply).lower():
            yield command.upper()
        elif reply.code == "NOPERM":
            # Without the names of commands and keys, which come before "permission" or are quoted
            subject = _quoted("", str(reply).partition("permission")[2])
            if "run the" in subject:
                yield f"+{command}"
            else:
                yield f"&{prefix}:*" if "channel" in subject else f"~{prefix}:*"


_quoted = re.compile(r"'[^']*'").sub


def _parse_info(info_reply: Any) -> dict[str, str]:
    """Return the fields of an INFO reply; empty if the user isn't allowed to read it."""
    if not isinstance(info_reply, bytes):
        return {}
    lines = info_reply.decode(errors="replace").splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line and not line.startswith("#"))


def _online_replicas(info: dict[str, str]) -> int | None:
    if "connected_slaves" not in info:
        return None
    return sum(re.fullmatch(r"slave\d+", name) is not None and "state=online" in info[name] for name in info)


def _parse_pairs(reply: Any) -> dict[str, str]:
    """Return an array of names and values as a dict; empty if the reply is an error."""
    if not isinstance(reply, list):
        return {}
    words = [word.decode(errors="replace") if isinstance(word, bytes) else "" for word in reply]
    return dict(zip(words[::2], words[1::2], strict=False))


def _number(info: dict[str, str], name: str) -> int | None:
    value = info.get(name, "")
    return int(value) if value.isdecimal() else None

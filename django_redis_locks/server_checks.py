"""System checks that connect to the servers. Only ``check --deploy`` runs them.

A property that a server doesn't report, because the user has no right to read it, isn't a problem.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from django.core import checks

from . import conf, diagnosis
from .checks import TAG
from .conf import cache_settings as caches
from .core.errors import LockBackendError
from .core.server_info import MEMORY
from .core.tuning import SESSION_SHARE
from .handler import locks

if TYPE_CHECKING:
    from .core.server_info import Facts

OLDEST_REDIS: Final = (6, 2)
"""The oldest version of Redis that works. The oldest Valkey is 7.2."""

SHARDED_CHANNELS: Final = (7, 0)
"""The oldest version of Redis with sharded channels, which deliver a message to the right process only."""

OTHER_SENTINELS: Final = 2
"""The number of other sentinels with which one of them may fail."""

ELECTION: Final = 2.0
"""The seconds that sentinels need at most, as a rule, to agree on a failover and to promote a replica."""

SESSION_TOLERANCE: Final = 0.01
"""The difference between timeouts of a session, in seconds, that causes no warning: they are whole milliseconds."""

CLOCK_TOLERANCE: Final = 10.0
"""The difference between the clocks of server and client, in seconds, that causes no warning."""


def check_servers(app_configs: object = None, **_: Any) -> Sequence[checks.CheckMessage]:
    """Return the problems of the servers of all aliases with valid settings. A server that is down is a problem,
    too."""
    return [message for alias in _usable() for message in _messages_of(alias)]


def _usable() -> Iterator[str]:
    """Yield the aliases with valid settings."""
    try:
        table = locks.configuration()
    except conf.InvalidLockBackend:
        return
    for alias, entry in table.items():
        if not any(problem.serious for problem in conf.problems(alias, entry)):
            yield alias


def _messages_of(alias: str) -> Iterator[checks.CheckMessage]:
    where = f"{conf.SETTING}[{alias!r}]"
    try:
        facts = diagnosis.facts(alias)
    except LockBackendError as error:
        yield _of_outage(where, str(error.args[0]))
        return
    if facts.server == MEMORY:
        return
    if facts.mode == "redlock":
        yield from _of_redlock(where, facts, alias)
        return
    if facts.session is not None:
        yield from _of_session(where, facts.session, alias)
        return
    yield from _of_server(where, facts, alias)
    yield from _of_data(where, facts)
    if facts.mode == "sentinel":
        yield from _of_sentinels(where, facts)
    if facts.members:
        yield from _of_cluster(where, facts)
    if facts.failover_after is not None:
        yield from _of_failover(where, facts.failover_after, alias)
    yield from _shared_databases(where, facts, alias)


def _of_outage(where: str, reason: str) -> checks.CheckMessage:
    problem, _, hint = reason.partition(". ")
    return _warning("W101", f"{where}: {problem}.", f"{hint}." if hint else "")


def _of_unreachable(where: str, facts: Facts) -> Iterator[checks.CheckMessage]:
    for reason in facts.unreachable:
        yield _of_outage(where, reason)


def _of_server(where: str, facts: Facts, alias: str) -> Iterator[checks.CheckMessage]:
    if _version(facts) < OLDEST_REDIS:
        yield _warning(
            "W103",
            f"{where}: {facts.name} is {facts.server} {facts.version}.",
            "Locks need Redis 6.2 or Valkey 7.2, or newer.",
        )
    if facts.role == "replica":
        yield _warning(
            "W104",
            f"{where}: {facts.name} is a replica.",
            "Locks can't be acquired there, and some may be missing after a failover. Set LOCATION to the master.",
        )
    if facts.mode == "cluster" and not facts.members:
        yield _warning(
            "W105",
            f"{where}: {facts.name} is a node of a Redis Cluster.",
            "Begin LOCATION with redis+cluster://. This way locks work only if the node has all slots.",
        )
    wanted = locks[alias].engine.backend.replicas
    if facts.replicas is not None and facts.replicas < wanted:
        yield _warning(
            "W111",
            f"{where}: OPTIONS['replicas'] is {wanted}, and {facts.name} has {facts.replicas} that are online.",
            "No lock can be acquired until there are enough. Start replicas, or lower the option.",
        )
    if facts.denied:
        rights = " ".join(right for right in facts.denied if not right.isupper())
        missing = ", ".join(right for right in facts.denied if right.isupper())
        yield _warning(
            "W106",
            f"{where}: {facts.name} denies rights or commands that locks need: {', '.join(facts.denied)}.",
            " ".join(
                [f"ACL SETUSER <user> {rights}"] * bool(rights)
                + [f"Undo the renaming of {missing} in redis.conf."] * bool(missing)
            ),
        )
    if facts.ahead is not None and abs(facts.ahead) >= CLOCK_TOLERANCE:
        yield _warning(
            "W108",
            f"{where}: the clock of {facts.name} is {abs(facts.ahead):.0f} s "
            f"{'ahead of' if facts.ahead > 0 else 'behind'} the clock of this machine.",
            "Fences are times of the server's clock, and leases end early when that clock is corrected. Run NTP on both.",
        )


def _of_policy(where: str, facts: Facts) -> Iterator[checks.CheckMessage]:
    if facts.policy not in {"", "noeviction"}:
        yield _warning(
            "W102",
            f"{where}: {facts.name} has maxmemory-policy {facts.policy}.",
            "It may delete held locks. Set noeviction, or give the locks their own server.",
        )


def _of_data(where: str, facts: Facts) -> Iterator[checks.CheckMessage]:
    yield from _of_policy(where, facts)
    note = ""
    if facts.appends is False:
        note = f"{facts.name} has no append-only file: a crash frees all locks while their holders continue."
    elif facts.syncs == "no":
        note = (
            f"{facts.name} has appendfsync no: a crash of its machine frees the locks of the last half minute while "
            "their holders continue."
        )
    if note:
        hint = "Set appendonly yes and appendfsync everysec, or reject writes with older fences in your database."
        yield checks.Info(f"{where}: {note}", hint=hint, id=f"{TAG}.W107")


def _of_redlock(where: str, facts: Facts, alias: str) -> Iterator[checks.CheckMessage]:
    yield from _of_unreachable(where, facts)
    for member in facts.members:
        yield from _of_server(where, member, alias)
        yield from _of_policy(where, member)
        if member.appends is False or member.syncs not in {"", "always"}:
            syncs = f"appendfsync {member.syncs}" if member.appends else "no append-only file"
            yield _warning(
                "W117",
                f"{where}: {member.name} has {syncs}: after a crash it has forgotten locks that it has granted.",
                "Then two callers may hold one lock. Set appendonly yes and appendfsync always, or keep a server that has "
                "crashed away for the longest lease.",
            )


def _of_session(where: str, session: float, alias: str) -> Iterator[checks.CheckMessage]:
    lease = locks[alias].settings.lease / 1000
    wanted = lease / SESSION_SHARE
    if session < wanted - SESSION_TOLERANCE:
        yield _warning(
            "W121",
            f"{where}: ZooKeeper ends sessions after {session:g} s, and EXPIRE {lease:g} needs {wanted:g} s.",
            f"No lock can be acquired. Set EXPIRE to {session * SESSION_SHARE:g}, or raise maxSessionTimeout on each server.",
        )
    elif session > wanted + SESSION_TOLERANCE:
        yield _warning(
            "W121",
            f"{where}: ZooKeeper ends sessions after {session:g} s, and EXPIRE {lease:g} asks for {wanted:g} s.",
            f"The lock of a dead holder stays held for {session:g} s. Set EXPIRE to {session * SESSION_SHARE:g}, or lower "
            "minSessionTimeout on each server.",
        )


def _of_sentinels(where: str, facts: Facts) -> Iterator[checks.CheckMessage]:
    if facts.other_sentinels is not None and facts.other_sentinels < OTHER_SENTINELS:
        yield _warning(
            "W110",
            f"{where}: the sentinels of {facts.address} know {facts.other_sentinels} others.",
            "Run three sentinels or more on machines of their own: a failover needs a majority of them.",
        )
    if facts.bad_sentinels:
        yield _warning(
            "W110",
            f"{where}: not all sentinels of LOCATION can be used: {', '.join(facts.bad_sentinels)}.",
            "Start them, or correct their addresses or their login: the others may fail.",
        )
    if facts.replicas == 0:
        yield _warning(
            "W111",
            f"{where}: {facts.name} has no replica that is online.",
            "If it fails, no server can take over. Start a replica, or correct its replicaof and masterauth.",
        )
    if facts.min_replicas == 0:
        yield checks.Info(
            f"{where}: {facts.name} has min-replicas-to-write 0: a failover may lose locks while their holders continue.",
            hint="Set OPTIONS['replicas'] to 1, and min-replicas-to-write 1 for a shorter time with two masters; or reject "
            "writes with older fences in your database.",
            id=f"{TAG}.W112",
        )


def _of_cluster(where: str, facts: Facts) -> Iterator[checks.CheckMessage]:
    yield from _of_unreachable(where, facts)
    if facts.server == "Redis" and _version(facts) < SHARDED_CHANNELS:
        yield _warning(
            "W103",
            f"{where}: {facts.name} is a Cluster of Redis {facts.version}.",
            "Waiters there poll every two seconds. Redis 7.0 and Valkey 7.2 wake them.",
        )
    if facts.full_coverage:
        yield _warning(
            "W114",
            f"{where}: {facts.name} has cluster-require-full-coverage yes.",
            "If one master fails, all locks fail until its replica takes over. Set it to no on each node.",
        )
    unreplicated = [master.name for master in facts.members if master.replicas == 0]
    if unreplicated:
        yield _warning(
            "W115",
            f"{where}: masters of {facts.name} have no replica: {', '.join(unreplicated)}.",
            "If one of them fails, no node takes over its slots. Start replicas.",
        )


def _of_failover(where: str, silent_for: float, alias: str) -> Iterator[checks.CheckMessage]:
    settings = locks[alias].settings
    seconds = silent_for + ELECTION
    values = {"BACKEND_WAIT": settings.backend_wait, "EXPIRE": settings.lease / 1000}
    short = [f"{name} is {value:g} s" for name, value in values.items() if value < seconds]
    if short:
        yield checks.Info(
            f"{where}: a failover takes about {seconds:g} s, and {', and '.join(short)}.",
            hint="With a shorter BACKEND_WAIT callers get LockBackendError meanwhile, with a shorter EXPIRE held locks end. Raise "
            "them, or set a smaller down-after-milliseconds, or cluster-node-timeout.",
            id=f"{TAG}.W113",
        )


def _shared_databases(where: str, facts: Facts, alias: str) -> Iterator[checks.CheckMessage]:
    """Find caches on the same database. The ids of the servers are compared, because their addresses may differ."""
    settings = locks[alias].settings
    if not facts.database or caches.shares_database(settings.location, settings.options):  # W010
        return
    for cache, location, options in caches.redis_caches():
        try:
            other = settings.backend(location, _with_short_timeouts(options)).facts(
                settings.key_prefix, diagnosis.DEFAULT_TIMEOUT
            )
        except (LockBackendError, TypeError, ValueError):
            continue  # the cache is down, which isn't the subject of this check
        if other.database == facts.database:
            yield _warning(
                "W109",
                f"{where} shares its database with the cache {cache!r}: {facts.name} and {other.name} are the same.",
                "cache.clear() deletes the locks with the values: give the locks their own database, or their own server.",
            )


def _with_short_timeouts(options: Mapping[str, Any]) -> dict[str, Any]:
    """The connection options of a cache, with the time limit of this check."""
    return {**options, "socket_timeout": diagnosis.DEFAULT_TIMEOUT, "socket_connect_timeout": diagnosis.DEFAULT_TIMEOUT}


def _version(facts: Facts) -> tuple[int, ...]:
    found = re.match(r"(\d+)\.(\d+)", facts.version)
    return tuple(map(int, found.groups())) if found else OLDEST_REDIS


def _warning(id: str, message: str, hint: str) -> checks.CheckMessage:
    return checks.Warning(message, hint=hint or None, id=f"{TAG}.{id}")

"""Classifies the errors of a server and suggests fixes.

An error arrives as a reply, or as an exception of redis-py during the handshake.
"""

from __future__ import annotations

import inspect
import re

from redis.exceptions import AuthenticationError, BusyLoadingError, ResponseError

from ...core.suggestions import closest, did_you_mean
from .resp import ServerError
from .sentinel_url import EXAMPLE as SENTINEL_EXAMPLE
from .sentinel_url import is_sentinel

ERROR_REPLIES = (ServerError, ResponseError, BusyLoadingError, AuthenticationError)
"""The exceptions for error replies. During the handshake, redis-py raises them as connection errors if the server is
loading or rejects the login."""

TRANSIENT_CODES = {
    "READONLY",
    "LOADING",
    "CLUSTERDOWN",
    "TRYAGAIN",
    "MASTERDOWN",
    "NOREPLICAS",
    "UNBLOCKED",
    "BUSY",
    "OOM",
}
"""Codes of temporary errors: a failover, a restart, replicas that are missing after either, a slow script of another client,
or no memory until keys expire."""

RECONNECT_CODES = {"READONLY", "MASTERDOWN", "UNBLOCKED", "LOADING", "NOAUTH"}
"""Codes after which a new connection may help: the connected server is no longer the master, or has restarted. A new
connection to the same address may reach the master."""

NOT_EXECUTED_CODES = TRANSIENT_CODES - {"UNBLOCKED"} | {"FENCE", "NOAUTH", "WRONGPASS", "CROSSSLOT", "MOVED", "ASK"}
"""Codes of errors that a script raises before it changes anything. Other errors, such as a missing right, may stop a
script half-way."""

_LOGIN_HINT = (
    ". Correct the login in LOCATION: redis://user:password@host:port/db, or redis://:password@… for a password alone"
)
_CLUSTER_HINT = ". This server is a node of a Cluster: begin LOCATION with redis+cluster://"

HINTS = {
    "NOAUTH": _LOGIN_HINT,
    "WRONGPASS": _LOGIN_HINT,
    "NOPERM": ". The user needs +eval +evalsha (+select for another database than 0) and the commands of the scripts "
    "(+del +get +hdel +hmget +hset +pexpire +pttl +publish +pubsub +set +time +type +zadd +zcard +zcount +zpopmin +zrange +zrangebyscore +zrem +zrevrange +zrevrangebyscore +zscore) on the keys ~<KEY_PREFIX>:*; and for waiters to be woken +subscribe, +ping and the channels "
    "&<KEY_PREFIX>:*; with OPTIONS['replicas'] the command WAIT, too",
    "NOREPLICAS": ". Fewer replicas are connected than its min-replicas-to-write requires",
    "OOM": ". The server is at maxmemory; raise it, or move the locks to a server of their own with noeviction",
    "FENCE": ". Something else has written to the fence counter: delete its key, <KEY_PREFIX>:{0}:fence. Fences then continue "
    "from the server's clock, so reset larger fences that are stored in your rows",
    "CROSSSLOT": _CLUSTER_HINT,
    "MOVED": _CLUSTER_HINT,
}

CLUSTER_HINTS = HINTS | {"NOPERM": HINTS["NOPERM"] + "; on a Cluster +asking +cluster|slots +spublish +ssubscribe, too"}
"""The hints for a node of a Cluster."""


_FAILOVER_ADVICE = (
    "The sentinels name another master down-after-milliseconds later, if they can; with a BACKEND_WAIT above that, callers wait "
    "for it"
)

SENTINEL_HINT = (
    ". If this is a sentinel, LOCATION is redis+sentinel:// with all sentinels and the name of the service: "
    f"{SENTINEL_EXAMPLE}"
)


def suggest_fix(problem: str, location: str) -> str:
    """Return advice about a server that can't be reached."""
    if "max number of clients" in problem:
        return "Raise its maxclients, or let fewer processes connect"
    if "certificate verify failed" in problem:
        if "mismatch" in problem or "not valid for" in problem:
            return (
                "Use the host name of its certificate in LOCATION. If none of its names can be reached, "
                '"OPTIONS": {"ssl_check_hostname": False} accepts every certificate of its authority'
            )
        return 'Name the authority that signed its certificate: "OPTIONS": {"ssl_ca_certs": "/path/to/ca.pem"}'
    if problem.startswith("no sentinel knows"):
        return "Correct the name of the service after the sentinels in LOCATION"
    if problem.startswith("no sentinel answers"):
        if any(word in problem for word in ("password", "uthentication", "permission")):
            return "Correct the login of the sentinels, sentinel_kwargs in OPTIONS; its user needs +sentinel|master"
        advice = "Start the sentinels, or correct their addresses in LOCATION"
        if _is_encrypted(location) and "refused" not in problem:
            return f'{advice}. If they don\'t encrypt, "OPTIONS": {{"sentinel_kwargs": {{"ssl": False}}}}'
        return advice
    advice = "Start that server, or correct LOCATION in REDIS_LOCKS"
    if _is_encrypted(location) and "refused" not in problem:
        return (
            f"{advice}: use {'redis+sentinel' if is_sentinel(location) else 'redis'}:// if the server doesn't encrypt. "
            "If it requires a client certificate, set ssl_certfile and ssl_keyfile in OPTIONS"
        )
    return _FAILOVER_ADVICE if is_sentinel(location) else advice


def _is_encrypted(location: str) -> bool:
    return location.startswith(("rediss", "valkeys"))


def error_code(error: Exception) -> str:
    """Return the code of a server's error, such as OOM. redis-py replaces some codes by exception classes."""
    text = str(error)
    code = _CODE_OF_CLASS.get(type(error).__name__)
    if isinstance(error, ServerError) and error.code not in {"ERR", ""}:
        return error.code
    if code is None and (isinstance(error, AuthenticationError) or "uthenticated" in text):
        code = "WRONGPASS" if "invalid" in text.lower() else "NOAUTH"
    if code is None and any(denial in text for denial in _DENIED_IN_SCRIPT):
        code = "NOPERM"
    if code is None and (inside := _code_inside_script(text)):
        code = inside[1]
    return code or text.partition(" ")[0]


def is_no_script_engine(error: Exception) -> bool:
    """Return whether the server has no scripts, as a sentinel."""
    return "unknown command" in str(error) and "evalsha" in str(error).lower()


def is_demotion(error: ServerError) -> bool:
    """Return whether a new connection may reach another server, which doesn't return this error."""
    return error_code(error) in RECONNECT_CODES


_DENIED_IN_SCRIPT = "user executing the script can't", "ACL failure in script"
"""Error texts of Redis 7.0 and later for a script if the user lacks a right. They have no code NOPERM."""

_code_inside_script = re.compile(r"@user_script: ?\d+: -?([A-Z]{3,}) ").search
"""Finds the code of an error inside a script in an error reply of Redis 6.2."""


_CODE_OF_CLASS = {
    "BusyLoadingError": "LOADING",
    "ClusterDownError": "CLUSTERDOWN",
    "MasterDownError": "MASTERDOWN",
    "MovedError": "MOVED",
    "NoPermissionError": "NOPERM",
    "OutOfMemoryError": "OOM",
    "ReadOnlyError": "READONLY",
    "TryAgainError": "TRYAGAIN",
}


def unknown_option(error: TypeError, connection_class: type) -> TypeError:
    """Return a clearer error for an unknown argument of the connection; other errors are returned as they are."""
    found = re.search(r"unexpected keyword argument '(\w+)'", str(error))
    if found is None:
        return error
    classes = connection_class.__mro__[:-1]
    known = {name for cls in classes for name in inspect.signature(cls).parameters}
    hint = did_you_mean(closest(found[1], known))
    return TypeError(f"OPTIONS, or the query of LOCATION, has an unknown argument {found[1]!r}{hint}")

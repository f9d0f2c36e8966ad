"""Parses and validates LOCATION: the identity of the database, and the URL without its password."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any
from urllib.parse import parse_qs, urlsplit

from . import cluster_url, sentinel_url
from .cluster_url import CLUSTER_SCHEMES, is_cluster
from .sentinel_url import SENTINEL_SCHEMES, SentinelUrl, is_sentinel
from .server_list import ServerList

SCHEMES = ("redis", "rediss", "unix", "valkey", "valkeys")


def redis_url(location: str) -> str:
    """Return the URL with a scheme that redis-py knows.

    Raises:
        ValueError: not a valid URL; the message never contains a password.
    """
    sentinels = parse_sentinels(location)
    if sentinels is not None:
        return sentinels.server_url()
    if not location:
        raise ValueError("LOCATION is missing; '' isn't the URL of a Redis server, such as redis://127.0.0.1:6379/0")
    scheme, _, rest = location.partition("://")
    if scheme not in SCHEMES or not rest:
        raise ValueError(
            f"LOCATION {mask_password(location)!r} isn't the URL of a Redis server, such as redis://127.0.0.1:6379/0; "
            f"its scheme is one of {', '.join(SCHEMES + SENTINEL_SCHEMES + CLUSTER_SCHEMES)}"
        )
    try:
        identity(location)
    except ValueError:
        raise ValueError(
            f"LOCATION {mask_password(location)!r} can't be parsed as a URL: the port must be a number below 65536, and special "
            "characters in the user and password must be percent-encoded"
        ) from None
    database = urlsplit(location).path.strip("/")
    if scheme != "unix" and database and not database.isdecimal():
        raise ValueError(
            f"LOCATION {mask_password(location)!r}: the path after the port must be the number of a database, such as /0"
        )
    return location.replace("valkey", "redis", 1) if scheme.startswith("valkey") else location


def parse_sentinels(location: str) -> SentinelUrl | None:
    """Return the parts of a location with sentinels; None for the URL of one server.

    Raises:
        ValueError: it can't be parsed; the message never contains a password.
    """
    if not is_sentinel(location):
        return None
    try:
        return sentinel_url.parse(location)
    except ValueError as error:
        raise ValueError(f"LOCATION {mask_password(location)!r} {error}") from None


def parse_nodes(location: str, options: Mapping[str, Any] | None = None) -> ServerList:
    """Return the parts of a location that names nodes of a Cluster.

    Raises:
        ValueError: it can't be parsed; the message never contains a password.
    """
    try:
        return cluster_url.parse(location, options)
    except ValueError as error:
        raise ValueError(f"LOCATION {mask_password(location)!r} {error}") from None


def identity(location: str, options: Mapping[str, Any] | None = None) -> str:
    """Return a name of the database, without the login. It is equal for all URLs of the same database.

    Args:
        location: the URL.
        options: ``OPTIONS``, used for parts that the URL lacks.

    Raises:
        ValueError: the port isn't a number, or the location can't be parsed.
    """
    options = options or {}
    if (sentinels := parse_sentinels(location)) is not None:
        return sentinels.identity(options)
    if is_cluster(location):
        return cluster_url.identity(parse_nodes(location))
    parts = urlsplit(location)
    db = parse_qs(parts.query).get("db", [""])[0]
    if parts.scheme == "unix":
        return f"unix:{parts.path}?db={db or options.get('db', 0)}"
    host = (parts.hostname or str(options.get("host", "localhost"))).lower()
    return (
        f"redis:{host}:{parts.port or options.get('port', 6379)}/{db or parts.path.strip('/') or options.get('db', 0)}"
    )


def database_in(identity: str) -> str:
    """Return the number of the database in an ``identity``."""
    return identity.rpartition("=" if identity.startswith("unix:") else "/")[2]


def server_in(identity: str) -> str:
    """Return the server in an ``identity``."""
    return identity.rpartition("?" if identity.startswith("unix:") else "/")[0]


def access_digest(location: str, options: Mapping[str, Any]) -> str:
    """Return a digest of all settings that decide whether a server can be reached; the database isn't one of them. It
    doesn't reveal secrets."""
    if (sentinels := parse_sentinels(location)) is not None:
        server: Any = sentinels._replace(database="")
    else:
        server = urlsplit(location)[:2]
    access = server, sorted((name, repr(value)) for name, value in options.items() if name != "db")
    return blake2b(repr(access).encode(), digest_size=8).hexdigest()


def mask_password(location: str) -> str:
    """Return the location without its password, for messages. The location may be malformed, so any text before the
    last ``@`` may contain the password."""
    parser: Any = sentinel_url.parse if is_sentinel(location) else cluster_url.parse if is_cluster(location) else None
    if parser is not None:
        try:
            return str(parser(location).masked())
        except ValueError:
            pass  # malformed
    scheme, mark, rest = location.partition("://")
    if not mark:
        scheme, rest = "", location
    if "password=" in rest:
        return f"{scheme}{mark}***"
    login, at, address = rest.rpartition("@")
    address = address.partition("?")[0]
    user, colon, _ = login.partition(":")
    if login:  # without a colon it is probably a password
        login = f"{user}:***" if colon else "***"
    return f"{scheme}{mark}{login}{at}{address}"

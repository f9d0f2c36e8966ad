"""Parses LOCATION: which database of which server it names, and its form without the password."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any
from urllib.parse import parse_qs, urlsplit

SCHEMES = ("redis", "rediss", "unix", "valkey", "valkeys")


def redis_url(location: str) -> str:
    """Return the URL with a scheme that redis-py knows.

    Raises:
        ValueError: it isn't a valid URL; the message never shows a password.
    """
    if not location:
        raise ValueError("LOCATION is missing; '' is no URL of a Redis server, such as redis://127.0.0.1:6379/0")
    scheme, _, rest = location.partition("://")
    if scheme not in SCHEMES or not rest:
        raise ValueError(
            f"LOCATION {mask_password(location)!r} is no URL of a Redis server, such as redis://127.0.0.1:6379/0; "
            f"its scheme is one of {', '.join(SCHEMES)}"
        )
    try:
        identity(location)
    except ValueError:
        raise ValueError(
            f"LOCATION {mask_password(location)!r} can't be read as a URL: its port is a number below 65536, and what is special "
            "in its user and password is percent-encoded"
        ) from None
    database = urlsplit(location).path.strip("/")
    if scheme != "unix" and database and not database.isdecimal():
        raise ValueError(
            f"LOCATION {mask_password(location)!r}: what follows the port is the number of a database, such as /0"
        )
    return location.replace("valkey", "redis", 1) if scheme.startswith("valkey") else location


def identity(location: str, options: Mapping[str, Any] | None = None) -> str:
    """Return a name of the database that is equal for all spellings of it, without the login.

    Args:
        options: ``OPTIONS``, for what the URL leaves out.

    Raises:
        ValueError: the port isn't a number.
    """
    given = options or {}
    parts = urlsplit(location)
    db = parse_qs(parts.query).get("db", [""])[0]
    if parts.scheme == "unix":
        return f"unix:{parts.path}?db={db or given.get('db', 0)}"
    host = (parts.hostname or str(given.get("host", "localhost"))).lower()
    return f"redis:{host}:{parts.port or given.get('port', 6379)}/{db or parts.path.strip('/') or given.get('db', 0)}"


def database_in(identity: str) -> str:
    """Return the number of the database in an ``identity``."""
    return identity.rpartition("=" if identity.startswith("unix:") else "/")[2]


def server_in(identity: str) -> str:
    """Return the server in an ``identity``."""
    return identity.rpartition("?" if identity.startswith("unix:") else "/")[0]


def access_digest(location: str, options: Mapping[str, Any]) -> str:
    """Return a digest of everything that decides whether a server can be reached, which excludes the database. It
    reveals no secret."""
    parts = urlsplit(location)
    how = parts.scheme, parts.netloc, sorted((name, repr(value)) for name, value in options.items() if name != "db")
    return blake2b(repr(how).encode(), digest_size=8).hexdigest()


def mask_password(location: str) -> str:
    """Return the location without its password, for messages. Any text before the last ``@`` may hold the password,
    since the location may be malformed."""
    scheme, mark, rest = location.partition("://")
    if not mark:
        scheme, rest = "", location
    if "password=" in rest:
        return f"{scheme}{mark}***"
    login, at, address = rest.rpartition("@")
    address = address.partition("?")[0]
    user, colon, _ = login.partition(":")
    if login:  # without a colon it is more often a password than a user
        login = f"{user}:***" if colon else "***"
    return f"{scheme}{mark}{login}{at}{address}"

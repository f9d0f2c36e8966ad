"""Parses the form of LOCATION that names sentinels and the service that they monitor:

``redis+sentinel://user:password@s1:26379,s2:26379,s3:26379/mymaster/0?sentinel_password=…``

The login is that of the servers with the data. Options with the prefix ``sentinel_`` are for the sentinels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

if TYPE_CHECKING:
    from collections.abc import Mapping

SENTINEL_SCHEMES: Final = ("redis+sentinel", "rediss+sentinel", "valkey+sentinel", "valkeys+sentinel")
SENTINEL_PORT: Final = 26379
EXAMPLE: Final = "redis+sentinel://s1:26379,s2:26379,s3:26379/mymaster/0"


class SentinelUrl(NamedTuple):
    """The parts of a LOCATION with sentinels.

    Attributes:
        scheme: one of ``SENTINEL_SCHEMES``.
        login: the login of the master as it is written, or "".
        hosts: the host and the port of each sentinel, in the order of the URL.
        service: the name of the master.
        database: the number of the database as text; "" if the path has none.
        query: the options of connections to the master.
        sentinel_query: the options of connections to sentinels, without the prefix ``sentinel_``.
    """

    scheme: str
    login: str
    hosts: tuple[tuple[str, int], ...]
    service: str
    database: str
    query: tuple[tuple[str, str], ...]
    sentinel_query: tuple[tuple[str, str], ...]

    @property
    def tls(self) -> bool:
        """Whether all connections are encrypted."""
        return self.scheme.startswith(("rediss", "valkeys"))

    @property
    def addresses(self) -> list[str]:
        """The sentinels as texts, such as ``s1:26379`` and ``[::1]:26379``."""
        return [join_address(host, port) for host, port in self.hosts]

    def server_url(self) -> str:
        """Return the URL of a server of the service. Its host is a placeholder."""
        login = f"{self.login}@" if self.login else ""
        return f"redis{'s' * self.tls}://{login}master/{self.database}?{urlencode(self.query)}"

    def identity(self, options: Mapping[str, Any]) -> str:
        """Return a name of the database that stays the same when another server becomes the master."""
        database = dict(self.query).get("db") or self.database or options.get("db", 0)
        return f"sentinel:{self.service}@{','.join(sorted(self.addresses))}/{database}"

    def masked(self) -> str:
        """Return the URL without passwords and options, for messages."""
        user, colon, _ = self.login.partition(":")
        login = f"{user}:***@" if colon else "***@" * bool(self.login)
        database = f"/{self.database}" if self.database else ""
        return f"{self.scheme}://{login}{','.join(self.addresses)}/{self.service}{database}"


def is_sentinel(location: str) -> bool:
    """Return whether the scheme of a LOCATION is one with sentinels."""
    return location.partition("://")[0] in SENTINEL_SCHEMES


def parse(location: str) -> SentinelUrl:
    """Parse a LOCATION with sentinels. ``urlsplit`` can't read a list of hosts.

    Raises:
        ValueError: it can't be parsed. The message is the second half of a sentence, and shows no login.
    """
    scheme, _, rest = location.partition("://")
    login, _, rest = rest.rpartition("@")
    rest, _, query = rest.partition("?")
    hosts, _, path = rest.partition("/")
    service, slash, database = path.partition("/")
    if any(mark in login for mark in "/?#"):
        raise ValueError(
            "can't be parsed as a URL: special characters in the user and password must be percent-encoded"
        )
    if "@" in login:
        raise ValueError("has several logins: one login before the first sentinel is that of the master")
    if not service:
        raise ValueError(f"names no service: the name of the master follows the sentinels, as in {EXAMPLE}")
    if (slash or database) and not database.isdecimal():
        raise ValueError("must end with the number of a database after the service, such as /0")
    options = parse_qsl(query, keep_blank_values=True)
    prefix = "sentinel_"
    return SentinelUrl(
        scheme=scheme,
        login=login,
        hosts=tuple(_host(text) for text in hosts.split(",")),
        service=unquote(service),
        database=database,
        query=tuple(pair for pair in options if not pair[0].startswith(prefix)),
        sentinel_query=tuple((name.removeprefix(prefix), value) for name, value in options if name.startswith(prefix)),
    )


def join_address(host: str, port: int) -> str:
    """Return an address as it is written in a URL."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _host(text: str) -> tuple[str, int]:
    try:
        parts = urlsplit(f"//{text.strip()}")
        host, port = parts.hostname, parts.port
    except ValueError:
        raise ValueError(
            "has a sentinel with an invalid address: the port must be a number below 65536, and an IPv6 address in brackets"
        ) from None
    if not host:
        raise ValueError("has a sentinel without a host: the sentinels are separated by single commas")
    return host, port or SENTINEL_PORT

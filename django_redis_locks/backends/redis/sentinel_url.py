"""Parses the form of LOCATION that names sentinels and the service that they monitor:

``redis+sentinel://user:password@s1:26379,s2:26379,s3:26379/mymaster/0?sentinel_password=…``

The login is that of the servers with the data. Options with the prefix ``sentinel_`` are for the sentinels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import unquote, urlencode

from . import server_list
from .server_list import ServerList

if TYPE_CHECKING:
    from collections.abc import Mapping

SENTINEL_SCHEMES: Final = ("redis+sentinel", "rediss+sentinel", "valkey+sentinel", "valkeys+sentinel")
SENTINEL_PORT: Final = 26379
EXAMPLE: Final = "redis+sentinel://s1:26379,s2:26379,s3:26379/mymaster/0"


class SentinelUrl(NamedTuple):
    """The parts of a LOCATION with sentinels.

    Attributes:
        servers: the sentinels, with the login of the master.
        service: the name of the master.
        database: the number of the database as text; "" if the path has none.
        query: the options of connections to the master.
        sentinel_query: the options of connections to sentinels, without the prefix ``sentinel_``.
    """

    servers: ServerList
    service: str
    database: str
    query: tuple[tuple[str, str], ...]
    sentinel_query: tuple[tuple[str, str], ...]

    def server_url(self) -> str:
        """Return the URL of a server of the service. Its host is a placeholder."""
        login = f"{self.servers.login}@" if self.servers.login else ""
        return f"redis{'s' * self.servers.tls}://{login}master/{self.database}?{urlencode(self.query)}"

    def identity(self, options: Mapping[str, Any]) -> str:
        """Return a name of the database that stays the same when another server becomes the master."""
        database = dict(self.query).get("db") or self.database or options.get("db", 0)
        return f"sentinel:{self.service}@{','.join(sorted(self.servers.addresses))}/{database}"

    def masked(self) -> str:
        """Return the URL without passwords and options, for messages."""
        database = f"/{self.database}" if self.database else ""
        return self.servers._replace(path=f"{self.service}{database}").masked()


def is_sentinel(location: str) -> bool:
    """Return whether the scheme of a LOCATION is one with sentinels."""
    return location.partition("://")[0] in SENTINEL_SCHEMES


def parse(location: str) -> SentinelUrl:
    """Parse a LOCATION with sentinels.

    Raises:
        ValueError: it can't be parsed. The message is the second half of a sentence, and shows no login.
    """
    found = server_list.parse(location, "sentinel", SENTINEL_PORT, "the master")
    service, slash, database = found.path.partition("/")
    if not service:
        raise ValueError(f"names no service: the name of the master follows the sentinels, as in {EXAMPLE}")
    if (slash or database) and not database.isdecimal():
        raise ValueError("must end with the number of a database after the service, such as /0")
    prefix = "sentinel_"
    return SentinelUrl(
        servers=found,
        service=unquote(service),
        database=database,
        query=tuple(pair for pair in found.query if not pair[0].startswith(prefix)),
        sentinel_query=tuple(
            (name.removeprefix(prefix), value) for name, value in found.query if name.startswith(prefix)
        ),
    )

"""Parses the forms of LOCATION that list several servers: ``scheme://user:password@host:port,host:port/path?option=value``.
``urlsplit`` can't read a list of hosts."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import parse_qsl, urlsplit

Address = tuple[str, int]
"""A host and its port."""


class ServerList(NamedTuple):
    """The parts of a LOCATION that lists servers.

    Attributes:
        scheme: the scheme.
        login: the login as it is written, or "".
        hosts: the servers, in the order of the URL.
        path: what follows the first slash after the servers.
        query: the options.
    """

    scheme: str
    login: str
    hosts: tuple[Address, ...]
    path: str
    query: tuple[tuple[str, str], ...]

    @property
    def tls(self) -> bool:
        """Whether all connections are encrypted."""
        return self.scheme.startswith(("rediss", "valkeys"))

    @property
    def addresses(self) -> list[str]:
        """The servers as texts, such as ``s1:26379`` and ``[::1]:26379``."""
        return [join_address(host, port) for host, port in self.hosts]

    def masked(self) -> str:
        """Return the URL without passwords and options, for messages."""
        user, colon, _ = self.login.partition(":")
        login = f"{user}:***@" if colon else "***@" * bool(self.login)
        return f"{self.scheme}://{login}{','.join(self.addresses)}{f'/{self.path}' * bool(self.path)}"


def parse(location: str, noun: str, port: int, login_of: str) -> ServerList:
    """Parse a LOCATION that lists servers.

    Args:
        location: the URL.
        noun: what a server is called in messages.
        port: that of servers without one.
        login_of: what the login is for, for messages.

    Raises:
        ValueError: it can't be parsed. The message is the second half of a sentence, and shows no login.
    """
    scheme, _, rest = location.partition("://")
    login, _, rest = rest.rpartition("@")
    rest, _, query = rest.partition("?")
    hosts, _, path = rest.partition("/")
    if any(mark in login for mark in "/?#"):
        raise ValueError(
            "can't be parsed as a URL: special characters in the user and password must be percent-encoded"
        )
    if "@" in login:
        raise ValueError(f"has several logins: one login before the first {noun} is that of {login_of}")
    options = tuple(parse_qsl(query, keep_blank_values=True))
    return ServerList(scheme, login, tuple(_host(text, noun, port) for text in hosts.split(",")), path, options)


def join_address(host: str, port: int) -> str:
    """Return an address as it is written in a URL."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _host(text: str, noun: str, default_port: int) -> Address:
    try:
        parts = urlsplit(f"//{text.strip()}")
        host, port = parts.hostname, parts.port
    except ValueError:
        raise ValueError(
            f"has a {noun} with an invalid address: the port must be a number below 65536, and an IPv6 address in brackets"
        ) from None
    if not host:
        raise ValueError(f"has a {noun} without a host: the {noun}s are separated by single commas")
    return host, port or default_port

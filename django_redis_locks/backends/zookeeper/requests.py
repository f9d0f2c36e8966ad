"""The requests that steps are made of, and their replies. A step is a generator that yields lists of requests: those of a
list are sent together, and the servers carry them out in this order."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from enum import Enum
from typing import Any, NamedTuple, TypeAlias


class Refused(Enum):
    """What a request may find, as its reply."""

    MISSING = "there is no such node, or its parent is missing"
    EXISTS = "the node exists already"
    NOT_EMPTY = "the node has children"


class Stored(NamedTuple):
    """A node in the store.

    Attributes:
        path: its path; "" if the reply doesn't have it.
        data: its data; empty if the reply doesn't have them.
        created: the transaction that created it.
        created_at: when that was, in milliseconds since 1970.
    """

    path: str
    data: bytes
    created: int
    created_at: int


class Request(NamedTuple):
    """One request.

    Attributes:
        method: the name of the client's method.
        path: the path of the node.
        data: the data to store.
        watched: the process is notified when the node is changed or deleted.
    """

    method: str
    path: str
    data: bytes = b""
    watched: bool = False


def create(path: str) -> Request:
    """Create a node that stays. The reply is a ``Stored``, or why not."""
    return Request("create", path)


def create_in_line(path: str, data: bytes) -> Request:
    """Create a node of this session, with a sequence number after its path."""
    return Request("create_in_line", path, data)


def create_all(path: str) -> Request:
    """Create a node that stays, and its parents, unless they exist."""
    return Request("create_all", path)


def delete(path: str) -> Request:
    """Delete a node. The reply is None, or why not."""
    return Request("delete", path)


def sync(path: str) -> Request:
    """Let the server catch up with the leader, so that later requests see what has happened before. The server doesn't
    answer unless it can reach a leader that knows the session."""
    return Request("sync", path)


def children(path: str) -> Request:
    """Read the names of the children, a list."""
    return Request("children", path)


def exists(path: str) -> Request:
    """Read a ``Stored`` without data."""
    return Request("exists", path)


def get(path: str, *, watched: bool = False) -> Request:
    """Read a ``Stored`` with its data."""
    return Request("get", path, b"", watched)


def put(path: str, data: bytes) -> Request:
    """Change the data of a node. The reply is a ``Stored`` without data."""
    return Request("put", path, data)


Step: TypeAlias = Generator[Sequence[Request], list[Any], Any]
"""A step that returns the raw reply."""

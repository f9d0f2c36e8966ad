"""The paths, names and data of nodes. A lock ``order:42`` with the prefix ``lock``::

    /lock/order:42                                     exists while the lock is held
    /lock/order:42/<token>__lock__0000000007           one for the holder and for each waiter; the lowest number holds it

The data of a node are the lease in milliseconds, the time of the acquire in milliseconds since 1970, 0 for that of the
node's creation, and the description of the holder.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Final, NamedTuple
from urllib.parse import quote, unquote

from ...core.keys import escaped_in

_SEPARATOR: Final = "__lock__"
_SAFE: Final = "!$&'()*+,:;=@~"

LAST_SEQUENCE: Final = 2**31 - 2**20
"""The sequence number after which a line takes no more nodes: the server's counter would soon be negative."""


def base_of(key: str) -> str:
    """Return the path of the parent of all locks of an alias.

    Args:
        key: any key of the alias in the store.
    """
    return "/" + _quote(key.rpartition(":{")[0])


def parent_of(lock: str) -> str:
    """Return the path of the parent of a lock's nodes."""
    return f"{base_of(lock.partition('}:k:')[0])}/{_quote(escaped_in(lock))}"


def escaped_of(name: str) -> str:
    """Return the escaped user's key from the name of the parent of a lock's nodes."""
    return unquote(name)


def _quote(text: str) -> str:
    quoted = quote(text, safe=_SAFE)
    return "%2E" + quoted[1:] if quoted.startswith(".") else quoted  # neither "." nor ".." names a node


def prefix_of(token: str) -> str:
    """Return the name of a node before its sequence number."""
    return token + _SEPARATOR


def line_of(children: list[str]) -> list[str]:
    """Return the names of the nodes of a lock in the order of their creation."""
    return sorted((name for name in children if _is_node(name)), key=sequence_of)


def sequence_of(name: str) -> int:
    """Return the sequence number of a node."""
    return int(name.rpartition(_SEPARATOR)[2])


def _is_node(name: str) -> bool:
    return name.rpartition(_SEPARATOR)[2].isdecimal()


class Description(NamedTuple):
    """The data of a node.

    Attributes:
        lease: milliseconds.
        since: when the lock was acquired, in milliseconds since 1970; 0 if that is when the node was created.
        holder: the description of the holder.
    """

    lease: int
    since: int
    holder: str

    def pack(self) -> bytes:
        """Return the data."""
        return f"{self.lease} {self.since} {self.holder}".encode()


def unpack(data: bytes) -> Description:
    """Return the description in the data of a node, also if another client has written them."""
    lease, since, holder = [*data.decode(errors="replace").split(" ", 2), "", "", ""][:3]
    return Description(_number(lease), _number(since), holder)


def _number(text: str) -> int:
    return int(text) if text.isdecimal() and text.isascii() and len(text) < 20 else 0


@dataclass(slots=True, eq=False)
class Node:
    """A node that this process has created.

    Attributes:
        lock: the store's key of the lock.
        token: the token of the request.
        path: its path.
        created: the transaction that created it, which is the fence of a hold.
        description: its data; the true time of the acquire may differ from that in the store until ``guard``.
        number: the number of the local queue that is notified when the lock is granted; "" for none.
        granted: it was found to be the lowest.
        granted_at: when that was, on the machine's clock.
        claimed: a request or an adoption has taken the lock.
        since: when the lock was acquired, in milliseconds since 1970; 0 while it waits.
        ends: when the lease has ended, on the machine's clock.
        guarded: the process is notified when the node is deleted.
    """

    lock: str
    token: str
    path: str
    created: int
    description: Description
    number: str = ""
    granted: bool = False
    claimed: bool = False
    granted_at: float = 0.0
    since: int = 0
    ends: float = inf
    guarded: bool = False

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rpartition("/")[2]

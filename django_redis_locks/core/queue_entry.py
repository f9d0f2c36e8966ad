"""The entry of a local wait queue in the store's wait queue of a lock, and what the store needs to grant the lock."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class GrantTerms(NamedTuple):
    """The terms on which the store grants a lock to a waiter.

    Attributes:
        lease: the lease of the grant in milliseconds.
        holder: the description of the holder.
        keys: the keys of the command that gives the grant back: the lock, its waiters, the fence counter and perhaps the
            index.
    """

    lease: int
    holder: str
    keys: tuple[str, ...]


@dataclass(slots=True, eq=False)
class Entry:
    """The entry of a local queue in the store's wait queue of a lock. It ends with the grant or the wake-up that it
    waits for.

    Attributes:
        address: the channel and the number of the queue; and for a grant the token, the lease in milliseconds and the
            holder.
        token: the token to which the store grants the lock; "" if it wakes the queue instead.
        lease: the lease of the grant in milliseconds.
        sent: when the newest answered request with this entry was sent, on the engine's clock.
        fence: the fence of the holder in the reply to that request. A grant with a smaller one has ended since.
        used: a waiter of the queue has got the lock with the token.
        invalid: a request with the token got no reply. Late copies of it are cleaned up, so the token must not be
            granted.
    """

    address: str
    token: str = ""
    lease: int = 0
    sent: float = 0.0
    fence: int = 0
    used: bool = False
    invalid: bool = False

"""The entry of a local wait queue in the store's wait queue of a lock, and the terms of a grant to it.

A script that frees a lock *grants* it to the first entry: it writes the lock with the token of the entry and a short lease,
and sends a message to the process. If the process can rely on the message, a waiter *adopts* the lock without a request, and
the maintenance thread *confirms* it soon: it extends the lease, and describes the holder. Otherwise a waiter *claims* the
lock by an acquire with that token, and gets the lease that it requests.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class GrantTerms(NamedTuple):
    """The terms on which the store grants a lock to a waiter.

    Attributes:
        lease: the lease of the grant in milliseconds.
        holder: the description of the holder that is stored with the lock.
        keys: the keys of the command that frees the lock: the lock, its waiters, the fence counter and perhaps the index;
            or those of permits.
        more: what follows the lease in the address: the kind, the limit and the number of permits.
    """

    lease: int
    holder: str
    keys: tuple[str, ...]
    more: str = ""


@dataclass(slots=True, eq=False)
class Entry:
    """The entry of a local queue in the store's wait queue of a lock. The store removes it when it grants the lock to it,
    or wakes the queue.

    Attributes:
        address: what the store has of the entry: the channel and the number of the queue; and for a grant the token, the
            lease in milliseconds and the holder.
        token: the token to which the store grants the lock; "" if it wakes the queue instead.
        lease: the lease of the grant in milliseconds.
        sent: when the newest answered request with this entry was sent, on the engine's clock. It was answered "busy", so
            a grant with a larger fence than ``fence`` was made later.
        fence: the fence of the holder in the reply to that request. A grant with a smaller one has ended since.
        used: a waiter of the queue has acquired the lock with the token.
        invalid: a request with the token got no reply. The cleanup of its late copies would free a lock that is granted
            to the token, so the entry is replaced by one with another token.
    """

    address: str
    token: str = ""
    lease: int = 0
    sent: float = 0.0
    fence: int = 0
    used: bool = False
    invalid: bool = False

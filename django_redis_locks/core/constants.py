"""The numbers of the engine, each with its reason. Seconds unless the name says otherwise."""

from __future__ import annotations

from typing import Final

CAP: Final = 2.0
"""The longest sleep of a waiter without asking again: what a lost wake-up costs at most."""

JITTER: Final = 0.1
"""Spread of the retries, so that the waiters of many processes don't ask in one burst."""

HAND_OVERS: Final = 16
"""So many times in a row a lock may stay within a process while another one waits for it."""

SPARE: Final = HAND_OVERS - 1
"""So many fences are kept for those of the same process who take the lock over without asking the store. The next one
asks, and hears whether another process waits."""

SPELL: Final = 0.02
"""For so long after the store was asked a lock may pass on within a process without its being asked again: its lease is
that much longer there. What the store says of the holder is no older when the next one enters, and a lock that was
taken away meanwhile is missed."""

POLITE: Final = 0.005
"""How long a process that gave the lock to another one lets pass before it asks again: the other one needs a message
and a round trip, and would always lose."""

HOT: Final = 1.0
"""For so long after somebody waited for a lock the next one of his process expects to wait as well, and lines up with his
first question."""

FIRST_RETRY: Final = 0.05
"""First pause before asking a store again that can't be reached; doubles."""

TROUBLE: Final = 30.0
"""A store that can't be reached for so long is down, also for a caller who is willing to wait for ever."""

DRIFT_SHARE: Final = 0.01
DRIFT: Final = 0.002
"""Our clock and the server's may differ by 1 % of the lease and 2 ms; a hold ends that much earlier for us."""

SHORTEST_LEASE: Final = 0.01
"""A lease below 10 ms can't outlive the round trip that brings the news of it."""

LONGEST_LEASE: Final = 10 * 365 * 86400.0
"""Ten years. A longer one is a mistake, and PEXPIRE overflows in the end."""

RENEW_AT: Final = 1 / 3
"""Renewed after a third of the lease: two more tries fit in before it ends."""

SLOTS: Final = 60_000.0
LONGEST_SLOT: Final = 0.5
"""Leases that come due within the same sixtieth of their length (they are in ms), or half second, are renewed together."""

SWEEPS: Final = (0.0, 0.1, 1.0, 3.0)
"""When a token with an unanswered attempt is deleted, besides after one lease: the request may just be on its way, and a
late copy comes out of socket buffers within a second or so, or not at all."""

REMEMBER: Final = 3600.0
"""How long the index, and this process, remember a hold whose lease ended without a release."""

SOCKET_TIMEOUT: Final = 2.0
"""How long one attempt may take, whatever its caller's wait."""

LONGEST_SLEEP: Final = 3600.0
"""Of the janitor. Somebody may be willing to wait for longer than the operating system can count."""

EXIT_FLUSH: Final = 1.0
"""What the end of the interpreter may spend on releases that are still queued."""

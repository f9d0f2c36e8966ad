"""The tunable numbers of the engine, each with its reason. Seconds unless the name says otherwise.

Numbers that may differ between engines are in ``Tuning``. Those that all processes of one store must agree on are
constants.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

RESERVED_FENCES: Final = 15
"""An acquire reserves this many fences after its own, for waiters of the same process that adopt the lock without
asking the store. The one after them sends a request, and learns whether another process waits."""

INDEX_RETENTION: Final = 3600.0
"""How long the index, and this process, remember a hold after a lease without a release."""

DRIFT_SHARE: Final = 0.01
DRIFT: Final = 0.002
"""The clocks of this process and of the server may differ by 1 % of the lease and 2 ms; a hold ends that much earlier
here."""

SHORTEST_LEASE: Final = 0.01
"""A lease below 10 ms can't outlive the round trip that brings the news of it."""

LONGEST_LEASE: Final = 10 * 365 * 86400.0
"""Ten years. A longer one is a mistake, and PEXPIRE overflows in the end."""


BACKEND_WAIT: Final = 2.0
"""For how long requests to an unreachable server are retried, unless the settings say otherwise."""


@dataclass(frozen=True, slots=True)
class Tuning:
    """The delays, time-outs and limits of one engine.

    Attributes:
        max_poll_interval: The longest sleep of a waiter without asking the store again: the cost of a lost wake-up.
        jitter: Spread of the retries, so that the waiters of many processes don't ask in one burst.
        hand_overs: How many times in a row a lock may stay within a process while another one waits for it.
        local_reuse_window: How long after the store was asked a lock may be adopted within a process without asking it
            again: its lease is that much longer there. A lock that was taken away within this time is adopted all the
                same.
        yield_time: How long a process that gave the lock to another one lets pass before it asks again: the other one
            needs a message and a round trip, and would always lose.
        contention_memory: How long after a wait for a lock the next caller of the process expects to wait as well, and
            lines up with its first request.
        first_retry: The first pause before a store is asked again that couldn't be reached; it doubles,
        longest_retry: up to this one.
        probe_interval: How often a server that is down is asked whether it answers again.
        renew_at: The share of a lease after which it is renewed: after a third of it two more tries fit in.
        cleanup_delays: When a token with an unanswered attempt is deleted, besides after one lease: the request may be
            on its way, and a late copy comes out of socket buffers within a second or so, or not at all.
        socket_timeout: How long one attempt of a caller may take, whatever the caller's wait.
        maintenance_timeout: How long one request of the maintenance thread may take.
        subscribe_timeout: How long a subscriber, and the caller that opens it, waits for the server's confirmation.
        subscriber_idle: How long without a waiter the subscriber's connection stays open.
        subscriber_refused: When a server is asked again that refused a subscription.
        inbox_after: How long a process holds a lock that it renews before it opens its inbox, in which it hears of
            forced releases: most holds are over by then.
        fence_wait: For how long a forced release asks the holder's process which fence its hold has,
        fence_retry: and how often.
        writer_lease: When the claim of a cache's writer ends that died.
        load_lease: Of a load, renewed while its loader runs: how long others wait for a load after its process has
            died.
        transaction_wait: How long a caller inside of a transaction waits for another one's load: that may need a row
            which the transaction has locked, or be in a transaction too, and keep its value to itself until COMMIT.
        commit_window: How long after a load inside of a transaction its COMMIT may store the value.
        invalidation_timeout: How long a store that doesn't answer an invalidation is asked again: no other process
            will.
        invalidation_retry: When one that failed is repeated in the background for the first time; the pause doubles,
        longest_invalidation_retry: up to this one: old values are served until then, and a few requests are no load for
            a server.
        longest_refused_retry: The same while the server refuses, perhaps for days, until an operator changes its
            settings.
        invalidation_memory: How long one is repeated. The ttl of what other processes have stored isn't known, and few
            are longer than a day; a repeat after the end of the ttl costs one load.
        most_invalidations: How many of one cache may wait for that; the oldest beyond that are dropped: memory is
            bounded.
        unstored_memory: How long after a load without a stored value waiters load it themselves, all at once.
        leases_down_for: How long loads do without a store of leases that didn't answer: each request might take as long
            again.
        most_notices: How many calls of receivers and log handlers may wait for slow ones before them. The newest beyond
            that are dropped, and counted: memory is bounded, whatever a receiver does.
        longest_sleep: Of the maintenance thread; the operating system can't count any number of seconds.
    """

    max_poll_interval: float = 2.0
    jitter: float = 0.1
    hand_overs: float = RESERVED_FENCES + 1
    local_reuse_window: float = 0.02
    yield_time: float = 0.005
    contention_memory: float = 1.0
    first_retry: float = 0.05
    longest_retry: float = 1.0
    probe_interval: float = 1.0
    renew_at: float = 1 / 3
    cleanup_delays: tuple[float, ...] = (0.0, 0.1, 1.0, 3.0)
    socket_timeout: float = 2.0
    maintenance_timeout: float = 2.0
    subscribe_timeout: float = 2.0
    subscriber_idle: float = 60.0
    subscriber_refused: float = 60.0
    inbox_after: float = 1.0
    fence_wait: float = 0.3
    fence_retry: float = 0.05
    writer_lease: float = 5.0
    load_lease: float = 5.0
    transaction_wait: float = 0.5
    commit_window: float = 60.0
    invalidation_timeout: float = 1.0
    invalidation_retry: float = 1.0
    longest_invalidation_retry: float = 10.0
    longest_refused_retry: float = 300.0
    invalidation_memory: float = 86_400.0
    most_invalidations: int = 10_000
    unstored_memory: float = 1.0
    leases_down_for: float = 2.0
    most_notices: int = 10_000
    longest_sleep: float = 3600.0

    @property
    def waiter_ttl(self) -> int:
        """The milliseconds after which a process without requests is removed from the store's wait queue."""
        return round(2000 * self.max_poll_interval)


DEFAULT: Final = Tuning()


class Tuned(Protocol):
    """An object with a tuning, which may be replaced."""

    @property
    def tuning(self) -> Tuning: ...

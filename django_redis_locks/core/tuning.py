"""Constants and tunable delays, timeouts and limits of the engine, with their reasons. They are in seconds unless
stated otherwise.

Values that may differ between engines are in ``Tuning``. Values that must be equal in all processes of a store are
constants.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Protocol

RESERVED_FENCES: Final = 15
"""The number of fences that an acquire reserves after its own, for waiters of the same process that adopt the lock
without a request. The next waiter sends a request, whose reply says whether another process waits."""

INDEX_RETENTION: Final = 3600.0
"""How long the index, and this process, remember a hold that ended with its lease, without a release."""

SET_LIMIT_RETENTION: Final = 86_400.0
"""How long a limit that ``set_limit()`` has stored is kept after its last use."""

MOST_LISTED: Final = 10_000
"""The largest number of holds of one key that an inspection lists, to bound the reply."""

DRIFT_SHARE: Final = 0.01
DRIFT: Final = 0.002
"""The allowed clock difference between this process and the server: 1 % of the lease and 2 ms. This process ends a hold
that much earlier."""

SHORTEST_LEASE: Final = 0.01
"""10 ms. A shorter lease could end before the reply that grants it arrives."""

LONGEST_LEASE: Final = 10 * 365 * 86400.0
"""Ten years. A longer lease is a mistake, and PEXPIRE has a limit."""


REDLOCK_TIMEOUT: Final = 0.5
"""The default ``socket_timeout`` of the servers of a Redlock, in seconds. A silent server is waited for so long only until it
is known to be down, or a majority has answered."""

SESSION_SHARE: Final = 3 / 4
"""The share of the timeout of a session with ZooKeeper for which a hold is valid after the last answer. A server reports a
sign of life to the leader up to half a tick later, and a timeout has two ticks at least."""

BACKEND_WAIT: Final = 2.0
"""How long requests to an unreachable server are retried, unless the settings say otherwise."""


@dataclass(frozen=True, slots=True)
class Tuning:
    """The delays, time-outs and limits of one engine.

    Attributes:
        max_poll_interval: The longest sleep of a waiter before it asks the store again; a lost message costs that much.
        max_jitter: The largest random time that is added to a pause, so that the waiters of many processes don't send
            their requests at once.
        max_hand_overs: How many times in a row a lock may stay within a process while another process waits for it.
        local_reuse_window: How long after the last request a waiter of this process may adopt a released lock without a
            request. In the store the lease is longer by this time. A lock that was taken away during this time is
            adopted all the same.
        grant_lease: The lease of a lock that the store grants to a waiting process, until that process extends it. If the
            process has been stopped or dies, the other waiters wait for so long. It is longer than
            ``max_poll_interval``, because the process counts it from its last request.
        grant_confirmation: How long after it adopted such a lock a process extends the lease. Most sections end earlier,
            and need no request.
        contention_memory: How long after a wait for a lock the next caller of this process expects to wait, too, and
            registers as a waiter with its first request.
        min_retry_delay: The first pause before a request to an unreachable store is repeated. Each further pause is
            twice as long.
        max_retry_delay: The longest of these pauses.
        max_failover_delay: The longest of these pauses while a failover may replace the server at any moment.
        probe_interval: The interval between requests that test whether an unreachable server is back.
        renewal_share: The share of a lease after which it is renewed. One third leaves time for two more attempts.
        cleanup_delays: The delays after which the token of an unanswered attempt is deleted, besides once after its
            lease. The request may still be under way: a late copy leaves the socket buffers within about a second, or
            never.
        socket_timeout: How long one attempt of a caller may take, whatever the caller's wait.
        maintenance_timeout: How long one request of the maintenance thread may take.
        subscribe_timeout: How long the subscriber, and the caller that started it, wait for the server's confirmation.
        subscriber_idle_timeout: How long the subscriber's connection stays open without a waiter.
        subscribe_retry_delay: The pause before a refused subscription is tried again.
        inbox_open_delay: How long a process must have held a renewed lock before it opens its inbox, which receives
            notices of forced releases. Most locks are released earlier.
        fence_request_timeout: How long a forced release waits for the fence that it requests from the holder's process.
        fence_request_interval: The interval between these requests.
        writer_lease: The lease of a cache write. It ends the claim of a writer that died.
        load_lease: The lease of a load, renewed while its loader runs: how long other callers wait after the loader's
            process has died.
        max_wait_in_transaction: How long a caller inside of a transaction waits for a load of another caller. That load
            may need a row that the transaction has locked, or be inside of a transaction itself, so that its value is
            stored at COMMIT only.
        commit_window: How long after a load inside of a transaction its COMMIT may store the value.
        invalidation_timeout: How long an invalidation is repeated if the store doesn't answer. No other process repeats
            it.
        min_invalidation_retry_delay: The first pause before a failed invalidation is repeated in the background. Each
            further pause is twice as long.
        max_invalidation_retry_delay: The longest of these pauses. Old values are served until a repeat succeeds, and
            the load of a few requests is small.
        max_refused_retry_delay: The longest such pause while the server refuses requests, which may last for days,
            until an operator changes its settings.
        invalidation_retry_period: How long a failed invalidation is repeated. The ttl of values that other processes
            stored is unknown, and rarely longer than a day. Repeating it after their ttl costs one load.
        max_pending_invalidations: The largest number of failed invalidations per cache. The oldest ones beyond it are
            dropped, to bound the memory.
        unstored_note_ttl: How long after a load whose value wasn't stored all waiters load the value themselves, at
            once.
        lease_store_backoff: How long loads don't use a store of leases that didn't answer: each request might take the
            whole timeout again.
        max_queued_notices: The largest number of queued calls of signal receivers and log handlers. The newest ones
            beyond it are dropped and counted, to bound the memory if a receiver is slow.
        max_thread_sleep: The longest sleep of a background thread that has nothing to do. Operating systems limit
            timeouts.
    """

    max_poll_interval: float = 2.0
    max_jitter: float = 0.1
    max_hand_overs: float = RESERVED_FENCES + 1
    local_reuse_window: float = 0.02
    grant_lease: float = 3.0
    grant_confirmation: float = 0.05
    contention_memory: float = 1.0
    min_retry_delay: float = 0.05
    max_retry_delay: float = 1.0
    max_failover_delay: float = 0.2
    probe_interval: float = 1.0
    renewal_share: float = 1 / 3
    cleanup_delays: tuple[float, ...] = (0.0, 0.1, 1.0, 3.0)
    socket_timeout: float = 2.0
    maintenance_timeout: float = 2.0
    subscribe_timeout: float = 2.0
    subscriber_idle_timeout: float = 60.0
    subscribe_retry_delay: float = 60.0
    inbox_open_delay: float = 1.0
    fence_request_timeout: float = 0.3
    fence_request_interval: float = 0.05
    writer_lease: float = 5.0
    load_lease: float = 5.0
    max_wait_in_transaction: float = 0.5
    commit_window: float = 60.0
    invalidation_timeout: float = 1.0
    min_invalidation_retry_delay: float = 1.0
    max_invalidation_retry_delay: float = 10.0
    max_refused_retry_delay: float = 300.0
    invalidation_retry_period: float = 86_400.0
    max_pending_invalidations: int = 10_000
    unstored_note_ttl: float = 1.0
    lease_store_backoff: float = 2.0
    max_queued_notices: int = 10_000
    max_thread_sleep: float = 3600.0

    waiter_ttl: int = field(init=False)
    """The milliseconds without a request after which a process is removed from the store's wait queue."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "waiter_ttl", round(2000 * self.max_poll_interval))


DEFAULT: Final = Tuning()


class Tuned(Protocol):
    """An object with a ``tuning`` that may be replaced."""

    @property
    def tuning(self) -> Tuning:
        """The tunables."""

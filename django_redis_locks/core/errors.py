"""The errors of this package.

::

    LockError
    ├── LockNotAcquired       another owner holds the lock, and the wait is over
    ├── LockAlreadyHeld       the caller holds the lock itself, and would wait for itself
    ├── LockNotOwned          released, or a fenced row saved, without holding the lock (also a RuntimeError)
    ├── LockLost              the lease ended, or the lock was taken away, while it was held
    ├── StaleGrant            a fenced row wasn't written: a later holder has written it, or it is gone
    ├── LockKeyError          not a valid key, or another kind of value is stored under it (also a ValueError)
    └── LockBackendError      the store can't be reached, or refuses a request

A message shows the *name* of a lock, never its filled key, which may be personal data; the key is the attribute
``key``. Every error pickles with its attributes.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .holder import Holder

LONGEST_RETRY_AFTER = 60
"""The largest ``Retry-After``, in seconds. Leases may be long, but locks are seldom held for that long."""


def _rebuild(cls: type[LockError], args: tuple[Any, ...], state: dict[str, Any]) -> LockError:
    error = cls.__new__(cls, *args)
    error.args = args
    error.__dict__.update(state)
    return error


class LockError(Exception):
    """The base of every error here.

    Attributes:
        key: the filled key of the lock, or None if it isn't known yet.
        name: the label of the lock in messages and metrics.
        alias: the entry of ``REDIS_LOCKS`` that the lock belongs to.
    """

    def __init__(
        self, message: str = "", *, key: str | None = None, name: str | None = None, alias: str | None = None
    ) -> None:
        super().__init__(message)
        self.key = key
        self.name = name
        self.alias = alias

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.args, self.__dict__)


class LockNotAcquired(LockError):
    """Another owner holds the lock, and the caller's wait is over.

    Attributes:
        waited: seconds spent waiting.
        retry_after: seconds until the current lease ends, unless it is extended.
        holder: the current holder, as described in the store; None if unknown.
        rate_limited: True if the lock stays held after its call (``auto_release=False``), until its lease ends.
        status: the status of an HTTP response: 409, 429 if ``rate_limited``, or the one that the call site chose.
        retry_header: the seconds of its ``Retry-After`` header; None to send none.
    """

    def __init__(
        self,
        message: str = "",
        *,
        waited: float = 0.0,
        retry_after: float = 0.0,
        holder: Holder | None = None,
        **context: str | None,
    ) -> None:
        super().__init__(message, **context)
        self.waited = waited
        self.retry_after = retry_after
        self.holder = holder
        self.rate_limited = False
        self.status = 409
        self.retry_header: int | None = min(max(1, math.ceil(retry_after)), LONGEST_RETRY_AFTER)


class LockAlreadyHeld(LockError):
    """The caller already holds this lock, so that waiting for it would be a deadlock."""


class LockNotOwned(LockError, RuntimeError):
    """The caller released a lock, or saved a fenced row, without holding the lock."""


class LockLost(LockError):
    """The lock was held and is no longer: its lease ended, or it was taken away. Or a latch ended without having been
    counted down, while the caller waited for it."""


class StaleGrant(LockError):
    """A fenced row wasn't written: a later holder has written it, or it is gone.

    Attributes:
        fence: the fence of the grant that came too late.
        stored: the fence that the row has; None if there is no such row.
    """

    def __init__(
        self, message: str = "", *, fence: int | None = None, stored: int | None = None, **context: str | None
    ) -> None:
        super().__init__(message, **context)
        self.fence = fence
        self.stored = stored


class LockKeyError(LockError, ValueError):
    """Not a valid key, or a value that is no lock is stored under it.

    Attributes:
        source: the argument in which a field of a key template found no usable value, such as the request for
            ``{request.headers[X]}``. None for other errors, also if the argument lacks the attribute, because then the
            template is wrong.
    """

    source: object = None


class LockBackendError(LockError):
    """The store can't be reached, or refuses a request.

    Attributes:
        outcome_unknown: True if the request may have been executed, although no reply arrived.
        transient: True if a retry may succeed, for example after a restart or a failover.
        unreachable: True if there was no connection, or no reply. False if the store refused the request.
        on_reused_connection: True if an earlier opened connection failed, so that an immediate retry on a new one may
            succeed.
        awaits_failover: True if sentinels may name another server soon, so that retries are frequent.
    """

    unreachable = awaits_failover = False  # the defaults for errors that an older version has pickled

    def __init__(
        self,
        message: str = "",
        *,
        outcome_unknown: bool = False,
        transient: bool = False,
        unreachable: bool = False,
        on_reused_connection: bool = False,
        awaits_failover: bool = False,
        **context: str | None,
    ) -> None:
        super().__init__(message, **context)
        self.outcome_unknown = outcome_unknown
        self.transient = transient
        self.unreachable = unreachable
        self.on_reused_connection = on_reused_connection
        self.awaits_failover = awaits_failover

    def __str__(self) -> str:
        text = super().__str__()
        return text if self.alias is None else f"lock {self.name!r}, alias {self.alias!r}: {text}"

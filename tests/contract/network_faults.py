"""A bad network before Redis: a reproducible sequence of faults that the contract promises to survive. With these
faults a test must get the same results as on a good network.

The promises differ. A waiter repeats its requests until it gets a reply, so they may suffer any fault. Every other
request is sent once, because its caller waits for no more than one reply [F15]: if it or its reply is lost, the caller
gets an error, which these tests don't expect. But every call survives requests that arrive twice, late copies, and an
idle connection that turns out to be closed [H24]. A request doesn't show its caller, so the calls are tracked.

A waiter with an unanswered request is removed from the wait queue in the background, and until then a release may grant
it the lock for a moment. So each call that may have waited ends with that cleanup.
"""

from __future__ import annotations

import inspect
import os
import random
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any

import pytest

from django_redis_locks import Grant, Lock, MultiLock, ReadLock, Semaphore, WriteLock
from tests.probes.engine import set_reply_timeout, wait_for_cleanup
from tests.proxy import Fault, ProxyConnection
from tests.servers import UNHURRIED

SILENCE = 1.0
"""Seconds that a waiter waits for a reply that may be lost: the cost of each lost one."""

SHORT = 250
"""Leases below this many milliseconds may end while a holder reconnects."""

LONG = 4.0
"""Waits of at least this many seconds have time for several attempts."""

MILD, SEVERE = 0.4, 0.15
"""The share of calls with a fault. A severe one delays its caller, so the next attempt has none."""


ANYTHING = [
    Fault("drop", "request"),
    Fault("drop", "reply"),
    Fault("cut", "request"),
    Fault("cut", "reply"),
    Fault("delay", "request", behind="lock/acquire"),
]
"""For waiters. A delayed request arrives after the end of its attempt: right after some acquire, when the key is held
in any case. A late copy that finds the key free would acquire it without a holder; the maintenance thread cleans that
up, but not at once [H2a]."""

IMMEDIATE = [fault for fault in ANYTHING if fault.action == "cut"]
"""For a waiter on a connection that tasks share: a lost reply would affect the other tasks, which don't repeat
requests."""


AnyLock = Lock | Semaphore | ReadLock | WriteLock | MultiLock
LOCKS = Lock, Semaphore, ReadLock, WriteLock, MultiLock

READS = {"lock/inspect", "permits/inspect", "index/page", "index/inspect"}
RELEASES = {"lock/release", "permits/release"}
RENEWALS = {"lock/renew", "lock/adopt", "permits/renew", "permits/adopt"}
FORCED = {"lock/force_release", "permits/force_release"}
LATE_COPIES = {
    "lock/transfer",
    "multi/release",
    "permits/transfer",
    "permits/downgrade",
    *RELEASES,
    *RENEWALS,
    *READS,
}
"""Commands of which a late copy is harmless at any time: not an acquire, see above, nor a forced release, which frees
the lock of any holder."""

LATCHES = {"latch/set", "latch/count_down", "latch/get"}
ACQUIRES = {"lock/acquire", "lock/acquire_fair", "permits/acquire"}
SHARED_LINES = {"lock/acquire"}
ANSWERS_THAT_MAY_BE_LOST = {*ACQUIRES, "multi/acquire", *LATE_COPIES, *LATCHES}
"""Commands of which the second request gets the same reply: not a forced release, which finds nothing to free."""

WAITS = {"acquire", "aacquire", "__enter__", "__aenter__"}

_retries_until_answered: ContextVar[bool] = ContextVar("insists", default=False)
"""Whether this caller repeats requests until it gets a reply."""


class FaultSchedule:
    """A proxy's policy. Each pair of a command and a key has its own random generator, so that its faults depend
    neither on the maintenance thread nor on other keys."""

    def __init__(self, seed: str, *, shared: bool) -> None:
        self._shared = shared
        self._anything = IMMEDIATE if shared else ANYTHING
        self._seed = f"{os.environ.get('FAULTS_SEED', '0')} {seed}"
        self._chances: dict[tuple[str, bytes], random.Random] = {}
        self._suffered: set[bytes] = set()
        """Keys whose last attempt had a severe fault; of kinds with own lines, the key and the holder."""
        self._leases: dict[bytes, int] = {}
        self._forced: set[bytes] = set()
        """Keys that were freed by force."""
        self._once_only: list[str] = []
        """Running calls whose requests are sent once."""

    def __call__(self, name: str, value: list[Any], connection: ProxyConnection) -> Fault | None:
        if "/" not in name:
            return None
        key = value[3]
        chance = self._chances.get((name, key))
        if chance is None:
            place = re.sub(rb"\b(thing:|alone)\d+", rb"\1", key)  # the tests number their keys
            chance = self._chances[name, key] = random.Random(f"{self._seed} {name} {place!r}")
        mild, severe = chance.random() < MILD, chance.random() < SEVERE
        may_end = name in ACQUIRES and self._leases.get(key, SHORT) < SHORT
        if name in ACQUIRES:
            lease, holder = value[3 + int(value[2]) + 1 :][:2]
            self._leases[key] = int(lease)
            asking = key if name in SHARED_LINES else key + holder  # in a shared line one caller asks at a time
            # otherwise the faults of all callers would hit each of them on a connection that they share
            alone = not (self._shared and name not in SHARED_LINES and connection.pending_requests)
            if severe and alone and not self._once_only and asking not in self._suffered:
                self._suffered.add(asking)
                return chance.choice(self._anything)
            self._suffered.discard(asking)
        elif name in FORCED:
            self._forced.add(key)
        harmless = self._harmless(name, key, connection, may_end) if mild else []
        return chance.choice(harmless) if harmless else None

    def _harmless(self, name: str, key: bytes, connection: ProxyConnection, may_end: bool) -> list[Fault]:
        """``may_end``: the lease of the holder may end between a request and its duplicate, which is a late copy then."""
        faults = [] if may_end else [Fault("duplicate", "request")]
        if name in LATE_COPIES:
            faults.append(Fault("late copy", "request", behind="lock/acquire"))
        idle = connection.answered_scripts and not connection.pending_requests
        hurry = name in {*RELEASES, "lock/renew", "permits/renew"} and self._leases.get(key, SHORT) < SHORT
        # A second request can't distinguish the effect of the first one from an earlier release [H15].
        doubt = name in FORCED or (name in RELEASES and key in self._forced)
        if idle and not hurry and not doubt:
            faults.append(Fault("cut", "request"))
            if name in ANSWERS_THAT_MAY_BE_LOST:
                faults.append(Fault("cut", "reply"))
        return faults

    def watch(self, patch: pytest.MonkeyPatch) -> None:
        """Track all calls with an async counterpart, which may send requests. Only callers that repeat get a short
        timeout."""
        for owner in (*LOCKS, Grant):
            for name in dir(owner):
                other = f"__a{name[2:]}" if name in {"__enter__", "__exit__"} else f"a{name}"
                if hasattr(owner, other):
                    patch.setattr(owner, name, self._watched(getattr(owner, name)))
                    patch.setattr(owner, other, self._watched(getattr(owner, other)))
        set_reply_timeout(patch, lambda: SILENCE if _retries_until_answered.get() else UNHURRIED)

    def _watched(self, method: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(method)
        def call(subject: AnyLock | Grant, *args: Any, **how: Any) -> Any:
            with self._under_way(method.__name__, subject, *args, **how):
                return method(subject, *args, **how)

        @wraps(method)
        async def acall(subject: AnyLock | Grant, *args: Any, **how: Any) -> Any:
            with self._under_way(method.__name__, subject, *args, **how):
                return await method(subject, *args, **how)

        return acall if inspect.iscoroutinefunction(method) else call

    @contextmanager
    def _under_way(self, name: str, subject: AnyLock | Grant, *args: Any, **how: Any) -> Iterator[None]:
        try:
            with self._tracked(name, subject, *args, **how):
                yield
        finally:
            if name in WAITS and isinstance(subject, LOCKS):
                wait_for_cleanup(subject)

    @contextmanager
    def _tracked(self, name: str, subject: AnyLock | Grant, *args: Any, **how: Any) -> Iterator[None]:
        if name in WAITS and isinstance(subject, LOCKS) and _waits_long(subject, *args, **how):
            before = _retries_until_answered.set(True)
            try:
                yield
            finally:
                _retries_until_answered.reset(before)
            return
        self._once_only.append(name)
        try:
            yield
        finally:
            self._once_only.remove(name)


def _waits_long(lock: AnyLock, blocking: Any = True, timeout: Any = None, permits: int = 1) -> bool:
    if isinstance(lock, MultiLock):  # its attempts are short, and alternate between its locks
        return False
    if lock.reentrant or not blocking:  # re-entry may renew, which is sent once
        return False
    wait = lock.options.wait if timeout is None else timeout
    return isinstance(wait, int | float) and (wait == -1 or wait >= LONG)

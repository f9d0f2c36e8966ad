"""A bad network before Redis: a stream of faults, the same for each run of a test, such as the contract promises to
survive. Behind it a test must get the answers that it gets on a good network.

The promises differ. A waiter asks until it gets an answer, so anything may happen to its requests. Every other request
is tried once, because its caller waits for no more than one answer [F15]: if it or its reply is lost the caller gets an
error, which these tests don't expect. But every call survives requests that arrive twice, late copies, and an idle
connection that turns out to be closed [H24]. The wire doesn't show which caller sent a request, so calls are watched.
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

from django_redis_locks import Grant, Lock
from tests.probes.engine import set_reply_timeout
from tests.proxy import Fault, ProxyConnection
from tests.servers import UNHURRIED

SILENCE = 1.0
"""Seconds for which a waiter waits for a reply that may be lost: the cost of each lost one."""

SHORT = 250
"""Leases below this many milliseconds may end while a holder connects again."""

LONG = 4.0
"""Seconds: a longer wait has time for several tries."""

MILD, SEVERE = 0.4, 0.15
"""The share of calls that suffer a fault. A severe one costs its caller some time, so the next attempt gets through."""

ANYTHING = [
    Fault("drop", "request"),
    Fault("drop", "reply"),
    Fault("cut", "request"),
    Fault("cut", "reply"),
    Fault("delay", "request", behind="lock/acquire"),
]
"""For waiters. A delayed request arrives when its caller has given up that try: right behind some acquire, when the key
is held in any case. If the key were free by then the late copy would take it, with no holder; the maintenance thread
cleans that up, but not at once [H2a]."""

AT_ONCE = [fault for fault in ANYTHING if fault.action == "cut"]
"""For a waiter on a connection that tasks share: its silence would hit the others too, which wait for one answer
only."""

READS = {"lock/inspect", "index/page", "index/inspect"}
LATE_COPIES = {"lock/release", "lock/renew", "lock/adopt", *READS}
"""Harmless whenever they come. Not that of an acquire, see above; nor that of a force, which frees the lock of
whichever holder there is by then."""

ANSWERS_THAT_MAY_BE_LOST = {"lock/acquire", "lock/release", "lock/renew", "lock/adopt", *READS}
"""The second request gets the same answer. Not that of a force: there is nothing left to free."""

WAITS = {"acquire", "aacquire", "__enter__", "__aenter__"}

_insists: ContextVar[bool] = ContextVar("insists", default=False)
"""This caller asks until it gets an answer."""


class FaultSchedule:
    """A proxy's policy. The faults of a key's calls of one name come from a generator of their own, so that neither the
    maintenance thread nor other keys change them."""

    def __init__(self, seed: str, *, shared: bool) -> None:
        self._anything = AT_ONCE if shared else ANYTHING
        self._seed = f"{os.environ.get('FAULTS_SEED', '0')} {seed}"
        self._chances: dict[tuple[str, bytes], random.Random] = {}
        self._suffered: set[bytes] = set()
        """Keys of which the last attempt met a severe fault."""
        self._leases: dict[bytes, int] = {}
        self._forced: set[bytes] = set()
        """Keys that were freed by force."""
        self._once_only: list[str] = []
        """Calls under way whose requests are tried once."""

    def __call__(self, name: str, value: list[Any], connection: ProxyConnection) -> Fault | None:
        if "/" not in name:
            return None
        key = value[3]
        chance = self._chances.get((name, key))
        if chance is None:
            place = re.sub(rb"\b(thing:|alone)\d+", rb"\1", key)  # the tests number their keys
            chance = self._chances[name, key] = random.Random(f"{self._seed} {name} {place!r}")
        mild, severe = chance.random() < MILD, chance.random() < SEVERE
        if name == "lock/acquire":
            self._leases[key] = int(value[3 + int(value[2]) + 1])
            if severe and not self._once_only and key not in self._suffered:
                self._suffered.add(key)
                return chance.choice(self._anything)
            self._suffered.discard(key)
        elif name == "lock/force_release":
            self._forced.add(key)
        return chance.choice(self._harmless(name, key, connection)) if mild else None

    def _harmless(self, name: str, key: bytes, connection: ProxyConnection) -> list[Fault]:
        faults = [Fault("duplicate", "request")]
        if name in LATE_COPIES:
            faults.append(Fault("late copy", "request", behind="lock/acquire"))
        idle = connection.answered_scripts and not connection.pending_requests
        hurry = name in {"lock/release", "lock/renew"} and self._leases.get(key, SHORT) < SHORT
        # A second try can't distinguish the effect of the first from what had been done before [H15].
        doubt = name == "lock/force_release" or (name == "lock/release" and key in self._forced)
        if idle and not hurry and not doubt:
            faults.append(Fault("cut", "request"))
            if name in ANSWERS_THAT_MAY_BE_LOST:
                faults.append(Fault("cut", "reply"))
        return faults

    def watch(self, patch: pytest.MonkeyPatch) -> None:
        """Follow the calls: whatever may ask the store has a twin. Only callers that ask again notice a silence
        soon."""
        for owner in (Lock, Grant):
            for name in dir(owner):
                other = f"__a{name[2:]}" if name in {"__enter__", "__exit__"} else f"a{name}"
                if hasattr(owner, other):
                    patch.setattr(owner, name, self._watched(getattr(owner, name)))
                    patch.setattr(owner, other, self._watched(getattr(owner, other)))
        set_reply_timeout(patch, lambda: SILENCE if _insists.get() else UNHURRIED)

    def _watched(self, method: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(method)
        def call(subject: Lock | Grant, *args: Any, **how: Any) -> Any:
            with self._under_way(method.__name__, subject, *args, **how):
                return method(subject, *args, **how)

        @wraps(method)
        async def acall(subject: Lock | Grant, *args: Any, **how: Any) -> Any:
            with self._under_way(method.__name__, subject, *args, **how):
                return await method(subject, *args, **how)

        return acall if inspect.iscoroutinefunction(method) else call

    @contextmanager
    def _under_way(self, name: str, subject: Lock | Grant, *args: Any, **how: Any) -> Iterator[None]:
        if name in WAITS and isinstance(subject, Lock) and _waits_long(subject, *args, **how):
            before = _insists.set(True)
            try:
                yield
            finally:
                _insists.reset(before)
            return
        self._once_only.append(name)
        try:
            yield
        finally:
            self._once_only.remove(name)


def _waits_long(lock: Lock, blocking: Any = True, timeout: Any = None) -> bool:
    if lock.reentrant or not blocking:  # re-entry may renew, which is tried once
        return False
    wait = lock.options.wait if timeout is None else timeout
    return isinstance(wait, int | float) and (wait == -1 or wait >= LONG)

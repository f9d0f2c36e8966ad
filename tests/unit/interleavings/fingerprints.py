"""Fingerprints of states: equal for objects that will behave equally.

A fingerprint contains everything reachable: attributes, and the frames of suspended programs with their position and
their locals. Timestamps count by their distance from now. Only what is listed here is left out or simplified.
"""

from __future__ import annotations

import threading
import types
from collections import deque
from collections.abc import Callable, Generator, Sequence
from enum import Enum
from functools import cache
from math import inf
from typing import Any, ClassVar

from django_redis_locks.core.commands import Command
from django_redis_locks.core.grant import Grant
from django_redis_locks.core.hold import Hold
from django_redis_locks.core.queue_values import DirectGrant, QueueOutage, Waiter
from django_redis_locks.core.tuning import DEFAULT, Tuning
from django_redis_locks.engine.engine import Engine
from django_redis_locks.engine.local_queues import LocalQueues, WaitQueue
from django_redis_locks.primitives.shared.lock_spec import LockSpec
from django_redis_locks.primitives.shared.requests import AcquireRequest, Busy, Granted

from .environment import FIRST_ARRIVAL, RecordingEvent, Timestamp
from .plans import Plan

_OPAQUE = (
    Engine,
    LockSpec,
    threading.Thread,
    Tuning,
    Plan,
    types.FunctionType,
    types.MethodType,
    types.BuiltinFunctionType,
    type,
)
"""Types that count by name only: constant on all paths, or covered elsewhere (closures share the locals of frames)."""

_IGNORED_ATTRIBUTES = {
    Hold: {"fence", "since", "owner", "grant", "mutex", "pid", "open_grants", "lock_id", "key", "name", "alias"},
    Grant: {"lock"},
    Waiter: {"caller", "terms"},
    AcquireRequest: {"sent"},
    DirectGrant: {"fence"},
    LocalQueues: {"_mutex"},
}
"""Attributes without influence on later steps."""

_PAST_ALIKE = {"next_try", "begin"}
"""Timestamps that only matter while they lie in the future: all past values are equal."""

_DEAD_LOCALS = {
    "retry_command": {"reply", "text", "now", "left"},
    "acquiring": {"command", "hold", "outcome_unknown", "pause", "sent", "verdict"},
    "next": {"later", "now", "position", "seconds"},
    "acquiring_straight": {"grant", "reply"},
    "releasing_straight": {"first", "reply", "sent"},
    "releasing": {"_", "first"},
}
"""Locals of programs that are assigned again before their next use, wherever the program is suspended."""

_QUEUE_COUNTERS = ("wakeups_answered", "wakeups_seen", "wakeups")
"""Counters of a queue that are only incremented and compared with each other."""

_QUEUE_ATTRIBUTES = (
    "line",
    "loop",
    "next_try",
    "waiters",
    "entry",
    "enqueued_at",
    "place",
    "asking",
    "granted",
    "handed",
    "number",
)
"""The other attributes of a queue that are part of its fingerprint."""

_KNOWN_QUEUE_ATTRIBUTES = {*_QUEUE_COUNTERS, *_QUEUE_ATTRIBUTES, "failure", "keys"}


class Fingerprinter:
    """Makes fingerprints at one time. A repeated object is replaced by its number: sharing is part of a fingerprint."""

    def __init__(self, now: Timestamp) -> None:
        self.now = now
        self._numbers: dict[int, int] = {}
        self.last_arrival = FIRST_ARRIVAL
        """The latest arrival time that was seen."""

    def of(self, value: Any) -> Any:
        return _functions[type(value)](self, value)

    def named(self, name: str, value: Any) -> Any:
        if name in _PAST_ALIKE and isinstance(value, float) and value <= self.now:
            return "past"
        if name == "confirmed_at" and value + DEFAULT.local_reuse_window <= self.now:
            return "long ago"
        return _functions[type(value)](self, value)

    # Fingerprints by type

    def _unchanged(self, value: Any) -> Any:
        return value

    def _int(self, value: int) -> int:
        self.last_arrival = max(self.last_arrival, value)
        return value

    def _timestamp(self, value: Timestamp) -> Any:
        return value if value in {inf, -inf} else (round(value - self.now, 6),)

    def _sequence(self, value: Any) -> Any:
        return tuple([_functions[type(part)](self, part) for part in value])

    def _dict(self, value: dict[Any, Any]) -> Any:
        return tuple(sorted([(repr(self.of(key)), self.of(value)) for key, value in value.items()]))

    def _set(self, value: Any) -> Any:
        return tuple(sorted(repr(self.of(part)) for part in value))

    def _type_name(self, value: Any) -> str:
        return type(value).__name__

    def _failure(self, value: BaseException) -> Any:
        return type(value).__name__, getattr(value, "outcome_unknown", None)

    def _command(self, value: Command[Any]) -> Any:
        return value.name, self._sequence(value.args)

    def _number_if_seen(self, value: Any) -> Any:
        """The object's number if it was seen before."""
        numbers = self._numbers
        number = numbers.setdefault(id(value), len(numbers))
        return number if number != len(numbers) - 1 else None

    def _program(self, value: Any) -> Any:
        frames: list[Any] = []
        while isinstance(value, Generator):
            frame = value.gi_frame  # type: ignore[attr-defined]
            if frame is None:
                break
            stale = _DEAD_LOCALS.get(frame.f_code.co_name, ())
            locals = [(name, self.named(name, value)) for name, value in frame.f_locals.items() if name not in stale]
            frames.append((frame.f_code.co_name, frame.f_lasti, *sorted(locals)))
            value = value.gi_yieldfrom  # type: ignore[attr-defined]
        return tuple(frames)

    def _object(self, value: Any) -> Any:
        number = self._number_if_seen(value)
        if number is not None:
            return f"^{number}"
        kind: Any = type(value)
        return kind.__name__, *[self.named(name, value) for name, value in attributes(value)]

    def _outage(self, value: QueueOutage) -> Any:
        return value.failure

    def _queue(self, value: WaitQueue) -> Any:
        counts = [getattr(value, name) for name in _QUEUE_COUNTERS]
        ranks = sorted(set(counts))
        return self._object(value), self._outage(value), *[ranks.index(count) for count in counts]

    def _event(self, value: RecordingEvent) -> Any:
        """One that isn't set is equal to none: it is created when a waiter must sleep."""
        return value.opened or None

    def _value(self, value: Any) -> Any:
        return type(value).__name__, *[self.of(value) for _, value in attributes(value)]


class _FunctionByType(dict[type, Callable[[Fingerprinter, Any], Any]]):
    def __missing__(self, kind: type) -> Callable[[Fingerprinter, Any], Any]:
        function = next(
            (function for kinds, function in self._by_type if issubclass(kind, kinds)), Fingerprinter._object
        )
        self[kind] = function
        return function

    _by_type: ClassVar[Sequence[tuple[Any, Callable[[Fingerprinter, Any], Any]]]] = (
        ((type(None), bool, str, Enum), Fingerprinter._unchanged),
        (int, Fingerprinter._int),
        (Timestamp, Fingerprinter._timestamp),
        (float, Fingerprinter._unchanged),
        ((tuple, list, deque), Fingerprinter._sequence),
        (dict, Fingerprinter._dict),
        ((set, frozenset), Fingerprinter._set),
        (Command, Fingerprinter._command),
        (_OPAQUE, Fingerprinter._type_name),
        (BaseException, Fingerprinter._failure),
        (types.GeneratorType, Fingerprinter._program),
        (WaitQueue, Fingerprinter._queue),
        (QueueOutage, Fingerprinter._outage),
        (RecordingEvent, Fingerprinter._event),
        ((Busy, Granted), Fingerprinter._value),
    )


_functions = _FunctionByType()


def attributes(value: Any) -> list[tuple[str, Any]]:
    """Names and values of the attributes that are part of an object's fingerprint."""
    kind: Any = type(value)
    if isinstance(value, WaitQueue):
        assert vars(value).keys() <= _KNOWN_QUEUE_ATTRIBUTES
        return [(name, getattr(value, name)) for name in _QUEUE_ATTRIBUTES]
    if hasattr(value, "__dict__"):
        return [(name, value) for name, value in sorted(vars(value).items()) if name not in _ignored(kind)]
    names = _slots(kind)
    if issubclass(kind, Hold) and not value.reserved_fences:
        names = [name for name in names if name != "confirmed_at"]
    return [(name, getattr(value, name)) for name in names if hasattr(value, name)]


@cache
def _slots(kind: Any) -> list[str]:
    names = {name for base in kind.__mro__ for name in getattr(base, "__slots__", ())}
    return sorted(names - _ignored(kind) - {"__weakref__"})


@cache
def _ignored(kind: Any) -> set[str]:
    return next((names for base, names in _IGNORED_ATTRIBUTES.items() if issubclass(kind, base)), set())

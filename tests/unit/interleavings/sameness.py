"""When are two states the same? A *shape* is equal for objects that will behave alike.

It is made of everything that can be reached: attributes, and the frames of suspended programs with their place and
their locals. Moments count by their distance from now. Only what is listed here is left out or simplified.
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
from django_redis_locks.core.queue_values import QueueOutage, Waiter
from django_redis_locks.core.tuning import DEFAULT
from django_redis_locks.engine.engine import Engine
from django_redis_locks.engine.local_queue import LocalQueues, WaitQueue
from django_redis_locks.primitives.shared.lock_programs import LockPrograms
from django_redis_locks.primitives.shared.requests import Busy, Granted

from .moments import ARRIVALS, Gate, Moment
from .plans import Plan

_OPAQUE = (
    Engine,
    LockPrograms,
    threading.Thread,
    Plan,
    types.FunctionType,
    types.MethodType,
    types.BuiltinFunctionType,
    type,
)
"""Equal wherever a path leads, or seen from elsewhere: closures share the locals of frames."""

_NO_MATTER = {
    Hold: {"fence", "since", "owner", "grant", "mutex", "pid", "open_grants", "lock_id", "key", "name", "alias"},
    Grant: {"lock"},
    Waiter: {"caller"},
    LocalQueues: {"_mutex"},
}
"""Attributes on which nothing that follows depends."""

_ONCE_DUE = {"next_try", "begin"}
"""Moments of which only the future matters: all that is past is alike."""

_STALE = {
    "asking": {"reply", "text", "now", "left"},
    "waiting": {"answer", "then", "effect", "now", "position"},
    "releasing": {"_"},
}
"""Locals of programs that are set anew before anybody looks at them again, wherever the program is suspended."""

_COUNTS = ("wakeups_answered", "wakeups_seen", "wakeups")
"""Counters of a queue that are only ever compared with each other, and raised."""

_OF_QUEUES = ("loop", "next_try", "waiters", "address", "enqueued_at", "handed", "number")
"""What else there is of a queue, whether or not it differs from how it begins; and its trouble."""

_ALL_OF_QUEUES = {*_COUNTS, *_OF_QUEUES, "_number", "failure"}


class Shaper:
    """Shapes of things at one time. An object met again is named by its number: who shares what is part of a shape."""

    def __init__(self, now: Moment) -> None:
        self.now = now
        self._numbers: dict[int, int] = {}
        self.last = ARRIVALS
        """The last arrival among the things."""

    def of(self, thing: Any) -> Any:
        return _hows[type(thing)](self, thing)

    def named(self, name: str, value: Any) -> Any:
        if name in _ONCE_DUE and isinstance(value, float) and value <= self.now:
            return "past"
        if name == "confirmed_at" and value + DEFAULT.local_reuse_window <= self.now:
            return "long ago"
        return _hows[type(value)](self, value)

    # How to shape the things of one type.

    def _itself(self, thing: Any) -> Any:
        return thing

    def _int(self, thing: int) -> int:
        self.last = max(self.last, thing)
        return thing

    def _moment(self, thing: Moment) -> Any:
        return thing if thing in {inf, -inf} else (round(thing - self.now, 6),)

    def _parts(self, thing: Any) -> Any:
        return tuple([_hows[type(part)](self, part) for part in thing])

    def _dict(self, thing: dict[Any, Any]) -> Any:
        return tuple(sorted([(repr(self.of(key)), self.of(value)) for key, value in thing.items()]))

    def _set(self, thing: Any) -> Any:
        return tuple(sorted(repr(self.of(part)) for part in thing))

    def _kind(self, thing: Any) -> str:
        return type(thing).__name__

    def _failure(self, thing: BaseException) -> Any:
        return type(thing).__name__, getattr(thing, "outcome_unknown", None)

    def _command(self, thing: Command[Any]) -> Any:
        return thing.name, self._parts(thing.args)

    def _met(self, thing: Any) -> Any:
        """Its number if it is met again."""
        numbers = self._numbers
        number = numbers.setdefault(id(thing), len(numbers))
        return number if number != len(numbers) - 1 else None

    def _program(self, thing: Any) -> Any:
        frames: list[Any] = []
        while isinstance(thing, Generator):
            frame = thing.gi_frame  # type: ignore[attr-defined]
            if frame is None:
                break
            stale = _STALE.get(frame.f_code.co_name, ())
            locals = [(name, self.named(name, value)) for name, value in frame.f_locals.items() if name not in stale]
            frames.append((frame.f_code.co_name, frame.f_lasti, *sorted(locals)))
            thing = thing.gi_yieldfrom  # type: ignore[attr-defined]
        return tuple(frames)

    def _object(self, thing: Any) -> Any:
        number = self._met(thing)
        if number is not None:
            return f"^{number}"
        kind: Any = type(thing)
        return kind.__name__, *[self.named(name, value) for name, value in attributes(thing)]

    def _trouble(self, thing: QueueOutage) -> Any:
        return thing.failure

    def _queue(self, thing: WaitQueue) -> Any:
        counts = [getattr(thing, name) for name in _COUNTS]
        ranks = sorted(set(counts))
        return self._object(thing), self._trouble(thing), *[ranks.index(count) for count in counts]

    def _gate(self, thing: Gate) -> Any:
        """One that is closed is as good as none: it is made when somebody must sleep."""
        return thing.opened or None

    def _value(self, thing: Any) -> Any:
        return type(thing).__name__, *[self.of(value) for _, value in attributes(thing)]


class _Hows(dict[type, Callable[[Shaper, Any], Any]]):
    def __missing__(self, kind: type) -> Callable[[Shaper, Any], Any]:
        how = next((how for kinds, how in self._by_kind if issubclass(kind, kinds)), Shaper._object)
        self[kind] = how
        return how

    _by_kind: ClassVar[Sequence[tuple[Any, Callable[[Shaper, Any], Any]]]] = (
        ((type(None), bool, str, Enum), Shaper._itself),
        (int, Shaper._int),
        (Moment, Shaper._moment),
        (float, Shaper._itself),
        ((tuple, list, deque), Shaper._parts),
        (dict, Shaper._dict),
        ((set, frozenset), Shaper._set),
        (Command, Shaper._command),
        (_OPAQUE, Shaper._kind),
        (BaseException, Shaper._failure),
        (types.GeneratorType, Shaper._program),
        (WaitQueue, Shaper._queue),
        (QueueOutage, Shaper._trouble),
        (Gate, Shaper._gate),
        ((Busy, Granted), Shaper._value),
    )


_hows = _Hows()


def attributes(thing: Any) -> list[tuple[str, Any]]:
    """Name and value of all that matters of an object."""
    kind: Any = type(thing)
    if isinstance(thing, WaitQueue):
        assert vars(thing).keys() <= _ALL_OF_QUEUES
        return [(name, getattr(thing, name)) for name in _OF_QUEUES]
    if hasattr(thing, "__dict__"):
        return [(name, value) for name, value in sorted(vars(thing).items()) if name not in _unmattering(kind)]
    names = _slots(kind)
    if kind is Hold and not thing.reserved_fences:
        names = [name for name in names if name != "confirmed_at"]
    return [(name, getattr(thing, name)) for name in names if hasattr(thing, name)]


@cache
def _slots(kind: Any) -> list[str]:
    names = {name for base in kind.__mro__ for name in getattr(base, "__slots__", ())}
    return sorted(names - _unmattering(kind) - {"__weakref__"})


@cache
def _unmattering(kind: Any) -> set[str]:
    return next((names for base, names in _NO_MATTER.items() if issubclass(kind, base)), set())

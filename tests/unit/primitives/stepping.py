"""Programs stepped by hand: a story is a list of what a program asks for, and what it is told.

    outcome = play(lock.acquiring(ask), [("now", 100.0), ("lock/acquire A", Granted(7)), ("now", 100.1)])

Each line must be what the program asks for next. Tokens are called A, B, ... in the order in which they appear. What
the program is told may be an exception, which is thrown in. The engine's clock shows what ``now`` was last told, and
``at(111, reply)`` is a reply that comes at that time.

``lock/acquire A at inbox:i 0 since 5, more, handed B`` is the question of a queue that is to be registered under that
address, since it lined up at 5, with others behind the one who asks and the lock handed over under token B. What the
answer said of the line is told to the queue: ``nowhere``, or ``since 5``, and ``with others``.
"""

from __future__ import annotations

import string
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest

from django_redis_locks import Lock
from django_redis_locks.core import clock
from django_redis_locks.core.effects import (
    Command,
    Effect,
    Freed,
    HandOver,
    Join,
    Leave,
    LineUp,
    Listen,
    Now,
    Pause,
    Place,
    Program,
    Standing,
    Sweep,
    Unwatch,
    Wait,
    Watch,
)
from django_redis_locks.core.keys import Spelling
from django_redis_locks.primitives.wishes import Terms

KEYS = Spelling("lock").of("order:42")
PLACE = Place("store", KEYS.lock)
KEPT = 4000
"""Milliseconds for which a waiter stays in line that isn't heard of: twice the cap."""


def a_lock(world: Any = None, *, reentrant: bool = False, **terms: Any) -> Lock:
    """A lock with a lease of ten seconds and a wait of three."""
    usual = {"lease": 10_000, "wait": 3.0, "renew_for": 0.0, "fail_open": False, "index": True, "metadata": ()}
    return Lock(
        world, PLACE, KEYS, "order:42", "order", "default", Terms(**{**usual, "on_lost": None, **terms}), reentrant
    )


@dataclass
class at:  # noqa: N801 - it reads as a word in a story
    """A reply, and when it comes."""

    time: float
    reply: Any


class Teller:
    """Tells effects as lines, with short names for the tokens."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}

    def name(self, token: object) -> str:
        return self._names.setdefault(str(token), string.ascii_uppercase[len(self._names)])

    def line(self, effect: Effect[Any]) -> str:
        match effect:
            case Command():
                return self._command(effect)
            case Sweep(place, delete, lease):
                assert (place, delete.name) == (PLACE, "lock/free")
                return f"sweep {self.name(delete.args[0])} for {lease:g}"
            case Watch(hold, prolong):
                assert prolong.args == (hold.token, hold.lease)
                return f"watch {self.name(hold.token)}"
            case Unwatch(hold):
                return f"unwatch {self.name(hold.token)}"
            case Pause(seconds):
                return f"pause {seconds:g}"
            case Now():
                return "now"
        return self._waiting(effect)

    def _waiting(self, effect: Effect[Any]) -> str:
        match effect:
            case Join():
                return "join"
            case Wait(_, until, pause, standing):
                return f"wait until {until:g}" + _with(pause, standing)
            case Leave(_, pause, standing):
                return "leave" + _with(pause, standing)
            case Listen(channel, seconds):
                assert channel == KEYS.inbox
                return f"listen for {seconds:g}"
            case HandOver(handed):
                assert handed.free(handed.hold.token).name == "lock/free"
                return f"hand over {self.name(handed.hold.token)}"
            case LineUp(place):
                assert place == PLACE
                return "line up"
            case Freed(place, woke, address):
                assert place == PLACE
                return "freed" + ", another woken" * woke + f", lined up {address}" * bool(address)
        raise AssertionError(effect)

    def _command(self, command: Command[Any]) -> str:
        match command.name, command.args:
            case "lock/inspect", _:
                return "lock/inspect"
            case "lock/force", (fence,):
                return f"lock/force {fence or 'any'}"
            case "lock/renew", (token, lease):
                return f"lock/renew {self.name(token)} {lease}"
            case "lock/acquire", (token, _, "lock", _, _, *waits):
                return f"lock/acquire {self.name(token)}" + (self._waits(*waits) if waits else "")
            case "lock/free", (token,):
                return f"lock/free {self.name(token)}"
            case "lock/free", (token, address, kept):
                assert kept == KEPT
                return f"lock/free {self.name(token)}, line up {address}"
        raise AssertionError(command)

    def _waits(self, handed: str, address: str, arrival: int, more: int, kept: int) -> str:
        assert kept == KEPT
        parts = [f" at {address}" * bool(address) + f" since {arrival}" * bool(arrival)]
        parts += ["more"] * more + ([f"handed {self.name(handed)}"] if handed else [])
        return ", ".join(parts)


def _with(pause: float | None, standing: Standing | None) -> str:
    parts = [""] if pause is None else ["", f"pause {pause:g}"]
    if standing is not None:
        since = f"since {standing.arrival}" if standing.arrival else "nowhere"
        parts.append(since + " with others" * standing.others)
    return ", ".join(parts)


def play(program: Program[Any], story: list[tuple[str, Any]]) -> Any:
    """Step a program through a story and return its result; what it raises at the end is raised."""
    teller = Teller()
    rest = iter(story)
    with pytest.MonkeyPatch.context() as patch:
        try:
            effect = program.send(None)
            while True:
                line, told = next(rest, ("(the end)", None))
                asked = teller.line(effect)
                assert asked == line, f"it asks for {asked!r}, not for {line!r}"
                time = told.time if isinstance(told, at) else told if line == "now" else None
                if isinstance(time, float):
                    patch.setattr(clock, "now", lambda time=time: time)
                reply = told.reply if isinstance(told, at) else told
                effect = program.throw(reply) if isinstance(reply, BaseException) else program.send(reply)
        except StopIteration as done:
            assert list(rest) == [], "the program ended before the story"
            return done.value
        except AssertionError:
            with suppress(RuntimeError):  # unwinding it may ask for more
                program.close()
            raise
        except BaseException:
            assert list(rest) == [], "the program ended before the story"
            raise

"""Programs stepped by hand: a story is a list of what a program asks for, and what it is told.

    outcome = play(lock.acquiring(ask), [("now", 100.0), ("lock/acquire A", Granted(7)), ("now", 100.1)])

Each line must be what the program asks for next. Tokens are called A, B, ... in the order in which they appear. What
the program is told may be an exception, which is thrown in. The engine's clock shows what ``now`` was last told, and
``at(111, reply)`` is a reply that comes at that time.
"""

from __future__ import annotations

import string
from dataclasses import dataclass
from typing import Any

import pytest

from django_redis_locks import Lock
from django_redis_locks.core import clock
from django_redis_locks.core.effects import (
    Command,
    Effect,
    Join,
    Leave,
    Now,
    Pause,
    Place,
    Program,
    Sweep,
    Unwatch,
    Wait,
    Wake,
    Watch,
)
from django_redis_locks.primitives.programs import Terms

PLACE = Place("store", "lock:{0}:k:order:42")


def a_lock(world: Any = None, *, reentrant: bool = False, **terms: Any) -> Lock:
    """A lock with a lease of ten seconds and a wait of three."""
    usual = {"lease": 10_000, "wait": 3.0, "renew_for": 0.0, "fail_open": False, "index": True, "metadata": ()}
    keys = PLACE.lock, "lock:{0}:fence", "lock:{0}:index"
    return Lock(
        world, PLACE, keys, "order:42", "order", "default", Terms(**{**usual, "on_lost": None, **terms}), reentrant
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
            case Wait(_, until, pause):
                return f"wait until {until:g}" + _with(pause)
            case Leave(_, pause):
                return "leave" + _with(pause)
            case Pause(seconds):
                return f"pause {seconds:g}"
            case Now() | Join() | Wake():
                return type(effect).__name__.lower()
        raise AssertionError(effect)

    def _command(self, command: Command[Any]) -> str:
        match command.name, command.args:
            case "lock/inspect", _:
                return "lock/inspect"
            case "lock/force", (fence,):
                return f"lock/force {fence or 'any'}"
            case "lock/renew", (token, lease):
                return f"lock/renew {self.name(token)} {lease}"
            case name, (token, *_):
                return f"{name} {self.name(token)}"
        raise AssertionError(command)


def _with(pause: float | None) -> str:
    return "" if pause is None else f", pause {pause:g}"


def play(program: Program[Any], story: list[tuple[str, Any]]) -> Any:
    """Step a program through a story and return its result; what it raises at the end is raised."""
    teller = Teller()
    rest = iter(story)
    with pytest.MonkeyPatch.context() as patch:
        try:
            effect = program.send(None)
            while True:
                line, told = next(rest, ("(the end)", None))
                assert teller.line(effect) == line
                time = told.time if isinstance(told, at) else told if line == "now" else None
                if isinstance(time, float):
                    patch.setattr(clock, "now", lambda time=time: time)
                reply = told.reply if isinstance(told, at) else told
                effect = program.throw(reply) if isinstance(reply, BaseException) else program.send(reply)
        except StopIteration as done:
            assert list(rest) == [], "the program ended before the story"
            return done.value
        except AssertionError:
            raise
        except BaseException:
            assert list(rest) == [], "the program ended before the story"
            raise

"""Programs stepped by hand: a story is a list of what is asked of the world, and what it replies.

    outcome = acquire(a_lock(), 3, "100: wait 103 = turn; 100.5: acquire A at inbox 0 = granted @100.75; leave, pause 2")

Each step must be what is asked for next: by the program, and by the clearing up if it fails. Tokens are called A, B, ...
in the order in which they appear. A reply is a number, or the name of one of `replies()` or of an argument; an exception
is raised, and without a reply it is None. ``100:`` is what the engine's clock shows from the reply before it on, and
``@100.75`` the time at which a reply comes.

``acquire A at inbox:i 0 since 5, more, handed B`` is the question of a queue that is to be registered under that
address, since it lined up at 5, with others behind the one who asks and the lock handed over under token B. What the
answer said of the line is passed to the queue: ``nowhere``, or ``since 5``, and ``with others``.
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from django_redis_locks import Grant, Lock, LockBackendError
from django_redis_locks.core import clock, owners
from django_redis_locks.core.effects import (
    Command,
    Effect,
    Freed,
    Handlers,
    HandOver,
    Leave,
    LineUp,
    Listen,
    Pause,
    Place,
    Program,
    Seat,
    Standing,
    Sweep,
    Turn,
    Wait,
)
from django_redis_locks.core.hold import Hold
from django_redis_locks.core.keys import Spelling
from django_redis_locks.core.runner import run
from django_redis_locks.core.tuning import DEFAULT
from django_redis_locks.primitives.wishes import Ask, Busy, Granted, Terms

KEYS = Spelling("lock").of("order:42")
PLACE = Place("store", KEYS.lock)
KEPT = 4000
"""Milliseconds for which a waiter stays in line that isn't heard of: twice the cap."""


@dataclass
class Watch(Effect[None]):
    """The world is told of a hold that is to be renewed. In a story that is a line like an effect's."""

    hold: Hold
    prolong: Callable[[str, int], Command[bool]]
    lease: int


@dataclass
class Unwatch(Effect[None]):
    hold: Hold


Story = list[tuple[str, Any]]
"""Lines and their replies. ``("now", 100.0)`` sets the clock."""


def replies() -> dict[str, Any]:
    """What the world may reply, by its name in a story; made at each call, since a raised error changes."""
    return {
        "granted": Granted(7),
        "busy": Busy(5.0, None, Standing(7)),
        "turn": Turn("inbox 0"),
        "again": Turn("inbox 0", 7),
        "deaf": Turn(),
        "lost": lost_answer(),
        "stale": lost_answer(stale=True),
        "down": LockBackendError("can't connect", passing=True),
        "interrupt": KeyboardInterrupt(),
        "yes": True,
        "no": False,
    }


def lost_answer(**about: Any) -> LockBackendError:
    return LockBackendError("no answer", unanswered=True, passing=True, **about)


STEP = re.compile(r"(?:([\d.]+): ?)?(.*?)(?: = (\w+))?(?: @([\d.]+))?")


@dataclass
class Late:
    reply: Any
    time: float


def story(text: str, **own: Any) -> Story:
    """Reads a story; ``own`` are replies of the test."""
    known, steps = replies() | own, Story()
    for step in filter(None, text.split("; ")):
        match = STEP.fullmatch(step)
        assert match, step
        now, line, name, late = match.groups()
        if now:
            steps.append(("now", float(now)))
        if line:
            reply = None if name is None else known[name] if name in known else int(name)
            steps.append((line, Late(reply, float(late)) if late else reply))
    return steps


def interrupted(steps: Story, number: int, error: BaseException, cleared: str) -> Story:
    """A story in which an error strikes at an effect, counted from 0, and what is cleared away then."""
    last = [place for place, (line, _) in enumerate(steps) if line != "now"][number]
    return [*steps[:last], (steps[last][0], error), *story(cleared)]


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
                command = prolong(hold.token, hold.lease)
                assert command.args[:2] == (hold.lease, hold.token)
                told = f", telling of {command.args[2]}" if command.name == "lock/tell" else ""
                return f"watch {self.name(hold.token)}{told}"
            case Unwatch(hold):
                return f"unwatch {self.name(hold.token)}"
            case Pause(seconds):
                return f"pause {seconds:g}"
        return self._waiting(effect)

    def _waiting(self, effect: Effect[Any]) -> str:
        match effect:
            case Wait(_, until, pause, standing):
                return f"wait {until:g}" + _with(pause, standing)
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
                return "inspect"
            case "lock/force", (fence,):
                return f"force {fence or 'any'}"
            case "lock/renew", (lease, token):
                return f"renew {self.name(token)} {lease}"
            case "lock/acquire", (token, _, _, *waits):
                return f"acquire {self.name(token)}" + (self._waits(*waits) if waits else "")
            case "lock/free", (token,):
                return f"free {self.name(token)}"
            case "lock/free", (token, address, kept):
                assert kept == KEPT
                return f"free {self.name(token)}, line up {address}"
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


THE_END: tuple[str, Any] = ("(the end)", None)


class Telling(Mapping[type[Effect[Any]], Callable[[Any], Any]]):
    """The handlers of a world in which a story is told."""

    def __init__(self, story: Story, patch: pytest.MonkeyPatch) -> None:
        self._lines = iter(story)
        self._patch = patch
        self._teller = Teller()
        self._wrong = ""
        self._turn_page(None)

    def __getitem__(self, kind: type[Effect[Any]]) -> Callable[[Any], Any]:
        return self._perform

    def __iter__(self) -> Iterator[type[Effect[Any]]]:
        raise NotImplementedError

    def __len__(self) -> int:
        raise NotImplementedError

    def _turn_page(self, time: float | None) -> None:
        """The clock then shows what it was last told."""
        line, reply = next(self._lines, THE_END)
        while line == "now":
            time = reply
            line, reply = next(self._lines, THE_END)
        self._line, self._reply = line, reply
        if time is not None:
            self._patch.setattr(clock, "now", lambda: time)

    def _perform(self, effect: Effect[Any]) -> Any:
        asked = self._teller.line(effect)
        if asked != self._line:
            self._wrong = self._wrong or f"it asks for {asked!r}, not for {self._line!r}"
        if self._wrong:  # what unwinds because of that isn't judged
            raise AssertionError(self._wrong)
        late = isinstance(self._reply, Late)
        reply, time = (self._reply.reply, self._reply.time) if late else (self._reply, None)
        self._turn_page(time)
        if isinstance(reply, BaseException):
            raise reply
        return reply

    def end(self) -> None:
        assert not self._wrong, self._wrong
        assert self._line == THE_END[0], f"it ended before the story: {self._line!r}"


class World:
    """Knows the story that is told just now. Somebody else waits in this process, unless a test says otherwise."""

    def __init__(self) -> None:
        self.queued: Callable[[Place], bool] = lambda place: True
        self.calm: Callable[[Seat], bool] = lambda seat: False
        self.cool: Callable[[Seat], bool] = lambda seat: True
        self.tuning = DEFAULT
        self.handlers: Handlers = {}
        self.ahandlers: Handlers = {}

    def watch(self, hold: Hold, prolong: Callable[[str, int], Command[bool]], lease: int) -> None:
        self.handlers[Watch](Watch(hold, prolong, lease))

    def unwatch(self, hold: Hold) -> None:
        self.handlers[Unwatch](Unwatch(hold))

    @contextmanager
    def telling(self, story: Story) -> Iterator[None]:
        before = self.handlers
        with pytest.MonkeyPatch.context() as patch:
            telling = self.handlers = Telling(story, patch)
            try:
                yield
            finally:
                self.handlers = before
                telling.end()


WORLD = World()


def a_lock(world: Any = None, *, reentrant: bool = False, **terms: Any) -> Lock:
    """A lock with a lease of ten seconds and a wait of three; without a world of its own it asks the one of the stories."""
    usual = {"lease": 10_000, "wait": 3.0, "renew_for": 0.0, "fail_open": False, "index": True, "metadata": ()}
    return Lock(
        world or WORLD,
        PLACE,
        KEYS,
        "order:42",
        "order",
        "default",
        Terms(**{**usual, "on_lost": None, **terms}),
        reentrant,
    )


def ask(wait: float = 3.0) -> Ask:
    return Ask(wait, owners.me(), None)


def play(program: Program[Any], text: str | Story, **own: Any) -> Any:
    """Run a program through a story and return its result; what it raises at the end is raised."""
    with WORLD.telling(story(text, **own) if isinstance(text, str) else text):
        return run(program, WORLD)


def acquire(lock: Lock, wish: Ask | float, text: str | Story, **own: Any) -> Any:
    """As a caller of acquire: if it fails, what it may leave behind is cleared away within the story."""
    wish = wish if isinstance(wish, Ask) else ask(wish)
    with WORLD.telling(story(text, **own) if isinstance(text, str) else text):
        try:
            return run(lock.acquiring(wish), WORLD)
        except BaseException as failure:  # noqa: BLE001 - raised again
            return lock._failed(wish, failure)


def release(lock: Lock, hold: Hold, text: str, **own: Any) -> bool:
    """As a caller that releases the last grant of a hold: if it fails, the janitor brings it to its end."""
    with WORLD.telling(story(text, **own)):
        try:
            return run(lock.releasing(hold, None), WORLD)
        except BaseException as failure:
            lock._not_released(Grant(hold, lock, 0), failure)
            raise

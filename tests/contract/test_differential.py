"""The memory backend is the specification of every command, so Redis must give its answers.

A random sequence of commands, with replays as late copies of a request would make them, drives both; every answer is
compared after it is parsed. ``DIFFERENTIAL_SEED=…`` repeats a run.
"""

from __future__ import annotations

import dataclasses
import os
import random
from typing import Any

import redis

from django_redis_locks import Holder, Lock, locks
from django_redis_locks.core import holder as holders
from django_redis_locks.core import owners
from django_redis_locks.core.effects import Command
from django_redis_locks.primitives.lock import read_verdict
from django_redis_locks.primitives.programs import Ask, Busy, Foreign, Granted

STEPS = 10_000
NEAR = 0.5
"""Seconds by which two backends may differ about a time: they aren't asked in the same moment."""


class Side:
    """One backend, and the fences it gave, which only their order makes comparable."""

    def __init__(self, alias: str) -> None:
        self.backend = locks[alias].engine.backend
        self.backend.close()  # another test may have killed what lies idle, and nobody tries again here
        self.fences: list[int] = []
        self.ranks: dict[int, int] = {}

    def ask(self, command: Command[Any]) -> Any:
        return self.comparable(command.parse(self.backend.call(command)))

    def comparable(self, answer: Any) -> Any:
        if isinstance(answer, Granted):
            return Granted(self.rank(answer.fence))
        if isinstance(answer, Busy):
            assert answer.holder is not None
            return Busy(answer.lease_left, self.comparable(answer.holder))
        if isinstance(answer, Holder):
            return dataclasses.replace(answer, fence=self.rank(answer.fence))
        return answer

    def rank(self, fence: int) -> int:
        """The how manieth hold this is; a fence that wasn't seen yet is larger than all."""
        if fence not in self.ranks:
            assert fence > max(self.fences[-1:], default=0), "the fence fell"
            self.ranks[fence] = len(self.fences)
            self.fences.append(fence)
        return self.ranks[fence]


class Story:
    """Random commands over a few keys and tokens."""

    def __init__(self, chance: random.Random, ours: Side, theirs: Side) -> None:
        self.chance = chance
        self.sides = ours, theirs
        self.locks = [locks["memory"].lock(key) for key in ("a", "b:{1}", "ключ", "x" * 300)]
        self.tokens = ["first", "second", "third"]
        self.sent: list[tuple[Command[Any], Command[Any]]] = []

    def next(self) -> tuple[Command[Any], Command[Any]]:
        """A command for each side; they differ only in a fence that is named."""
        if self.sent and self.chance.random() < 0.15:
            return self.chance.choice(self.sent[-20:])
        lock = self.chance.choice(self.locks)
        command = self.chance.choices((self.acquire, self.free, self.renew, self.inspect, self.force), (4, 2, 2, 2, 1))[
            0
        ]
        commands = command(lock)
        self.sent.append(commands)
        return commands

    def acquire(self, lock: Lock) -> tuple[Command[Any], Command[Any]]:
        ask = Ask(0, owners.me(), None)
        ask.token = self.token()
        command = lock._try(ask)
        token, _, kind, _, index = command.args
        about = self.chance.choice(["", "nonsense", holders.describe("thread", "näme", holders.FIELDS)])
        if self.chance.random() < 0.05:
            kind = "another"
        return self.both(dataclasses.replace(command, args=(token, self.lease(), kind, about, index)))

    def free(self, lock: Lock) -> tuple[Command[Any], Command[Any]]:
        return self.both(lock._free(self.token()))

    def renew(self, lock: Lock) -> tuple[Command[Any], Command[Any]]:
        return self.both(lock._prolong(self.token(), self.chance.choice([1, self.lease()])))

    def inspect(self, lock: Lock) -> tuple[Command[Any], Command[Any]]:
        return self.both(dataclasses.replace(lock._inspect(), parse=_parse_holder))

    def force(self, lock: Lock) -> tuple[Command[Any], Command[Any]]:
        given = len(self.sides[0].fences)
        if not given or self.chance.random() < 0.3:
            return self.both(lock._force(None))
        rank = self.chance.randrange(max(0, given - 8), given)
        ours, theirs = (lock._force(side.fences[rank]) for side in self.sides)
        return ours, theirs

    def both(self, command: Command[Any]) -> tuple[Command[Any], Command[Any]]:
        return command, command

    def token(self) -> str:
        return self.chance.choice(self.tokens)

    def lease(self) -> int:
        return self.chance.choice([30_000, 60_000, 60_000, 60_000, 600_000])


def _parse_holder(reply: list[Any]) -> Granted | Busy | Foreign | None:
    """As the lock does, but a stranger under the key is an answer and no error."""
    return read_verdict(reply) if reply else None


def alike(ours: Any, theirs: Any) -> bool:
    """Equal, but for times, which are near each other."""
    if type(ours) is not type(theirs):
        return False
    if isinstance(ours, Busy):
        return abs(ours.lease_left - theirs.lease_left) < NEAR and alike(ours.holder, theirs.holder)
    if isinstance(ours, Holder):
        times = "since", "lease_left"
        return all(abs(getattr(ours, time) - getattr(theirs, time)) < NEAR for time in times) and all(
            getattr(ours, field.name) == getattr(theirs, field.name)
            for field in dataclasses.fields(Holder)
            if field.name not in times
        )
    return bool(ours == theirs)


def test_redis_gives_the_answers_of_the_specification(redis_url: str, settings: Any) -> None:
    """[H2] [L12] Ten thousand random steps, replays and sudden ends of leases included, get the same answers."""
    seed = int(os.environ.get("DIFFERENTIAL_SEED") or random.SystemRandom().randrange(2**32))
    settings.REDIS_LOCKS = {
        "memory": {"BACKEND": "django_redis_locks.backends.memory.MemoryBackend", "LOCATION": f"differential {seed}"},
        "redis": {"LOCATION": redis_url},
    }
    ours, theirs = Side("memory"), Side("redis")
    story = Story(random.Random(seed), ours, theirs)
    seen: set[Any] = set()
    with redis.Redis.from_url(redis_url) as direct:
        for step in range(STEPS):
            if story.chance.random() < 0.05:  # a lease ends
                key = story.chance.choice(story.locks).keys[0]
                ours.backend._store.records.pop(key, None)
                direct.pexpire(key, 0)
                continue
            mine, other = story.next()
            answers = ours.ask(mine), theirs.ask(other)
            told = f"step {step}, {mine}: {answers}; repeat it with DIFFERENTIAL_SEED={seed}"
            assert alike(*answers), told
            seen.add((mine.name, answers[0] if isinstance(answers[0], bool) else type(answers[0])))
    assert seen == {
        ("lock/acquire", Granted),
        ("lock/acquire", Busy),
        ("lock/acquire", Foreign),
        ("lock/free", True),
        ("lock/free", False),
        ("lock/renew", True),
        ("lock/renew", False),
        ("lock/inspect", type(None)),
        ("lock/inspect", Busy),
        ("lock/inspect", Foreign),
        ("lock/force", True),
        ("lock/force", False),
    }, f"a kind of answer never came; DIFFERENTIAL_SEED={seed}"

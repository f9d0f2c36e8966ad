"""The memory backend is the specification of every command, so Redis must give its answers.

A random sequence of commands, with replays as late copies of a request would make them, drives both; every answer is
compared after it is parsed, and so is what the inboxes are told. ``DIFFERENTIAL_SEED=…`` repeats a run.
"""

from __future__ import annotations

import dataclasses
import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import redis

from django_redis_locks import Holder, Lock, LockKeyError, locks
from django_redis_locks.core import holder as holders
from django_redis_locks.core import owners
from django_redis_locks.core.effects import Command, Handed, Standing, Turn
from django_redis_locks.core.keys import waiters_of
from django_redis_locks.primitives.lock import read_verdict
from django_redis_locks.primitives.record import Record, RecordRef
from django_redis_locks.primitives.wishes import Ask, Busy, Foreign, Granted
from tests.contract.matrix import PATIENCE

STEPS = 10_000
NEAR = 10.0
"""Seconds by which two backends may differ about a time: they aren't asked in the same moment."""

INBOXES = [f"lock:{{0}}:inbox:{name}" for name in ("one", "two", "three", "dead")]
"""The names of inboxes; nobody hears the last one."""

KEPT = 600_000
"""Longer than the test: memory keeps a line for ever."""

TOKENS = ["first", "second", "third"]
"""Tokens of holds and nonces of records, which must not be taken for each other."""

FIELDS = ["{}", '{"state":"näme"}']

Pair = tuple[Command[Any], Command[Any]]


class Side:
    """One backend, and the fences it gave, which only their order makes comparable."""

    def __init__(self, alias: str) -> None:
        self.backend = locks[alias].engine.backend
        self.backend.close()  # another test may have killed what lies idle, and nobody tries again here
        self.fences: list[int] = []
        self.ranks: dict[int, int] = {}

    def ask(self, command: Command[Any]) -> Any:
        try:
            return self.comparable(command.parse(self.backend.call(command)))
        except LockKeyError as found:
            return str(found)

    def comparable(self, answer: Any) -> Any:
        match answer:
            case Granted(fence, free, standing):
                return Granted(self.rank(fence), free, standing)
            case Busy(lease_left, holder, standing):
                return Busy(lease_left, self.comparable(holder), standing)
            case Holder(fence=fence):
                return dataclasses.replace(answer, fence=self.rank(fence))
            case Record(version, fields, lease_left):
                return Record(self.rank(version), fields, lease_left)
            case (_, Record() as record, _):
                return answer._replace(record=self.comparable(record))
        return answer

    def rank(self, fence: int) -> int:
        """The how manieth hold or version this is; a fence that wasn't seen yet is larger than all."""
        if fence not in self.ranks:
            assert fence > max(self.fences[-1:], default=0), "the fence fell"
            self.ranks[fence] = len(self.fences)
            self.fences.append(fence)
        return self.ranks[fence]


class Story:
    """Random commands over a few keys, tokens and inboxes."""

    def __init__(self, chance: random.Random, *sides: Side) -> None:
        self.chance = chance
        self.sides = sides
        keys = "a", "b:{1}", "ключ", "x" * 300
        self.locks = [locks["memory"].lock(key) for key in keys]
        self.records = [locks["memory"].record(key) for key in keys]
        self.sent: list[Pair] = []
        self.latest: dict[str, int] = {}
        """By key, which fence was told last."""

    def hear(self, key: str, answer: Any) -> None:
        match answer:
            case Granted(rank) | Busy(holder=Holder(fence=rank)) | (_, Record(version=rank), _):
                self.latest[key] = rank

    def next(self) -> Pair:
        """A command for each side; they differ only in a fence that is named."""
        if self.sent and self.chance.random() < 0.15:
            return self.chance.choice(self.sent[-20:])
        number = self.chance.randrange(len(self.locks))
        lock, record = self.locks[number], self.records[number]
        steps: dict[Callable[[], Pair], int] = {
            lambda: self.acquire(lock): 10,
            lambda: self.free(lock): 4,
            lambda: self.both(lock._prolong(self.token(), self.chance.choice([1, self.lease()]))): 3,
            lambda: self.both(dataclasses.replace(lock._inspect(), parse=_parse_holder)): 3,
            lambda: self.force(lock): 2,
            lambda: self.leave(lock): 2,
            lambda: self.get(record): 4,
            lambda: self.put(record): 3,
            lambda: self.touch(record): 5,
            lambda: self.drop(record): 3,
        }
        commands = self.chance.choices(list(steps), list(steps.values()))[0]()
        self.sent.append(commands)
        return commands

    def acquire(self, lock: Lock) -> Pair:
        ask = Ask(0, owners.me(), None)
        ask.token = self.token()
        turn = Turn()
        if self.chance.random() < 0.7:
            hold: Any = SimpleNamespace(token=self.token())
            handed = Handed(hold, lock._free, lambda: None) if self.chance.random() < 0.4 else None
            turn = Turn(self.address(), self.arrival(), self.maybe(), handed)
        command = lock._question(ask, turn)
        token, _, _, *waits = command.args
        about = self.chance.choice(["", "nonsense", holders.describe(1, "thread", "näme", holders.FIELDS)])
        args = (token, self.lease(), about, *waits[:4], *([KEPT] if waits else []))
        return self.both(dataclasses.replace(command, args=args))

    def free(self, lock: Lock) -> Pair:
        address = self.address() if self.chance.random() < 0.3 else ""
        command = lock._free(self.token(), address)
        args = (*command.args[:2], KEPT) if address else command.args
        return self.both(dataclasses.replace(command, args=args))

    def force(self, lock: Lock) -> Pair:
        fences = self.fences(lock.keys.lock)
        ours, theirs = (lock._force(fence or None) for fence in fences)
        return ours, theirs

    def leave(self, lock: Lock) -> Pair:
        place = lock.place.lock
        return self.both(Command("queue/leave", (place, waiters_of(place)), (self.address(),), int))

    def get(self, record: RecordRef) -> Pair:
        if self.maybe():
            return self.both(record._get())
        address, arrival, more = self.address(), self.arrival(), self.maybe()
        ours, theirs = (record._get(fence, Turn(address, arrival, more)) for fence in self.fences(record.keys.lock))
        return self.kept(ours), self.kept(theirs)

    def put(self, record: RecordRef) -> Pair:
        command = record._write(None, {}, None, renew=False).command
        rest = self.nonce(), self.lease(), self.chance.choice(FIELDS)
        ours, theirs = (dataclasses.replace(command, args=(fence, *rest)) for fence in self.fences(record.keys.lock))
        return ours, theirs

    def touch(self, record: RecordRef) -> Pair:
        keys, rest = record._touched, (self.lease(), int(self.maybe()))
        ours, theirs = (
            Command("record/touch", keys, (fence, *rest), record._read) for fence in self.fences(record.keys.lock)
        )
        return ours, theirs

    def drop(self, record: RecordRef) -> Pair:
        nonce = self.chance.choice(["", self.nonce()])
        ours, theirs = (record._drop(fence, nonce, record._read) for fence in self.fences(record.keys.lock))
        return ours, theirs

    def both(self, command: Command[Any]) -> Pair:
        return command, command

    def kept(self, command: Command[Any]) -> Command[Any]:
        return dataclasses.replace(command, args=(*command.args[:-1], KEPT))

    def nonce(self) -> str:
        """Of a record that is listed, or not."""
        return self.token() + self.chance.choice(["", "", ".held", ".queued"])

    def token(self) -> str:
        return self.chance.choice(TOKENS)

    def lease(self) -> int:
        return self.chance.choice([30_000, 60_000, 60_000, 60_000, 600_000])

    def maybe(self) -> bool:
        return self.chance.random() < 0.5

    def address(self) -> str:
        """Where to be told; or nowhere."""
        inbox = self.chance.choice(["", *INBOXES])
        return f"{inbox} {self.chance.choice(['0', '7f3a'])}" if inbox else ""

    def arrival(self) -> int:
        """Now; or a moment long ago, which others may share."""
        return self.chance.choice([0, 0, 1, 2, 1_700_000_000_000_001])

    def fences(self, key: str) -> tuple[int, ...]:
        """The same hold or version on both sides, the last one of a key or an older one; or none."""
        given = len(self.sides[0].fences)
        if not given or self.chance.random() < 0.3:
            return tuple(0 for _ in self.sides)
        rank = self.latest.get(key, 0) if self.maybe() else self.chance.randrange(max(0, given - 4), given)
        return tuple(side.fences[rank] for side in self.sides)


def _parse_holder(reply: list[Any]) -> Granted | Busy | Foreign | None:
    """As the lock does, but a stranger under the key is an answer and no error."""
    return read_verdict([*reply, 0, 0] if len(reply) == 5 else reply) if reply else None


def alike(ours: Any, theirs: Any) -> bool:
    """Equal, but for times, which are near each other."""
    if type(ours) is not type(theirs):
        return False
    if isinstance(ours, Standing):
        return near(ours.arrival / 1e6, theirs.arrival / 1e6) and ours.others == theirs.others
    if isinstance(ours, tuple):
        return len(ours) == len(theirs) and all(map(alike, ours, theirs))
    if dataclasses.is_dataclass(ours):
        return all(alike(getattr(ours, field.name), getattr(theirs, field.name)) for field in dataclasses.fields(ours))
    return near(ours, theirs) if isinstance(ours, float) else bool(ours == theirs)


def near(ours: float, theirs: float) -> bool:
    return abs(ours - theirs) < NEAR and bool(ours) == bool(theirs)


def kind_of(name: str, answer: Any) -> tuple[Any, ...]:
    """What kind of answer it is, so that the test can tell that all of them came."""
    match answer:
        case Granted(_, free, standing):
            return name, "granted", free, bool(standing.arrival), standing.others
        case Busy(standing=standing) if name == "lock/acquire":
            return name, "busy", bool(standing.arrival), standing.others
        case (ok, record, standing):
            return name, ok, record is not None, bool(standing.arrival)
    return name, answer if isinstance(answer, int) else type(answer).__name__


BOOLEANS = False, True
KINDS = {
    *(
        ("lock/acquire", "granted", free, since, others)
        for free in BOOLEANS
        for since in BOOLEANS
        for others in BOOLEANS
    ),
    *(("lock/acquire", "busy", since, others) for since in BOOLEANS for others in BOOLEANS),
    ("lock/acquire", "Foreign"),
    *((name, answer) for name in ("lock/free", "lock/force") for answer in (0, 1, 2)),
    *(("lock/renew", answer) for answer in BOOLEANS),
    *(("lock/inspect", kind) for kind in ("NoneType", "Busy", "Foreign")),
    *(("queue/leave", answer) for answer in (0, 2)),
    *(("record/get", False, there, since) for there in BOOLEANS for since in BOOLEANS),
    *((f"record/{step}", False, there, False) for step in ("put", "touch", "drop") for there in BOOLEANS),
    *((f"record/{step}", True, True, False) for step in ("put", "touch")),
    ("record/drop", True, False, False),
    *((f"record/{step}", "str") for step in ("get", "put", "touch", "drop")),
}
"""Every kind of answer that a command can give."""


@contextmanager
def listening(direct: redis.Redis) -> Iterator[Callable[[], list[str]]]:
    """Inboxes in Redis; called, it returns what they were told since the last call."""
    with direct.pubsub(ignore_subscribe_messages=True) as inbox:
        inbox.subscribe(*INBOXES[:-1], "the end")
        for _ in range(len(INBOXES)):
            inbox.get_message(timeout=PATIENCE)

        def told() -> list[str]:
            direct.publish("the end", "")
            messages = []
            while (message := inbox.get_message(timeout=PATIENCE)) is not None and message["channel"] != b"the end":
                messages.append(f"{message['channel'].decode()} {message['data'].decode()}")
            return messages

        yield told


def test_redis_gives_the_answers_of_the_specification(redis_url: str, settings: Any) -> None:
    """[H2] [H3] [H9] [H19] [L12] Ten thousand random steps, replays and sudden ends of leases included, get the same
    answers, tell the same inboxes the same, and list the same."""
    seed = int(os.environ.get("DIFFERENTIAL_SEED") or random.SystemRandom().randrange(2**32))
    settings.REDIS_LOCKS = {
        "memory": {"BACKEND": "django_redis_locks.backends.memory.MemoryBackend", "LOCATION": f"differential {seed}"},
        "redis": {"LOCATION": redis_url},
    }
    ours, theirs = Side("memory"), Side("redis")
    told: list[str] = []
    for inbox in INBOXES[:-1]:
        ours.backend._store.inboxes[inbox] = lambda number, lock, inbox=inbox: told.append(f"{inbox} {number} {lock}")
    story = Story(random.Random(seed), ours, theirs)
    seen: set[Any] = set()
    messages = 0
    indexes = story.records[0]._indexes
    with redis.Redis.from_url(redis_url) as direct, listening(direct) as told_there:
        for step in range(STEPS):
            if story.chance.random() < 0.05:  # a lease ends
                key = story.chance.choice(story.locks).keys.lock
                ours.backend._store.records.pop(key, None)
                direct.pexpire(key, 0)
                continue
            mine, other = story.next()
            answers = ours.ask(mine), theirs.ask(other)
            about = f"step {step}, {mine}: {answers}; repeat it with DIFFERENTIAL_SEED={seed}"
            assert alike(*answers), about
            story.hear(mine.keys[0], answers[0])
            seen.add(kind_of(mine.name, answers[0]))
            if step % 100 == 0 or step == STEPS - 1:
                assert told == told_there(), about
                messages += len(told)
                told.clear()
                for index in indexes:
                    listed = {lock.decode() for lock in direct.zrange(index, 0, -1)}
                    assert set(ours.backend._store.listings.get(index, {})) == listed, about
    assert seen == KINDS, f"not seen: {KINDS - seen}, new: {seen - KINDS}; DIFFERENTIAL_SEED={seed}"
    assert messages > 100

"""Random commands of locks and records, to compare the replies of two backends."""

from __future__ import annotations

import dataclasses
import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, NamedTuple

from django_redis_locks import Holder, Latch, Lock, LockKeyError, Record, RecordRef, locks
from django_redis_locks.core import clock, owners
from django_redis_locks.core import holder as holder_module
from django_redis_locks.core.commands import Command
from django_redis_locks.core.queue_entry import Entry
from django_redis_locks.core.queue_values import Attempt, HandedOverLock, QueuePosition
from django_redis_locks.core.steps import STEPS
from django_redis_locks.core.steps.latches import CountDown, SetLatch
from django_redis_locks.core.steps.locks import AcquireFair, FairWaiter, UnexpectedGrant, UnregisterWaiter
from django_redis_locks.core.steps.multi import AcquireLocks, MemberRequest
from django_redis_locks.core.steps.records import PutRecord, TouchRecord
from django_redis_locks.primitives.shared.latch_commands import LatchReply
from django_redis_locks.primitives.shared.multi_steps import Refused, acquire_all, release_all
from django_redis_locks.primitives.shared.mutex_steps import parse_acquire
from django_redis_locks.primitives.shared.requests import Busy, ForeignValue, Granted

NEAR = 10.0
"""Seconds by which times of two backends may differ, since they don't get a command at the same moment."""

INBOXES = [f"lock:{{0}}:inbox:{name}" for name in ("one", "two", "three", "dead")]
BROADCAST = "lock:{0}:inbox:all"
"""The channels of processes; none subscribes to the last one."""

WAIT_QUEUE_TTL = 600_000
"""In milliseconds, longer than the test: in memory, wait queues don't expire."""

TOKENS = ["first", "second", "third"]
"""Tokens of holds and nonces of records, which the store must not confuse."""

FIELDS = ["{}", '{"state":"näme"}']

Pair = tuple[Command[Any], Command[Any]]


class AllGranted(NamedTuple):
    """The fences of several locks."""

    fences: tuple[int, ...]


class Released(NamedTuple):
    """The replies for several locks."""

    replies: tuple[int, ...]


@dataclass
class BusyReply:
    """A ``Busy`` whose holder is parsed."""

    lease_left: float
    holder: Any
    position: QueuePosition


class Side:
    """One backend, with the fences of its replies: only their order is comparable."""

    def __init__(self, alias: str) -> None:
        self.backend = locks[alias].engine.backend
        self.backend.close()  # another test may have closed idle connections, and these commands aren't repeated
        self.fences: list[int] = []
        self.ranks: dict[int, int] = {}
        self.generations: dict[str, int] = {}
        """The last generation in a reply, by the key of the latch."""

    def execute(self, command: Command[Any]) -> Any:
        try:
            reply = command.parse(self.backend.call(command))
            if isinstance(reply, LatchReply):
                self.generations[command.keys[0]] = reply.generation
            return self.comparable(reply)
        except LockKeyError as found:
            return str(found)

    def subscribe(self, inbox: str, callback: Callable[..., object]) -> None:
        """Subscribe to a memory store."""
        self.backend._store.inboxes[inbox] = callback

    def fence_of(self, key: str) -> int:
        """The fence of a lock in a memory store."""
        return int(self.backend._store.records[key].fence)

    def end_lease(self, key: str) -> None:
        """End a lease in a memory store."""
        self.backend._store.records.pop(key, None)

    def listed(self, index: str) -> set[str]:
        """The locks in an index of a memory store."""
        return set(self.backend._store.indexes.get(index, {}))

    def comparable(self, answer: Any) -> Any:
        match answer:
            case Granted(fence, free, position):
                return Granted(self.rank(fence), free, position)
            case AllGranted(fences):
                for fence in sorted(fences):
                    self.rank(fence)
                return AllGranted(tuple(map(self.rank, fences)))
            case Refused(number, verdict):
                return Refused(number, self.comparable(verdict))
            case Busy(lease_left, _, position):
                return BusyReply(lease_left, self.comparable(answer.holder), position)
            case Holder(fence=fence):
                return dataclasses.replace(answer, fence=self.rank(fence))
            case Record(version, fields, lease_left):
                return Record(self.rank(version), fields, lease_left)
            case LatchReply(_, generation, first):  # a fence that other commands don't show
                return answer._replace(generation=bool(generation), first=first == generation)
            case (_, Record() as record, _):
                return answer._replace(record=self.comparable(record))
        return answer

    def rank(self, fence: int) -> int:
        """The ordinal number of a fence; a new fence must be larger than all earlier ones."""
        if fence not in self.ranks:
            assert fence > max(self.fences[-1:], default=0), "the fence fell"
            self.ranks[fence] = len(self.fences)
            self.fences.append(fence)
        return self.ranks[fence]


class RandomCommands:
    """Random commands over a few keys, tokens and inboxes."""

    def __init__(self, chance: random.Random, *sides: Side) -> None:
        self.chance = chance
        self.sides = sides
        keys = "a", "b:{1}", "ключ", "x" * 300
        self.locks = [locks["memory"].lock(key) for key in keys]
        self.records = [locks["memory"].record(key) for key in keys]
        self.latches = [locks["memory"].latch(key) for key in keys]
        self.sent: list[Pair] = []
        self.latest: dict[str, int] = {}
        """The rank of the last fence in a reply, by key."""

    def learn(self, key: str, answer: Any) -> None:
        match answer:
            case Granted(rank) | BusyReply(_, Holder(fence=rank)) | (_, Record(version=rank), _):
                self.latest[key] = rank

    def learn_fence(self, key: str, value: bytes | None) -> None:
        """Learn the fences of a lock that the stores have granted to a waiter, ``value`` on the second side."""
        if value is not None and value.startswith(b"1 lock "):
            ours, theirs = self.sides
            self.latest[key] = ours.rank(ours.fence_of(key))
            assert theirs.rank(int(re.match(rb"1 lock \S+ (\d+)", value)[1])) == self.latest[key]  # type: ignore[index]

    def next(self) -> Pair:
        """A command for each side; they differ only in the fence."""
        if self.sent and self.chance.random() < 0.15:
            return self.chance.choice(self.sent[-20:])
        number = self.chance.randrange(len(self.locks))
        lock, record, latch = self.locks[number], self.records[number], self.latches[number]
        steps: dict[Callable[[], Pair], int] = {
            lambda: self.acquire(lock): 10,
            lambda: self.acquire_fair(lock): 4,
            lambda: self.free(lock): 4,
            self.acquire_all: 5,
            self.release_all: 3,
            lambda: self.both(lock.spec.steps.renew(self.token(), self.chance.choice([1, self.lease()]))): 3,
            lambda: self.both(dataclasses.replace(lock.spec.steps.inspect(), parse=_parse_holder)): 3,
            lambda: self.adopt(lock): 2,
            lambda: self.transfer(lock): 2,
            lambda: self.force_release(lock): 2,
            lambda: self.unregister(lock): 2,
            lambda: self.get(record): 4,
            lambda: self.put(record): 3,
            lambda: self.touch(record): 5,
            lambda: self.drop(record): 3,
            lambda: self.set_latch(latch): 3,
            lambda: self.count_down(latch): 3,
            lambda: self.get_latch(latch): 6,
        }
        commands = self.chance.choices(list(steps), list(steps.values()))[0]()
        self.sent.append(commands)
        return commands

    def acquire(self, lock: Lock) -> Pair:
        steps, token = lock.spec.steps, self.token()
        attempt = Attempt()
        if self.chance.random() < 0.7:
            hold: Any = SimpleNamespace(token=self.token())
            handed = HandedOverLock(hold, steps.release) if self.chance.random() < 0.4 else None
            attempt = Attempt(Entry(self.address(), token), self.enqueued_at(), handed=handed)
        command = steps.acquire(token, "", attempt)
        holder_text = self.chance.choice(
            ["", "nonsense", holder_module.describe(1, "thread", "näme", holder_module.FIELDS)]
        )
        args = with_ttl(command.args._replace(lease=self.lease(), holder=holder_text), "waiter")
        return self.both(dataclasses.replace(command, args=args))

    def acquire_fair(self, lock: Lock) -> Pair:
        keys: Any = lock.keys
        address = self.address()
        waiter = FairWaiter(address, self.enqueued_at(), WAIT_QUEUE_TTL) if address else None
        args = AcquireFair(self.token(), self.lease(), self.chance.choice(["", "nonsense"]), waiter)
        keys = (keys.lock, keys.fence, keys.waiters, keys.index_key)
        return self.both(Command("lock/acquire_fair", keys, args, parse_acquire))

    def free(self, lock: Lock) -> Pair:
        address = self.address() if self.chance.random() < 0.3 else ""
        command = lock.spec.steps.release(self.token(), address)
        return self.both(dataclasses.replace(command, args=with_ttl(command.args, "next_turn")))

    def acquire_all(self) -> Pair:
        locks = self.some_locks()
        fair = self.chance.choice(range(-1, len(locks)))  # at most one: each gives a fence to a waiter
        members = tuple(
            MemberRequest(self.token(), self.lease(), int(number == fair), self.chance.choice(["", "nonsense"]))
            for number in range(len(locks))
        )
        requests: Any = [SimpleNamespace(token="", owner=owners.here.owner)] * len(locks)
        command = acquire_all([lock.spec for lock in locks], requests)

        def parse(reply: Any) -> Any:
            found = command.parse(reply)
            return found if isinstance(found, Refused) else AllGranted(found)

        return self.both(dataclasses.replace(command, args=AcquireLocks(members), parse=parse))

    def release_all(self) -> Pair:
        locks = self.some_locks()
        command: Any = release_all([lock.spec for lock in locks], [self.token() for _ in locks])
        return self.both(dataclasses.replace(command, parse=lambda reply: Released(tuple(command.parse(reply)))))

    def some_locks(self) -> list[Lock]:
        return self.chance.sample(self.locks, self.chance.randint(1, 3))

    def learn_members(self, command: Command[Any], read: Callable[[str], bytes | None]) -> None:
        """Learn the fences of the locks of a command, which it may have granted to waiters."""
        if command.name.startswith("multi/"):
            for key in command.keys[1 : (1 + len(command.keys)) // 2]:
                self.learn_fence(key, read(key))

    def adopt(self, lock: Lock) -> Pair:
        token, lease = self.token(), self.chance.choice([1, self.lease()])
        ours, theirs = (
            lock.spec.steps._adopt(token, lease, fence=fence, since=clock.now(), holder="told")
            for fence in self.fences(lock.keys.lock)
        )
        return ours, theirs

    def transfer(self, lock: Lock) -> Pair:
        token, next_token, may_shorten = self.token(), self.token(), bool(self.maybe())
        lease = self.lease() if may_shorten else self.chance.choice([1, self.lease()])
        ours, theirs = (
            dataclasses.replace(
                lock.spec.steps.transfer(token, next_token, lease, may_shorten, "on its way", fence, 0),
                parse=_parse_fence,
            )
            for fence in self.transferred_fences(lock.keys.lock)
        )
        return ours, theirs

    def transferred_fences(self, key: str) -> tuple[int, ...]:
        """The fences that a lock has already, or none: a hold doesn't change its fence."""
        rank = self.latest.get(key)
        if rank is None or self.maybe():
            return tuple(0 for _ in self.sides)
        return tuple(side.fences[rank] for side in self.sides)

    def force_release(self, lock: Lock) -> Pair:
        fences, execute = self.fences(lock.keys.lock), bool(self.maybe())
        ours, theirs = (lock.spec.steps.force_release(fence or None, execute) for fence in fences)
        return ours, theirs

    def unregister(self, lock: Lock) -> Pair:
        keys = lock.spec.steps.release_keys
        keys = keys if self.maybe() else keys[:2]
        if self.maybe():
            return self.both(Command("waiters/unregister", keys, UnregisterWaiter(self.address()), int))
        token = self.token()  # of an unexpected grant
        ours, theirs = (
            Command("waiters/unregister", keys, UnregisterWaiter("", UnexpectedGrant(token, fence)), int)
            for fence in self.fences(lock.keys.lock)
        )
        return ours, theirs

    def get(self, record: RecordRef) -> Pair:
        if self.maybe():
            return self.both(record._get_command())
        address, enqueued_at, more = self.address(), max(0, self.enqueued_at()), self.maybe()
        commands = (
            record._get_command(fence, Attempt(Entry(address), enqueued_at, more))
            for fence in self.fences(record.keys.lock)
        )
        ours, theirs = (dataclasses.replace(command, args=with_ttl(command.args, "waiter")) for command in commands)
        return ours, theirs

    def put(self, record: RecordRef) -> Pair:
        command = record._put_command(record._prepare_write(None, {}, None, renew=False))
        nonce, *rest = self.nonce(), self.lease(), self.chance.choice(FIELDS)
        ours, theirs = (
            dataclasses.replace(command, args=PutRecord(nonce, fence, *rest)) for fence in self.fences(record.keys.lock)
        )
        return ours, theirs

    def touch(self, record: RecordRef) -> Pair:
        keys, rest = record._touch_keys, (self.lease(), int(self.maybe()))
        ours, theirs = (
            Command("record/touch", keys, TouchRecord(fence, *rest), record._parse)
            for fence in self.fences(record.keys.lock)
        )
        return ours, theirs

    def drop(self, record: RecordRef) -> Pair:
        nonce = self.chance.choice(["", self.nonce()])
        ours, theirs = (record._drop_command(fence, nonce, record._parse) for fence in self.fences(record.keys.lock))
        return ours, theirs

    def set_latch(self, latch: Latch) -> Pair:
        args = SetLatch(self.request(), self.chance.choice([1, 2, 3]), self.lease(), WAIT_QUEUE_TTL)
        return self.both(dataclasses.replace(latch._set_command(1, 1), args=args))

    def count_down(self, latch: Latch) -> Pair:
        args = CountDown(self.request(), self.chance.choice(["", "", "a", "ä b", "c"]), WAIT_QUEUE_TTL)
        return self.both(dataclasses.replace(latch._count_down_command(""), args=args))

    def get_latch(self, latch: Latch) -> Pair:
        if self.maybe():
            return self.both(latch._get_command())
        attempt = Attempt(Entry(self.address()), max(0, self.enqueued_at()), self.maybe())
        older = self.chance.choice([0, 0, 1])
        commands = (
            latch._get_command(side.generations.get(latch.keys.lock, 0) - older, attempt) for side in self.sides
        )
        ours, theirs = (dataclasses.replace(command, args=with_ttl(command.args, "waiter")) for command in commands)
        return ours, theirs

    @property
    def indexes(self) -> tuple[str, ...]:
        """The keys of the indexes."""
        return tuple(self.records[0]._index_keys)

    def both(self, command: Command[Any]) -> Pair:
        return command, command

    def nonce(self) -> str:
        """A nonce of a record that is listed in an index, or not."""
        return self.token() + self.chance.choice(["", "", ".held", ".queued"])

    def request(self) -> str:
        """A nonce of a change of a latch."""
        return f"request{self.chance.randrange(10_000)}"

    def token(self) -> str:
        return self.chance.choice(TOKENS)

    def lease(self) -> int:
        return self.chance.choice([30_000, 60_000, 60_000, 60_000, 600_000])

    def maybe(self) -> bool:
        return self.chance.random() < 0.5

    def address(self) -> str:
        """An address for the wake-up, or none."""
        inbox = self.chance.choice(["", *INBOXES])
        terms = self.chance.choice(["", f" {self.token()} {self.lease()} told"])
        return f"{inbox} {self.chance.choice(['0', '7f3a'])}{terms}" if inbox else ""

    def enqueued_at(self) -> int:
        """0 for now, -1 for never, or a time long ago, possibly with ties."""
        return self.chance.choice([-1, 0, 0, 1, 2, 1_700_000_000_000_001])

    def fences(self, key: str) -> tuple[int, ...]:
        """The fences of the same hold or version on both sides, the last one of a key or an older one; or none."""
        given = len(self.sides[0].fences)
        if not given or self.chance.random() < 0.3:
            return tuple(0 for _ in self.sides)
        rank = self.latest.get(key, 0) if self.maybe() else self.chance.randrange(max(0, given - 4), given)
        return tuple(side.fences[rank] for side in self.sides)


def _parse_fence(reply: int) -> Granted | None:
    """The fence of a lock that was transferred."""
    return Granted(reply, free=False) if reply else None


def with_ttl(args: Any, group: str) -> Any:
    """The arguments of a step, of which this group keeps a registration for the whole test."""
    found = getattr(args, group)
    return args if found is None else args._replace(**{group: found._replace(waiter_ttl=WAIT_QUEUE_TTL)})


def _parse_holder(reply: list[Any]) -> Granted | Busy | ForeignValue | None:
    """Like the lock, but a foreign value under the key is a result instead of an error."""
    return parse_acquire([*reply, 0, 0] if len(reply) == 5 else reply) if reply else None


def alike(ours: Any, theirs: Any) -> bool:
    """Whether two results are equal, with times that are near each other."""
    if type(ours) is not type(theirs):
        return False
    if isinstance(ours, QueuePosition):
        return near(ours.enqueued_at / 1e6, theirs.enqueued_at / 1e6) and ours.other_queues == theirs.other_queues
    if isinstance(ours, tuple):
        return len(ours) == len(theirs) and all(map(alike, ours, theirs))
    if dataclasses.is_dataclass(ours):
        return all(alike(getattr(ours, field.name), getattr(theirs, field.name)) for field in dataclasses.fields(ours))
    return near(ours, theirs) if isinstance(ours, float) else bool(ours == theirs)


def near(ours: float, theirs: float) -> bool:
    return abs(ours - theirs) < NEAR and bool(ours) == bool(theirs)


def kind_of(name: str, answer: Any) -> tuple[Any, ...]:
    """The kind of a reply; the test checks that every kind has occurred."""
    match answer:
        case AllGranted():
            return name, "granted"
        case Released(replies):
            return name, max(replies)
        case Refused(_, verdict):
            return name, type(verdict).__name__
        case Granted(_, free, position):
            return name, "granted", free, position.other_queues
        case BusyReply(_, _, position) if name.startswith("lock/acquire"):
            return name, "busy", bool(position.enqueued_at), position.other_queues
        case LatchReply(left, there, _, _, position):
            return name, bool(left), there, bool(position.enqueued_at)
        case int() if name == "latch/count_down":
            return name, bool(answer)
        case (ok, record, position):
            return name, ok, record is not None, bool(position.enqueued_at)
    return name, answer if isinstance(answer, int) else type(answer).__name__


_BOOLEANS = False, True
KINDS = {
    *(("lock/acquire", "granted", free, others) for free in _BOOLEANS for others in _BOOLEANS),
    *(("lock/acquire", "busy", since, others) for since in _BOOLEANS for others in _BOOLEANS),
    ("lock/acquire_fair", "granted", True, False),
    *(("lock/acquire_fair", "busy", since, False) for since in _BOOLEANS),
    *((name, "ForeignValue") for name in ("lock/acquire", "lock/acquire_fair")),
    *((name, answer) for name in ("lock/release", "lock/force_release") for answer in (0, 1, 2)),
    ("lock/force_release", 3),
    *(("multi/acquire", kind) for kind in ("granted", "BusyReply", "ForeignValue")),
    *(("multi/release", most) for most in (0, 1, 2)),
    *((f"lock/{step}", answer) for step in ("renew", "adopt") for answer in _BOOLEANS),
    ("lock/transfer", "granted", False, False),
    ("lock/transfer", "NoneType"),
    *(("lock/inspect", kind) for kind in ("NoneType", "BusyReply", "ForeignValue")),
    *(("waiters/unregister", answer) for answer in (0, 1, 2)),
    *(("record/get", False, there, since) for there in _BOOLEANS for since in _BOOLEANS),
    *((f"record/{step}", False, there, False) for step in ("put", "touch", "drop") for there in _BOOLEANS),
    *((f"record/{step}", True, True, False) for step in ("put", "touch")),
    ("record/drop", True, False, False),
    *((f"record/{step}", "str") for step in ("get", "put", "touch", "drop")),
    *((f"latch/{step}", answer) for step in ("set", "count_down") for answer in (True, False, "str")),
    *(("latch/get", left, there, False) for left, there in ((True, True), (False, True), (False, False))),
    ("latch/get", True, True, True),
    ("latch/get", "str"),
}
"""Every kind of reply that a command can give."""

STEP_NAMES = set(STEPS)

NOT_COMPARED = {
    "fence/raise",
    "index/page",
    "index/inspect",
    "record/peek",
    *(s for s in STEPS if s.startswith("load/")),
}
"""The steps without a random command: only the contract tests compare them."""

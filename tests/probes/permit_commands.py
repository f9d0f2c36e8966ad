"""Random commands of permits, to compare the replies of two backends."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable
from typing import Any

from django_redis_locks import locks
from django_redis_locks.backends.memory.permits import Permits
from django_redis_locks.core import clock
from django_redis_locks.core import holder as holder_module
from django_redis_locks.core.commands import Command
from django_redis_locks.core.keys import ends_of
from django_redis_locks.core.queue_entry import Entry
from django_redis_locks.core.queue_values import LAST, Attempt
from django_redis_locks.core.steps.locks import UnexpectedGrant
from django_redis_locks.core.steps.permits import InspectPermits, UnregisterPermits
from django_redis_locks.primitives.shared.permit_steps import PermitState, PermitSteps, parse_inspect
from django_redis_locks.primitives.shared.requests import Busy, ForeignValue, Granted, TooManyPermits
from tests.probes.commands import INBOXES, WAIT_QUEUE_TTL, BusyReply, Pair, Side

TOKENS = [f"token{number}" for number in range(6)]
KINDS = "semaphore", "rwlock"


class PermitSide(Side):
    """One backend, whose grants to waiters are seen by reading all holds after each command."""

    def raw(self, command: Command[Any]) -> Any:
        """The raw reply."""
        return self.backend.call(command)

    def state(self, lock: str) -> Any:
        """All holds of a key, after their fences are ranked in their order."""
        for kind in KINDS:
            read = Command("permits/inspect", (lock, ends_of(lock)), InspectPermits(kind), parse_inspect)
            if isinstance(found := parse_inspect(self.raw(read)), PermitState):
                break
        for fence in sorted(holder.fence for holder in found.holders) if isinstance(found, PermitState) else ():
            self.rank(fence)
        return self.comparable(found)

    def parsed(self, command: Command[Any], reply: Any) -> Any:
        """The comparable value of a reply."""
        return self.comparable(command.parse(reply))

    def comparable(self, answer: Any) -> Any:
        comparable = super().comparable
        match answer:
            case Busy():  # its holder is one of those whose leases end in the same millisecond
                return BusyReply(answer.lease_left, None, answer.position)
            case PermitState(holders=holders):
                return tuple(answer[:3]), *sorted(map(comparable, holders), key=lambda holder: holder.fence)
        return comparable(answer)

    def end_hold(self, lock: str, token: str) -> None:
        """End the lease of a hold in a memory store."""
        found = self.backend._store.records.get(lock)
        if isinstance(found, Permits) and token in found.holds:
            found.holds[token].ends = clock.monotonic() - 1


class RandomPermitCommands:
    """Random commands over a few keys, tokens and inboxes."""

    def __init__(self, chance: random.Random, *sides: Side) -> None:
        self.chance = chance
        self.sides = sides
        self.locks = [locks["memory"].lock(f"permits:{name}") for name in ("a", "b", "ключ", "shared")]
        self.sent: list[Pair] = []

    def hold(self) -> tuple[str, str, str]:
        """The keys of a lock and of the ends of its leases, and a token."""
        lock = self.chance.choice(self.locks).keys.lock
        return lock, ends_of(lock), self.token()

    def next(self) -> Pair:
        """A command for each side; they differ only in the fence."""
        if self.sent and self.chance.random() < 0.15:
            return self.chance.choice(self.sent[-20:])
        lock = self.chance.choice(self.locks)
        mutex = lock is self.locks[-1]
        chance = self.chance
        # now and then another kind, so that most commands meet their own
        kind = KINDS[chance.random() < 0.07]
        limit = chance.choice([2, 3, 3, 3, 3, 5])
        permits = limit if kind == "rwlock" else chance.choice([1, 1, 1, 2, 3])
        steps = PermitSteps(lock.performer, lock.keys, "name", lock.options, kind, limit, min(permits, limit))
        often = 20 if mutex else 0
        weights: dict[Callable[[], Pair], int] = {
            lambda: self.acquire(steps): 12,
            lambda: self.both(steps.release(self.token())): 5,
            lambda: self.both(steps.renew(self.token(), chance.choice([1, self.lease()]))): 3,
            lambda: self.both(steps.inspect()): 4,
            lambda: self.adopt(steps): 2,
            lambda: self.both(steps.downgrade(self.token())): 2,
            lambda: self.transfer(steps): 2,
            lambda: self.force_release(steps): 1,
            lambda: self.unregister(steps): 3,
            lambda: self.both(steps.set_limit(chance.choice([1, 2, 3, 4]))): not mutex and chance.random() < 0.5,
            lambda: self.both(lock.spec.steps.acquire(self.token(), "", Attempt())): often,
            lambda: self.both(lock.spec.steps.release(self.token())): often,
        }
        commands = chance.choices(list(weights), list(weights.values()))[0]()
        self.sent.append(commands)
        return commands

    def acquire(self, steps: PermitSteps) -> Pair:
        token = self.token()
        attempt = Attempt()
        if self.chance.random() < 0.7:
            place = self.chance.choice([LAST, 0, 0, 0, 1, 2, 1_700_000_000_000_001])
            entry = Entry(self.address(steps, token), token) if self.chance.random() < 0.9 else None
            attempt = Attempt(entry, place)
        command = steps.acquire(token, self.holder(), attempt)
        args = command.args._replace(lease=self.lease())
        if args.waiter is not None:
            args = args._replace(waiter=args.waiter._replace(waiter_ttl=WAIT_QUEUE_TTL))
        return self.both(dataclasses.replace(command, args=args))

    def adopt(self, steps: PermitSteps) -> Pair:
        token, lease = self.token(), self.chance.choice([1, self.lease()])
        ours, theirs = (
            steps._adopt(token, lease, fence=fence, since=clock.now(), holder="told") for fence in self.fences()
        )
        return ours, theirs

    def transfer(self, steps: PermitSteps) -> Pair:
        token, next_token, may_shorten = self.token(), self.token(), self.chance.random() < 0.5
        lease = self.lease() if may_shorten else self.chance.choice([1, self.lease()])
        command: Command[Any] = steps.transfer(token, next_token, lease, may_shorten, self.holder())
        return self.both(dataclasses.replace(command, parse=_granted))

    def force_release(self, steps: PermitSteps) -> Pair:
        if self.chance.random() < 0.2:
            return self.both(steps.force_release(None, False))
        ours, theirs = (steps.force_release(fence, False) for fence in self.fences())
        return ours, theirs

    def unregister(self, steps: PermitSteps) -> Pair:
        if self.chance.random() < 0.5:
            return self.both(steps.clean_up("", self.address(steps, self.token())))
        token = self.token()  # of an unexpected grant
        ours, theirs = (
            Command("permits/unregister", steps.release_keys, UnregisterPermits("", UnexpectedGrant(token, fence)), int)
            for fence in self.fences()
        )
        return ours, theirs

    @property
    def indexes(self) -> tuple[str, ...]:
        """The keys of the indexes."""
        return (self.locks[0].keys.index_key,)

    def both(self, command: Command[Any]) -> Pair:
        return command, command

    def token(self) -> str:
        return self.chance.choice(TOKENS)

    def holder(self) -> str:
        return self.chance.choice(["", "nonsense", holder_module.describe(1, "thread", "näme", holder_module.FIELDS)])

    def lease(self) -> int:
        return self.chance.choice([30_000, 60_000, 60_000, 600_000])

    def address(self, steps: PermitSteps, token: str) -> str:
        """An address with terms; those of another kind of lock, or without terms, now and then."""
        chance = self.chance
        terms = chance.choice([steps.grant_terms] * 8 + ["", "/rwlock/3/3"])
        number = chance.choice(["0", "7f3a"])
        about = f" {token} 60000{terms} told" if chance.random() < 0.95 else ""
        return f"{chance.choice(INBOXES)} {number}{about}"

    def fences(self) -> tuple[int, ...]:
        """The fences of the same hold on both sides, one of the last ones; or none."""
        given = len(self.sides[0].fences)
        if not given or self.chance.random() < 0.1:
            return tuple(0 for _ in self.sides)
        rank = self.chance.randrange(max(0, given - 5), given)
        return tuple(side.fences[rank] for side in self.sides)


def _granted(fence: int) -> Granted | None:
    return Granted(fence) if fence else None


def kind_of_reply(name: str, answer: Any) -> tuple[Any, ...]:
    """The kind of a reply; the test checks that every kind has occurred."""
    match answer:
        case BusyReply(_, _, position):
            return name, "busy", bool(position.enqueued_at)
        case Granted() | ForeignValue() | TooManyPermits():
            return name, type(answer).__name__
    return name, type(answer).__name__ if isinstance(answer, tuple) or answer is None else answer


_FREED = 0, 1, 2
KINDS_OF_REPLIES = {
    *(("permits/acquire", answer) for answer in ("Granted", "ForeignValue", "TooManyPermits")),
    *(("permits/acquire", "busy", place) for place in (False, True)),
    *(
        (f"permits/{step}", reply)
        for step in ("release", "downgrade", "force_release", "unregister")
        for reply in _FREED
    ),
    *((f"permits/{step}", held) for step in ("renew", "adopt") for held in (False, True)),
    *(("permits/inspect", answer) for answer in ("tuple", "ForeignValue")),
    *(("permits/transfer", answer) for answer in ("Granted", "NoneType")),
    *(("permits/set_limit", answer) for answer in ("NoneType", "ForeignValue")),
    *(("lock/acquire", answer) for answer in ("Granted", "ForeignValue")),
    ("lock/acquire", "busy", False),
    *(("lock/release", answer) for answer in _FREED[:2]),
}
"""Every kind of reply that a command of permits can give."""

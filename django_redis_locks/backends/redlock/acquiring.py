"""``lock/acquire`` on several members: one round if a majority gives the same fence, else a second one that gives them a common
fence."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from ...core import clock
from ...core.commands import Command
from ...core.errors import LockBackendError
from ...core.keys import waiters_of
from ...core.steps.locks import AcquireAbove, AcquireLock, AdoptLock, RaiseFence, ReleaseLock
from . import votes
from .rounds import UNANSWERED, Ask, answers, is_answer, raw, requests_to
from .votes import count, fence_granted, is_granted, majority_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .members import Request
    from .quorum import Quorum
    from .rounds import Merging, Replies


class _Fences:
    """The fences of the members that have granted a lock, and the fence of the grant once it is chosen.

    Args:
        quorum: the members.
        keys: the lock, the fence counter, and the index unless there is none.
        args: the arguments of the acquire.
    """

    def __init__(self, quorum: Quorum, keys: tuple[str, ...], args: AcquireLock) -> None:
        self._quorum = quorum
        self._keys = keys
        self._args = args
        self._fenced = quorum.fenced
        self.granted: dict[int, int] = {}
        self.chosen = 0

    def record(self, number: int, reply: Any) -> Request | None:
        """Record a reply that arrived after the end of the round. Return the request that gives the member the chosen
        fence, if it needs one."""
        if isinstance(reply, LockBackendError):
            self.expect_late_copy(number, reply)
            return None
        fence = fence_granted(reply)
        if not fence:
            return None
        self.granted[number] = fence
        return self.request() if self._fenced and fence < self.chosen else None

    def expect_late_copy(self, number: int, failure: LockBackendError) -> None:
        """Prepare for an acquire that a member may yet carry out, after this failure."""
        if failure.outcome_unknown:
            self._quorum.members[number].expect_late_copy(self._args.token, self._args.lease / 1000)

    def choose(self) -> bool:
        """Choose the fence of the grant: what a majority has given already, or the largest. Return whether a majority has it."""
        fence, members = Counter(self.granted.values()).most_common(1)[0]
        agreed = members >= majority_of(len(self._quorum.members))
        self.chosen = fence if agreed else max(self.granted.values())
        return agreed

    def request(self) -> Request:
        """Return the request that gives a member the chosen fence, and asks for its clock."""
        lock, counter, *index = self._keys
        adopt = AdoptLock(1, self._args.token, self.chosen, 0, self._args.holder)  # 1 ms: it shortens no lease
        return (
            Command("fence/raise", (counter,), RaiseFence(self.chosen), raw),
            Command("lock/adopt", (lock, *index), adopt, raw),
        )


def acquire(quorum: Quorum, command: Command[Any]) -> Merging:
    """``lock/acquire``: granted if a majority grants it, and a majority has its fence then. Otherwise everything is freed
    again. A waiter isn't registered."""
    args: AcquireLock = command.args
    waiter, token = args.waiter, args.token
    keys = command.keys if waiter is None else (*command.keys[:2], *command.keys[3:])
    args = args._replace(holder=votes.with_id(args.holder, token))
    sent_keys: tuple[str, ...] = keys
    sent_args: AcquireLock | AcquireAbove = args._replace(waiter=None)
    if waiter is not None and waiter.handed:
        sent_keys, sent_args = command.keys, args._replace(waiter=waiter._replace(address=""))
    quorum.note_lease(args.lease)
    fences = _Fences(quorum, keys, args)
    if sent_keys is keys and quorum.fenced and (least := quorum.fence_clock.least()):
        sent_args = AcquireAbove(*sent_args[:3], least)
    request = (Command("lock/acquire", sent_keys, sent_args, raw),)
    needed = majority_of(len(quorum.members))
    replies = yield Ask(requests_to(quorum, request), votes.acquire_decided, token, fences.record, least=needed)
    for number, reply in enumerate(replies):
        if isinstance(reply, LockBackendError):
            fences.expect_late_copy(number, reply)
    fences.granted.update({number: fence_granted(reply) for number, reply in enumerate(replies) if _grants(reply)})
    if len(fences.granted) < needed:
        return (yield from _not_granted(quorum, keys, args, replies))
    agreed = fences.choose()
    if quorum.fenced and not agreed:
        yield from _with_fence(quorum, fences)
    if waiter is None:
        return fences.chosen
    free = all(isinstance(reply, int) or reply[2] for reply in answers(replies) if is_granted(reply))
    return [1, fences.chosen, int(free), 0, 1]


def _grants(reply: Any) -> bool:
    return is_answer(reply) and is_granted(reply)


def _with_fence(quorum: Quorum, fences: _Fences) -> Merging:
    """Give a majority the chosen fence: the second round. A later majority has a member in common with it, so its fence is
    larger."""
    have = {number for number, fence in fences.granted.items() if fence == fences.chosen}
    sent = clock.now()
    quorum.fence_clock.begin()

    def stored(replies: Replies) -> bool:
        adopted = {number for number, reply in enumerate(replies) if is_answer(reply) and _adopted(reply)}
        return len(have | adopted) >= majority_of(len(replies))

    def note_clock(_: int, reply: Any) -> None:
        if is_answer(reply):
            quorum.fence_clock.note(sent, int(reply[0][1]))

    replies = yield Ask(requests_to(quorum, fences.request(), fences.granted), stored, late=note_clock)
    for number, reply in enumerate(replies):
        note_clock(number, reply)
    if not stored(replies):
        failures = [reply for reply in replies if isinstance(reply, LockBackendError)]
        reasons = "; ".join(str(failure.args[0]).partition(". ")[0] for failure in failures) or "the lease has ended"
        raise LockBackendError(
            f"no majority of the servers of {quorum.location} has stored the fence: {reasons}",
            outcome_unknown=True,
            transient=True,
            unreachable=any(failure.unreachable for failure in failures),
        )


def _adopted(reply: Any) -> bool:
    return bool(reply[1][0])


def _not_granted(quorum: Quorum, keys: tuple[str, ...], args: AcquireLock, replies: Replies) -> Merging:
    """Return the reply for a busy lock, after what was acquired is freed. A member that hasn't answered yet frees it
    when it does.

    Raises:
        LockBackendError: a majority couldn't be asked, which says nothing about the lock.
    """
    if len(answers(replies)) < majority_of(len(replies)):
        raise votes.no_majority(quorum.location, replies, outcome_unknown=count(replies, is_granted) > 0)
    lock, counter, *index = keys
    release_keys = (lock, waiters_of(lock), counter, *index)
    taken = {
        number for number, reply in enumerate(replies) if reply is UNANSWERED or _grants(reply) or _may_have(reply)
    }
    tokens = {args.token: taken}
    if args.waiter is not None and args.waiter.handed:
        tokens[args.waiter.handed] = set(range(len(replies)))
    for token, members in tokens.items():
        granted = [number for number in members if _grants(replies[number])]
        yield _release(quorum, release_keys, token, members, granted)
    foreign = votes.foreign_reply(replies)
    if foreign is not None:
        return foreign
    busy = votes.merged_busy(replies)
    return busy if args.waiter is None else [*busy, 0, 1]


def _may_have(reply: Any) -> bool:
    return isinstance(reply, LockBackendError) and reply.outcome_unknown


def _release(quorum: Quorum, keys: tuple[str, ...], token: str, members: Iterable[int], awaited: Iterable[int]) -> Ask:
    """Return the round that releases a token on some members, and that ends when those ``awaited`` have answered."""
    request = (Command("lock/release", keys, ReleaseLock(token), raw),)
    awaited = list(awaited)

    def enough(replies: Replies) -> bool:
        return all(replies[number] is not UNANSWERED for number in awaited)

    return Ask(requests_to(quorum, request, members), enough, token, releases=quorum.longest_lease)

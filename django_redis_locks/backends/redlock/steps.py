"""The steps of a mutex on several members: programs that ask them in rounds, and return the raw reply that one store would
give. A step that a majority didn't carry out raises ``LockBackendError``."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from ...core import clock
from ...core.commands import Command
from ...core.errors import LockBackendError
from ...core.keys import waiters_of
from ...core.replies import parse_text
from ...core.steps.locks import AcquireLock, AdoptLock, InspectLock, RaiseFence, ReleaseLock, RenewLocks, TransferLock
from . import votes
from .rounds import NOT_ASKED, UNANSWERED, Ask, answers
from .votes import count, decided, fence_granted, is_granted, majority_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .members import Request
    from .quorum import Quorum
    from .rounds import Merging, Replies


def raw(reply: Any) -> Any:
    """Return a reply as it is."""
    return reply


def _to(quorum: Quorum, request: Request, members: Iterable[int] | None = None) -> list[Request | None]:
    """Return the requests of a round: the same one for these members, or for all."""
    chosen = range(len(quorum.members)) if members is None else set(members)
    return [request if number in chosen else None for number in range(len(quorum.members))]


def _all_answered(replies: Replies) -> bool:
    return UNANSWERED not in replies


# Acquire


class _Fences:
    """The fences of the members that have granted a lock, and the fence of the grant once it is chosen.

    Args:
        quorum: the members.
        keys: the lock, the fence counter, and the index unless there is none.
        args: the arguments of the acquire.
    """

    def __init__(self, quorum: Quorum, keys: tuple[str, ...], args: AcquireLock) -> None:
        self._keys = keys
        self._args = args
        self._fenced = quorum.fenced
        self.granted: dict[int, int] = {}
        self.chosen = 0

    def record(self, number: int, reply: Any) -> Request | None:
        """Record a reply that arrived after the end of the round. Return the request that gives the member the chosen
        fence, if it needs one."""
        fence = 0 if isinstance(reply, LockBackendError) else fence_granted(reply)
        if not fence:
            return None
        self.granted[number] = fence
        return self.request(number) if self._fenced and 0 < self.granted[number] < self.chosen else None

    def request(self, number: int) -> Request | None:
        """Return the request that gives a member the chosen fence; None if it has it."""
        if self.granted[number] == self.chosen:
            return None
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
    sent_keys, sent_args = keys, args._replace(waiter=None)
    if waiter is not None and waiter.handed:
        sent_keys, sent_args = command.keys, args._replace(waiter=waiter._replace(address=""))
    quorum.note_lease(args.lease)
    fences = _Fences(quorum, keys, args)
    request = (Command("lock/acquire", sent_keys, sent_args, raw),)
    replies = yield Ask(_to(quorum, request), votes.acquire_decided, token, fences.record)
    for number, reply in enumerate(replies):
        if isinstance(reply, LockBackendError) and reply.outcome_unknown:
            quorum.members[number].expect_late_copy(token, args.lease / 1000)
    fences.granted.update({number: fence_granted(reply) for number, reply in enumerate(replies) if _grants(reply)})
    if count(replies, is_granted) < majority_of(len(replies)):
        return (yield from _not_granted(quorum, keys, args, replies))
    fences.chosen = max(fences.granted.values())
    if quorum.fenced:
        yield from _with_fence(quorum, fences)
    if waiter is None:
        return fences.chosen
    free = all(isinstance(reply, int) or reply[2] for reply in answers(replies) if is_granted(reply))
    return [1, fences.chosen, int(free), 0, 1]


def _grants(reply: Any) -> bool:
    return (
        reply is not UNANSWERED
        and reply is not NOT_ASKED
        and not isinstance(reply, LockBackendError)
        and is_granted(reply)
    )


def _with_fence(quorum: Quorum, fences: _Fences) -> Merging:
    """Give a majority the chosen fence: the second round. A later majority has a member in common with it, so its fence is
    larger."""
    requests = [fences.request(number) if number in fences.granted else None for number in range(len(quorum.members))]
    have = sum(fence == fences.chosen for fence in fences.granted.values())
    needed = majority_of(len(requests)) - have
    replies = yield Ask(requests, lambda replies: count(replies, _adopted) >= needed)
    if count(replies, _adopted) < needed:
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

    return Ask(_to(quorum, request, members), enough, token, releases=quorum.longest_lease)


# Release


def release(quorum: Quorum, command: Command[Any]) -> Merging:
    """``lock/release``, ``waiters/unregister``: freed unless a majority says that the lock hasn't this token."""
    args = command.args
    if isinstance(args, ReleaseLock):
        token = args.token
    else:
        token = args.address.split(" ", 3)[2] if args.grant is None else args.grant.token
    quorum.end(token)
    lock, waiters, *more = command.keys
    keys = (lock, waiters, quorum.counter_of(lock), *more[1:])
    request = (Command("lock/release", keys, ReleaseLock(token), raw),)
    replies = yield Ask(_to(quorum, request), _release_decided, token, releases=quorum.longest_lease)
    if len(answers(replies)) < majority_of(len(replies)):
        raise votes.no_majority(quorum.location, replies, outcome_unknown=True)
    return int(not decided(replies, _is_zero))


def _is_zero(reply: Any) -> bool:
    return bool(reply == 0)


def _is_freed(reply: Any) -> bool:
    return reply in (1, 2)


def _release_decided(replies: Replies) -> bool:
    return decided(replies, _is_zero, _is_freed)


# Renewal


def renew(quorum: Quorum, command: Command[Any]) -> Merging:
    """``lock/renew``, ``lock/adopt``: renewed if a majority has the token. A member without it, such as one that has
    restarted without data, gets it again if the lock is free there."""
    args: RenewLocks | AdoptLock = command.args
    if isinstance(args, RenewLocks):
        (token,) = args.tokens
    else:
        token = args.token
        command = replace(command, args=args._replace(holder=votes.with_id(args.holder, token)))
    with quorum.renewing(token):
        replies = yield Ask(_to(quorum, (command,)), lambda replies: decided(replies, _renewed, _not_renewed))
        if decided(replies, _not_renewed):
            return [0]
        if not decided(replies, _renewed):
            raise votes.no_majority(quorum.location, replies)
        lost = [number for number, reply in enumerate(replies) if _is_answer(reply) and not _renewed(reply)]
        if lost and args.lease > 1:  # 1 ms: it only asks whether the lock is held
            yield from _retake(quorum, command.keys, token, args.lease, replies, lost)
    return [1]


def _is_answer(reply: Any) -> bool:
    return reply is not UNANSWERED and not isinstance(reply, LockBackendError)


def _renewed(reply: Any) -> bool:
    return bool(reply[0])


def _not_renewed(reply: Any) -> bool:
    return not reply[0]


def _retake(
    quorum: Quorum, keys: tuple[str, ...], token: str, lease: int, renewed: Replies, lost: list[int]
) -> Merging:
    """Acquire a lock again on the members that have lost it, as the others describe it."""
    lock, *index = keys
    owners = [number for number, reply in enumerate(renewed) if _is_answer(reply) and _renewed(reply)]
    inspect = (Command("lock/inspect", (lock,), InspectLock("lock"), raw),)
    group = votes.largest_group((yield Ask(_to(quorum, inspect, owners), _all_answered)))
    if not group:
        return
    _, _, fence, since, described = votes.merged_holder(group, 1)
    holder = parse_text(described)
    counter = quorum.counter_of(lock)
    # An acquire gives it a new fence, which a transfer to its token replaces
    passing = f"{token}~"
    age = max(0, round(1000 * clock.wall()) - int(since or 0))
    transfer = TransferLock(passing, token, lease, 0, int(fence), age, holder)
    commands = (
        Command("lock/acquire", (lock, counter, *index), AcquireLock(passing, lease, holder), raw),
        Command("fence/raise", (counter,), RaiseFence(int(fence)), raw),
        Command("lock/transfer", keys, transfer, raw),
    )
    yield Ask(_to(quorum, commands, lost), _all_answered, token, still_wanted=partial(quorum.is_renewing, token))


# Inspection, and what operators do


def inspect(quorum: Quorum, command: Command[Any]) -> Merging:
    """``lock/inspect``: the holder that a majority names."""
    needed = majority_of(len(quorum.members))

    def enough(replies: Replies) -> bool:
        return decided(replies, lambda reply: not reply) or len(_group(replies)) >= needed

    def _group(replies: Replies) -> list[list[Any]]:
        return votes.largest_group(replies)

    replies = yield Ask(_to(quorum, (command,)), enough)
    if len(answers(replies)) < needed:
        raise votes.no_majority(quorum.location, replies)
    foreign = votes.foreign_reply(replies)
    if foreign is not None:
        return foreign
    group = _group(replies)
    return votes.merged_holder(group, needed) if len(group) >= needed else []


def force_release(quorum: Quorum, command: Command[Any]) -> Merging:
    """``lock/force_release``: released everywhere, if any member has the hold. The hold with a fence is that of a holder of
    which one member has this fence: members that granted it late, or all of them without common fences, have others."""
    args = command.args._replace(request_fence=0)
    requests = _to(quorum, (Command("lock/force_release", command.keys, args, raw),))
    if args.fence != "":
        shown = Command("lock/inspect", command.keys[:1], InspectLock("lock"), raw)
        found = yield Ask(_to(quorum, (shown,)), _all_answered)
        if len(answers(found)) < majority_of(len(found)):
            raise votes.no_majority(quorum.location, found)
        holders = {reply[4] for reply in answers(found) if reply and reply[0] == 0 and int(reply[2]) == int(args.fence)}
        requests = [
            (Command("lock/force_release", command.keys, args._replace(fence=int(reply[2])), raw),)
            if _is_answer(reply) and reply and reply[0] == 0 and reply[4] in holders
            else None
            for reply in found
        ]
    replies = yield Ask(requests, _all_answered)
    if sum(reply is NOT_ASKED or _is_answer(reply) for reply in replies) < majority_of(len(replies)):
        raise votes.no_majority(quorum.location, replies, outcome_unknown=True)
    return int(count(replies, bool) > 0)


def raise_fence(quorum: Quorum, command: Command[Any]) -> Merging:
    """``fence/raise``: raised on a majority at least. The largest counter and clock."""
    replies = yield Ask(_to(quorum, (command,)), _all_answered)
    found = answers(replies)
    if len(found) < majority_of(len(replies)):
        raise votes.no_majority(quorum.location, replies)
    return [str(max(int(reply[number]) for reply in found)) for number in (0, 1)]

"""The steps of a mutex on several members: programs that ask them in rounds, and return the raw reply that one store would
give. A step that a majority didn't carry out raises ``LockBackendError``."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from ...core import clock
from ...core.commands import Command
from ...core.replies import parse_text
from ...core.steps.locks import (
    AcquireLock,
    AdoptLock,
    InspectLock,
    RaiseFence,
    ReleaseLock,
    RenewLocks,
    TransferLock,
)
from . import votes
from .rounds import NOT_ASKED, Ask, all_answered, answers, is_answer, raw, requests_to
from .votes import count, decided, majority_of

if TYPE_CHECKING:
    from .quorum import Quorum
    from .rounds import Merging, Replies


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
    replies = yield Ask(
        requests_to(quorum, request),
        _release_decided,
        token,
        releases=quorum.longest_lease,
        least=majority_of(len(quorum.members)),
    )
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
        replies = yield Ask(requests_to(quorum, (command,)), _renewal_decided, least=majority_of(len(quorum.members)))
        if decided(replies, _not_renewed):
            return [0]
        if not decided(replies, _renewed):
            raise votes.no_majority(quorum.location, replies)
        lost = [number for number, reply in enumerate(replies) if is_answer(reply) and not _renewed(reply)]
        if lost and args.lease > 1:  # 1 ms: it only asks whether the lock is held
            yield from _retake(quorum, command.keys, token, args.lease, replies, lost)
    return [1]


def _renewal_decided(replies: Replies) -> bool:
    return decided(replies, _renewed, _not_renewed)


def _renewed(reply: Any) -> bool:
    return bool(reply[0])


def _not_renewed(reply: Any) -> bool:
    return not reply[0]


def _retake(
    quorum: Quorum, keys: tuple[str, ...], token: str, lease: int, renewed: Replies, lost: list[int]
) -> Merging:
    """Acquire a lock again on the members that have lost it, as the others describe it."""
    lock, *index = keys
    owners = [number for number, reply in enumerate(renewed) if is_answer(reply) and _renewed(reply)]
    inspect = (Command("lock/inspect", (lock,), InspectLock("lock"), raw),)
    group = votes.largest_group((yield Ask(requests_to(quorum, inspect, owners), all_answered)))
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
    yield Ask(requests_to(quorum, commands, lost), all_answered, token, still_wanted=partial(quorum.is_renewing, token))


# Inspection, and what operators do


def inspect(quorum: Quorum, command: Command[Any]) -> Merging:
    """``lock/inspect``: the holder that a majority names."""
    needed = majority_of(len(quorum.members))

    def enough(replies: Replies) -> bool:
        return decided(replies, lambda reply: not reply) or len(_group(replies)) >= needed

    def _group(replies: Replies) -> list[list[Any]]:
        return votes.largest_group(replies)

    replies = yield Ask(requests_to(quorum, (command,)), enough)
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
    requests = requests_to(quorum, (Command("lock/force_release", command.keys, args, raw),))
    if args.fence != "":
        shown = Command("lock/inspect", command.keys[:1], InspectLock("lock"), raw)
        found = yield Ask(requests_to(quorum, (shown,)), all_answered)
        if len(answers(found)) < majority_of(len(found)):
            raise votes.no_majority(quorum.location, found)
        holders = {reply[4] for reply in answers(found) if reply and reply[0] == 0 and int(reply[2]) == int(args.fence)}
        requests = [
            (Command("lock/force_release", command.keys, args._replace(fence=int(reply[2])), raw),)
            if is_answer(reply) and reply and reply[0] == 0 and reply[4] in holders
            else None
            for reply in found
        ]
    replies = yield Ask(requests, all_answered)
    if sum(reply is NOT_ASKED or is_answer(reply) for reply in replies) < majority_of(len(replies)):
        raise votes.no_majority(quorum.location, replies, outcome_unknown=True)
    return int(count(replies, bool) > 0)


def raise_fence(quorum: Quorum, command: Command[Any]) -> Merging:
    """``fence/raise``: raised on a majority at least. The largest counter and clock."""
    replies = yield Ask(requests_to(quorum, (command,)), all_answered)
    found = answers(replies)
    if len(found) < majority_of(len(replies)):
        raise votes.no_majority(quorum.location, replies)
    return [str(max(int(reply[number]) for reply in found)) for number in (0, 1)]

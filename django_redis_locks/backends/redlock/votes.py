"""The replies of several members, merged to what a majority says."""

from __future__ import annotations

from collections import Counter, defaultdict
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

from ...core.errors import LockBackendError
from ...core.replies import parse_text
from .rounds import NOT_ASKED, UNANSWERED, answers

if TYPE_CHECKING:
    from collections.abc import Callable

    from .rounds import Replies

RETRY_MS: Final = 50
"""Milliseconds until the next attempt when the votes were split; the waiter adds a random time."""


def majority_of(members: int) -> int:
    """Return how many members are a majority."""
    return members // 2 + 1


def count(replies: Replies, matches: Callable[[Any], bool]) -> int:
    """Return how many answers match."""
    return sum(matches(reply) for reply in answers(replies))


def decided(replies: Replies, *choices: Callable[[Any], bool]) -> bool:
    """Return whether a majority of all members gave one of these answers."""
    needed = majority_of(len(replies))
    return any(count(replies, choice) >= needed for choice in choices)


# The reply to an acquire


def fence_granted(reply: Any) -> int:
    """Return the fence of a reply that grants the lock; 0 for another reply."""
    if isinstance(reply, int):
        return reply
    return int(reply[1]) if isinstance(reply, list | tuple) and reply and reply[0] == 1 else 0


def is_granted(reply: Any) -> bool:
    """Return whether a reply to an acquire grants the lock."""
    return fence_granted(reply) > 0


def acquire_decided(replies: Replies) -> bool:
    """Return whether more replies can't change the outcome of an acquire."""
    needed = majority_of(len(replies))
    answered = answers(replies)
    granted = sum(map(is_granted, answered))
    if granted >= needed:
        return True
    return granted + sum(reply is UNANSWERED for reply in replies) < needed <= len(answered)


# The holder


def with_id(holder: str, token: str) -> str:
    """Return the description of a holder with an id of its hold, so that equal descriptions are of one hold. It is the
    sixth element of the array, which readers of holders ignore."""
    text = holder or "[null,null,null,null]"
    fields = text[:-1] if text.endswith("}]") else f"{text[:-1]},{{}}"
    return f'{fields},"{blake2b(token.encode(), digest_size=6).hexdigest()}"]'


def largest_group(replies: Replies) -> list[list[Any]]:
    """Return the replies ``[0, ms left, fence, since, holder, …]`` that describe the same hold, of the largest such group;
    [] if there is none."""
    groups: dict[str, list[list[Any]]] = defaultdict(list)
    for reply in answers(replies):
        if isinstance(reply, list | tuple) and reply and reply[0] == 0:
            groups[parse_text(reply[4])].append(list(reply))
    return max(groups.values(), key=lambda group: (len(group), max(int(reply[2]) for reply in group)), default=[])


def merged_holder(group: list[list[Any]], needed: int) -> list[Any]:
    """Return one reply for a group: that with the most frequent fence, or the smallest of these, as a server that granted the
    lock late has a larger one of its own, and the time until fewer than ``needed`` members have the hold."""
    lefts = sorted((int(reply[1]) for reply in group), reverse=True)
    fences = Counter(int(reply[2]) for reply in group)
    fence = max(fences, key=lambda fence: (fences[fence], -fence))
    since = next(reply[3] for reply in group if int(reply[2]) == fence)
    return [0, lefts[min(needed, len(lefts)) - 1], fence, since, group[0][4]]


def merged_busy(replies: Replies) -> list[Any]:
    """Return the reply for a lock that the majority didn't grant: the holder, and when to ask again."""
    needed = majority_of(len(replies))
    group = largest_group(replies)
    busy = merged_holder(group, needed)
    if len(group) < needed:  # several callers have a part of the votes, and free it now
        busy[1] = min(RETRY_MS, busy[1])
    return busy


def foreign_reply(replies: Replies) -> list[Any] | None:
    """Return the reply of a member that has something else than a lock under the key, or None."""
    found = (reply for reply in answers(replies) if isinstance(reply, list | tuple) and reply and reply[0] == -1)
    return next(map(list, found), None)


# The error without a majority


def no_majority(location: str, replies: Replies, *, outcome_unknown: bool = False) -> LockBackendError:
    """Return the error for replies of fewer members than a majority."""
    members, needed = len(replies), majority_of(len(replies))
    answered = len(answers(replies))
    failures = [reply for reply in replies if isinstance(reply, LockBackendError)]
    silent = sum(reply is UNANSWERED for reply in replies)
    reasons = list(dict.fromkeys(str(failure.args[0]).partition(". ")[0].rstrip(".") for failure in failures))
    if silent:
        reasons.append(f"{silent} haven't answered in time")
    refused = sum(not failure.unreachable for failure in failures)
    permanent = sum(not failure.transient for failure in failures)
    asked = sum(reply is not NOT_ASKED for reply in replies)
    text = f"{answered} of the {members} servers of {location} answered, and {needed} are needed: {'; '.join(reasons)}"
    return LockBackendError(
        text,
        outcome_unknown=outcome_unknown or bool(silent) or any(failure.outcome_unknown for failure in failures),
        transient=asked - permanent >= needed,
        unreachable=answered + refused < needed,
    )

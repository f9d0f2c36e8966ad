"""The steps that list and inspect locks, merged over the members."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...core.commands import Command
from ...core.steps.indexes import UNCLEAR
from . import votes
from .rounds import Ask, answers
from .votes import majority_of

if TYPE_CHECKING:
    from .quorum import Quorum
    from .rounds import Merging, Replies


def _everywhere(quorum: Quorum, command: Command[Any]) -> Merging:
    needed = majority_of(len(quorum.members))
    replies = yield Ask([(command,)] * len(quorum.members), lambda replies: False)
    if len(answers(replies)) < needed:
        raise votes.no_majority(quorum.location, replies)
    return replies


def read_index(quorum: Quorum, command: Command[Any]) -> Merging:
    """``index/page``: the entries of all members, each with the end of its lease that comes first in the order of the page.
    Then the first entries of all are among the first ones of each member, and pages of different lengths agree."""
    _, offset, most, last_first = command.args
    wanted = Command("index/page", command.keys, command.args._replace(offset=0, most=offset + most), command.parse)
    replies = answers((yield from _everywhere(quorum, wanted)))
    first = max if last_first else min
    ends: dict[Any, float] = {}
    for _, _, *pairs in replies:
        for lock, end in zip(pairs[::2], pairs[1::2], strict=True):
            ends[lock] = first(float(end), ends.get(lock, float(end)))
    entries = sorted(ends.items(), key=lambda entry: (entry[1], str(entry[0])), reverse=bool(last_first))
    total = max(len(ends), *(int(reply[1]) for reply in replies))
    page = [value for lock, end in entries[offset : offset + most] for value in (lock, round(end))]
    return [max(int(reply[0]) for reply in replies), total, *page]


def inspect_many(quorum: Quorum, command: Command[Any]) -> Merging:
    """``index/inspect``: the holder of each lock that a majority names, or ``UNCLEAR`` and the holder that most of the
    members with this lock name."""
    replies = yield from _everywhere(quorum, command)
    now = max(int(reply[0]) for reply in answers(replies))
    return [now, *(_merged(quorum, replies, number) for number in range(1, 1 + len(command.keys) // 3))]


def _merged(quorum: Quorum, replies: Replies, number: int) -> list[Any]:
    needed = majority_of(len(quorum.members))
    found = [list(reply[number][1:]) for reply in answers(replies)]
    other = next((verdict for verdict in found if verdict and verdict[0] != 0), None)
    if other is not None:
        return [0, *other]
    group = votes.largest_group(found)
    if not group:
        return [0]
    holder = votes.merged_holder(group, needed)
    return [0, *holder] if len(group) >= needed else [0, UNCLEAR, *holder[1:]]

"""Pages of a list, merged over servers whose leases end at slightly different times."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from django_redis_locks.backends.redlock.listing import read_index
from django_redis_locks.core.commands import Command
from django_redis_locks.core.steps.indexes import ReadIndex


@pytest.mark.parametrize("last_first", [0, 1])
def test_pages_have_each_lock_once(last_first: int) -> None:
    """In the order of the ends, wherever a page begins."""
    random = Random(1)
    members = [{f"lock:{n}": 1000 * n + random.randrange(5000) for n in range(40)} for _ in range(5)]
    merged = {lock: (max if last_first else min)(ends[lock] for ends in members) for lock in members[0]}
    expected = sorted(merged, key=lambda lock: (merged[lock], lock), reverse=bool(last_first))
    found: list[str] = []
    while len(found) < 40:
        page = page_of(members, len(found), random.randrange(1, 8), last_first)
        found += page
    assert found == expected


def page_of(members: list[dict[str, int]], offset: int, most: int, last_first: int) -> list[str]:
    quorum: Any = SimpleNamespace(members=members, location="five servers")
    program = read_index(quorum, Command("index/page", ("i",), ReadIndex("held", offset, most, last_first), list))
    (command,) = next(program).requests[0] or ()
    replies = []
    for ends in members:
        entries = sorted(ends.items(), key=lambda entry: (entry[1], entry[0]), reverse=bool(last_first))
        part = entries[command.args.offset : command.args.offset + command.args.most]
        replies.append([0, len(ends), *(value for entry in part for value in entry)])
    with pytest.raises(StopIteration) as end:
        program.send(replies)
    return [str(lock) for lock in end.value.value[2::2]]

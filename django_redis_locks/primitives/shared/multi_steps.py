"""The steps of several mutexes of one alias and bucket: their commands, and the parser of the reply."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ...core.commands import Command
from ...core.replies import parse_array, parse_freed, parse_int
from ...core.steps.multi import AcquireLocks, MemberRequest, ReleaseLocks
from .mutex_steps import MutexSteps, parse_acquire
from .requests import ForeignValue

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from .lock_spec import LockSpec
    from .requests import AcquireRequest, Busy

MOST: Final = 100
"""The largest number of locks in one command: some tenths of a millisecond of the server's time."""


class Refused(NamedTuple):
    """None of the locks was acquired, because of the one with this number."""

    number: int
    verdict: Busy | ForeignValue


def group_of(spec: LockSpec) -> Hashable:
    """Return what is equal for the locks that one command may concern; None for a lock that is no mutex, or that replicas
    must have first."""
    alone = spec.options.replicas or not isinstance(spec.steps, MutexSteps)
    return None if alone else (spec.alias, spec.keys.fence)


def acquire_all(specs: Sequence[LockSpec], requests: Sequence[AcquireRequest]) -> Command[tuple[int, ...] | Refused]:
    """Acquire all of these locks, or none. The reply is the fence of each, or the first lock that isn't free."""
    members = tuple(
        MemberRequest(
            request.token, spec.options.lease, int(not spec.steps.shares_line), spec.holder_text(request.owner)
        )
        for spec, request in zip(specs, requests, strict=True)
    )

    def parse(reply: Any) -> tuple[int, ...] | Refused:
        outcome, *rest = parse_array(reply)
        if outcome == 1:
            if len(rest) != len(specs):
                raise ValueError(reply)
            return tuple(map(parse_int, rest))
        number, *values = rest
        verdict: Any = parse_acquire([outcome, *values, 0, 0] if outcome == 0 else [outcome, *values])
        return Refused(range(len(specs))[number], verdict)

    return Command("multi/acquire", _keys(specs), AcquireLocks(members), parse)


def release_all(specs: Sequence[LockSpec], tokens: Sequence[str]) -> Command[list[int]]:
    """Release those locks that are held with their tokens. The reply is that of ``release`` for each."""

    def parse(reply: Any) -> list[int]:
        replies = list(map(parse_freed, parse_array(reply)))
        if len(replies) != len(specs):
            raise ValueError(reply)
        return replies

    return Command("multi/release", _keys(specs), ReleaseLocks(tuple(tokens)), parse)


def _keys(specs: Sequence[LockSpec]) -> tuple[str, ...]:
    keys = [spec.keys for spec in specs]
    index = (keys[0].index_key,) if specs[0].options.index else ()
    return keys[0].fence, *(each.lock for each in keys), *(each.waiters for each in keys), *index

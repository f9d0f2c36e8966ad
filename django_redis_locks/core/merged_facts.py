"""Merges the facts of the servers of a Cluster or a Redlock: what one of them lacks, the store lacks."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from .errors import LockBackendError
from .server_info import Facts

if TYPE_CHECKING:
    from collections.abc import Sequence


def merge(location: str, mode: str, answers: Sequence[Facts | LockBackendError]) -> Facts:
    """Return the facts of a store of several servers.

    Args:
        location: its address.
        mode: as ``Facts.mode``.
        answers: the facts of each server, or why it can't be asked.

    Raises:
        LockBackendError: no server can be asked.
    """
    members = tuple(facts for facts in answers if isinstance(facts, Facts))
    failures = [failure for failure in answers if isinstance(failure, LockBackendError)]
    if not members:
        raise failures[0]
    evicting = next((facts for facts in members if facts.policy not in {"", "noeviction"}), members[0])
    careless = next((facts for facts in members if facts.appends is False), None) or next(
        (facts for facts in members if facts.syncs == "no"), members[0]
    )
    return replace(
        members[0],
        address=location,
        mode=mode,
        version=min((facts.version for facts in members), key=_numbers),
        round_trip=max(facts.round_trip for facts in members),
        ahead=max((facts.ahead for facts in members if facts.ahead is not None), key=abs, default=None),
        denied=tuple(dict.fromkeys(right for facts in members for right in facts.denied)),
        replicas=min((facts.replicas for facts in members if facts.replicas is not None), default=None),
        policy=evicting.policy,
        appends=careless.appends,
        syncs=careless.syncs,
        failover_after=max(
            (facts.failover_after for facts in members if facts.failover_after is not None), default=None
        ),
        full_coverage=any(facts.full_coverage for facts in members),
        members=members,
        unreachable=tuple(str(failure.args[0]) for failure in failures),
    )


def _numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".") if part.isdecimal()]

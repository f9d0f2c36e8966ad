"""Merges the facts of the nodes of a Cluster: what one node lacks, the Cluster lacks."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ...core.errors import LockBackendError
from ...core.server_info import Facts

if TYPE_CHECKING:
    from collections.abc import Sequence


def merge(
    location: str, answers: Sequence[tuple[str, Facts | LockBackendError]], replicas: Sequence[int | None]
) -> Facts:
    """Return the facts of a Cluster.

    Args:
        location: its address.
        answers: the address of each master, and its facts or why it can't be asked.
        replicas: the number of replicas of each master, as another node reports it.

    Raises:
        LockBackendError: no master can be asked.
    """
    found = [(name, facts) for name, facts in answers if isinstance(facts, Facts)]
    failures = [(name, failure) for name, failure in answers if isinstance(failure, LockBackendError)]
    if not found:
        raise failures[0][1]
    first = found[0][1]
    all_facts = [facts for _, facts in found]
    evicting = next((facts for facts in all_facts if facts.policy not in {"", "noeviction"}), first)
    careless = next((facts for facts in all_facts if facts.appends is False), None) or next(
        (facts for facts in all_facts if facts.syncs == "no"), first
    )
    timeouts = [facts.failover_after for facts in all_facts if facts.failover_after is not None]
    return replace(
        first,
        address=location,
        mode="cluster",
        version=min((facts.version for facts in all_facts), key=_numbers),
        round_trip=max(facts.round_trip for facts in all_facts),
        ahead=max((facts.ahead for facts in all_facts if facts.ahead is not None), key=abs, default=None),
        denied=tuple(dict.fromkeys(right for facts in all_facts for right in facts.denied)),
        replicas=min((facts.replicas for facts in all_facts if facts.replicas is not None), default=None),
        policy=evicting.policy,
        appends=careless.appends,
        syncs=careless.syncs,
        failover_after=max(timeouts, default=None),
        full_coverage=any(facts.full_coverage for facts in all_facts),
        masters=tuple(name for name, _ in answers),
        unreplicated=tuple(name for (name, _), number in zip(answers, replicas, strict=True) if number == 0),
        unreachable=tuple(f"{name}: {failure.args[0]}" for name, failure in failures),
    )


def _numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".") if part.isdecimal()]

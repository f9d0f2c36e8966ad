"""Converts locks, pages and server facts to JSON values, for the option ``--json``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from .. import diagnosis

if TYPE_CHECKING:
    from ..core.server_info import Facts, FenceCounter
    from ..inspection import LockInfo, Page

Document = dict[str, Any]


def of_lock(info: LockInfo) -> Document:
    """A lock."""
    holder, since = info.holder, info.since
    return {
        "alias": info.alias,
        "key": info.key,
        "name": info.name,
        "digest": info.digest,
        "kind": info.kind,
        "task_id": info.task_id,
        "state": info.state,
        "holder": holder and {name: getattr(holder, name) for name in ("host", "pid", "thread", "name", "note")},
        "holders": [
            {
                **{name: getattr(holder, name) for name in ("host", "pid", "thread", "name", "note", "fence")},
                "permits": "all" if holder.has_all_permits else holder.permits,
                "held_for": round(info.seconds_held(holder), 3),
                "lease_left": round(holder.lease_left, 3),
            }
            for holder in info.holders
        ],
        "limit": info.limit,
        "fence": info.fence,
        "since": since and since.isoformat(),
        "held_for": info.held_for and round(info.held_for, 3),
        "lease_left": info.lease_left and round(info.lease_left, 3),
        "waiting": info.waiting,
        "foreign": info.foreign or None,
        "left": info.left,
    }


def of_pages(pages: Mapping[str, Page], down: Mapping[str, str]) -> Document:
    """The locks of several aliases, and facts or the error of each alias."""
    return {
        "locks": [of_lock(row) for page in pages.values() for row in page.rows],
        "aliases": {
            **errors(down),
            **{
                alias: {
                    "total": page.total,
                    "partial": page.partial,
                    "indexed": page.indexed,
                    "unreachable": page.unreachable,
                    "store": of_store(alias),
                }
                for alias, page in pages.items()
            },
        },
    }


def of_store(alias: str, key: str = "") -> Document:
    """The servers of an alias; with a key, those that have this lock, too."""
    return asdict(diagnosis.topology(alias, key))


def of_facts(facts: Facts) -> Document:
    """The facts of a server."""
    members = [of_facts(member) for member in facts.members]
    return asdict(facts) | {
        "denied": list(facts.denied),
        "members": members,
        "unreachable": list(facts.unreachable),
    }


def of_counter(counter: FenceCounter) -> Document:
    """A fence counter."""
    return asdict(counter) | {"next": counter.next}


def errors(down: Mapping[str, str]) -> Document:
    """The aliases that are down."""
    return {alias: {"error": problem} for alias, problem in down.items()}

"""The steps that list and inspect locks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ...core import clock
from . import line, requests
from .nodes import base_of, escaped_of, line_of, parent_of
from .requests import Refused, Step, Stored
from .steps import holder_of

if TYPE_CHECKING:
    from ...core.steps.indexes import InspectLocks, ReadIndex
    from .session import Session

_INDEX: Final = ":index"


def page(session: Session, keys: tuple[str, ...], args: ReadIndex) -> Step:
    """``index/page``: list the locks that have nodes. The ends of leases are known for this process's own holds; others
    may last as long as a session."""
    now = round(1000 * clock.wall())
    names: Any = []
    if keys[0].endswith(_INDEX) and args.which == "held":
        (names,) = yield [requests.children(base_of(keys[0]))]
    if names is Refused.MISSING:
        names = []
    prefix, own, longest = keys[0].removesuffix("index"), session.leases(), round(1000 * session.timeout)
    locks = [f"{prefix}k:{escaped_of(name)}" for name in names]
    found = sorted(((now + own.get(lock, longest), lock) for lock in locks), reverse=bool(args.last_first))
    chosen = found[args.offset : args.offset + args.most]
    return [now, len(locks), *(value for ends, lock in chosen for value in (lock, ends))]


def inspect_many(session: Session, keys: tuple[str, ...], args: InspectLocks) -> Step:
    """``index/inspect``: read the holder of each key, and the number of its waiters."""
    locks = keys[: len(keys) // 3]
    lines = yield [requests.children(parent_of(lock)) for lock in locks]
    names = [[] if found is Refused.MISSING else line_of(found) for found in lines]
    held = [(lock, found) for lock, found in zip(locks, names, strict=True) if found]
    stored: list[Any] = []
    if held:
        stored = yield [requests.get(f"{parent_of(lock)}/{found[0]}") for lock, found in held]
    holders = {lock: reply for (lock, _), reply in zip(held, stored, strict=True) if isinstance(reply, Stored)}
    replies: list[Any] = [round(1000 * clock.wall())]
    for lock, found in zip(locks, names, strict=True):
        holder = holder_of(session, lock, line.lowest_of(holders[lock])) if lock in holders else []
        replies.append([max(0, len(found) - 1), *holder])
    return replies

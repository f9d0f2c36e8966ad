"""The steps of a lock. Their replies are those of the memory backend."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

from ...core.queue_values import LAST
from ...core.steps.locks import RenewLocks
from . import line, requests
from .nodes import Description, Node
from .requests import Refused, Step

if TYPE_CHECKING:
    from ...core.steps.locks import (
        AcquireFair,
        AdoptLock,
        ForceReleaseLock,
        InspectLock,
        ReleaseLock,
        UnregisterWaiter,
    )
    from .line import Lowest
    from .session import Session

Keys: TypeAlias = "tuple[str, ...]"

SMALLEST_FENCE: Final = 99
"""A number as small as this isn't taken for a fence by the callers, unless it is in a list."""


def acquire_fair(session: Session, keys: Keys, args: AcquireFair) -> Step:
    """``lock/acquire_fair``: stand in line, and acquire the lock if this is the lowest node."""
    lock, (token, lease, holder, waiter) = keys[0], args
    check_lease(session, lease)
    stays = waiter is not None and waiter.place != LAST
    names: list[str] | None = None
    node = session.nodes.get((lock, token))
    for _ in range(line.ATTEMPTS):
        if node is None:
            node, names = yield from line.creating(session, lock, token, Description(lease, 0, holder))
            yield from _checking_lease(session, node, lease)
        if waiter is not None and stays:
            node.number = waiter.address.split(" ", 2)[1]
        if names is None:
            names = yield from line.reading(lock)
        if node.name not in names:  # it was deleted by another client
            session.forget(node)
            node = names = None
        elif names[0] == node.name:
            node.claimed = True
            session.hold(node, lease)
            return node.created if node.created > SMALLEST_FENCE else [1, node.created, 1, 0]
        elif not stays:
            _, found = yield [requests.delete(node.path), requests.get(_before(node, names[0]))]
            session.forget(node)
            lowest = None if found is Refused.MISSING else line.lowest_of(found)
            return _busy(session, lowest, node)
        elif (yield from line.following(session, node, names)):
            return [0, lease, 0, 0, "", node.created]  # the last attempt reads the holder
        else:
            names = None
    raise line.unsettled(lock)


def _before(node: Node, name: str) -> str:
    return f"{node.path.rpartition('/')[0]}/{name}"


def _busy(session: Session, lowest: Lowest | None, node: Node) -> list[Any]:
    """Return the reply for a busy lock. If its holder has just left, the caller asks again at once."""
    if lowest is None:
        return [0, 0, 0, 0, "", node.created]
    return [*holder_of(session, node.lock, lowest), node.created]


def holder_of(session: Session, lock: str, lowest: Lowest) -> list[Any]:
    """Return the reply that describes a holder. What is left of its lease is known for this process's own holds; for
    others it is the whole lease."""
    left = session.left_of(lowest.path)
    return [
        0,
        lowest.description.lease if left is None else left,
        lowest.fence,
        lowest.since,
        lowest.description.holder,
    ]


def check_lease(session: Session, lease: int) -> None:
    """
    Raises:
        ValueError: the lease is longer than the session can promise.
    """
    if lease <= session.lease + 1:
        return
    most = f"{session.lease / 1000:g}"
    if session.lease + 1 < 750 * session.timeout:
        raise ValueError(
            f"the ensemble ends sessions after {session.lease / 750:g} s, so that EXPIRE is at most {most}: set it to that, or "
            "raise the servers' maxSessionTimeout"
        )
    raise ValueError(
        f"on ZooKeeper a lease is at most EXPIRE, {most} s, not {lease / 1000:g}: raise EXPIRE, or have the lease renewed, with "
        "renew=True or without expire="
    )


def _checking_lease(session: Session, node: Node, lease: int) -> Step:
    """Delete a node if its lease proves too long, now that the session's timeout is known."""
    try:
        check_lease(session, lease)
    except ValueError:
        yield from line.deleting(session, node)
        raise


def release(session: Session, keys: Keys, args: ReleaseLock) -> Step:
    """``lock/release``: delete the node with this token."""
    return (yield from _deleting(session, keys[0], args.token))


def _deleting(session: Session, lock: str, token: str) -> Step:
    node = session.nodes.get((lock, token))
    if node is None:
        node = yield from line.finding(session, lock, token)
        if node is None:
            return 0
    freed = yield from line.deleting(session, node)
    session.unanswered.discard((lock, token))
    return freed


def unregister(session: Session, keys: Keys, args: UnregisterWaiter) -> Step:
    """``waiters/unregister``: delete the node of a waiter, or of a grant that no request has claimed."""
    address, grant = args
    token = ([*address.split(" ", 3), "", "", ""])[2] if grant is None else grant.token
    node = session.nodes.get((keys[0], token))
    if not token or (grant is not None and (node is None or node.claimed)):
        return 0
    return (yield from _deleting(session, keys[0], token))


def renew(session: Session, keys: Keys, args: RenewLocks) -> Step:
    """``lock/renew``: ask whether the nodes still exist, in a session that the leader knows."""
    check_lease(session, args.lease)
    nodes = [session.nodes.get((lock, token)) for lock, token in zip(keys, args.tokens, strict=False)]
    found = [node for node in nodes if node is not None]
    if not found:
        return [0] * len(nodes)
    _, *replies = yield [requests.sync(found[0].path), *(requests.exists(node.path) for node in found)]
    for node, reply in zip(found, replies, strict=True):
        if reply is Refused.MISSING:
            session.forget(node)
        else:
            session.hold(node, args.lease)
    gone = {id(node) for node, reply in zip(found, replies, strict=True) if reply is Refused.MISSING}
    return [int(node is not None and id(node) not in gone) for node in nodes]


def adopt(session: Session, keys: Keys, args: AdoptLock) -> Step:
    """``lock/adopt``: as ``lock/renew``; ``Session.guard`` stores the time of the acquire."""
    node = session.nodes.get((keys[0], args.token))
    if node is not None:
        node.claimed = True
    return renew(session, keys[:1], RenewLocks(args.lease, (args.token,)))


def inspect(session: Session, keys: Keys, args: InspectLock) -> Step:
    """``lock/inspect``: read the lowest node."""
    _, lowest = yield from line.inspecting(keys[0])
    return [] if lowest is None else holder_of(session, keys[0], lowest)


def force_release(session: Session, keys: Keys, args: ForceReleaseLock) -> Step:
    """``lock/force_release``: delete the lowest node, if it has this fence. Its watch notifies its session."""
    lock = keys[0]
    count, lowest = yield from line.inspecting(lock)
    if lowest is None or args.fence not in ("", lowest.fence):
        return 0
    (deleted,) = yield [requests.delete(lowest.path)]
    if deleted is Refused.MISSING:
        return 0
    session.deleted_by_force(lowest.path, lock)
    return 2 if count > 1 else 1

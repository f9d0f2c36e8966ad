"""The line of a lock: the parts of steps that create a node in it, find one, look at it, and delete one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ...core.errors import LockBackendError
from . import requests
from .nodes import LAST_SEQUENCE, Node, base_of, line_of, parent_of, prefix_of, sequence_of, unpack
from .requests import Refused, Step, Stored

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .nodes import Description
    from .session import Session

ATTEMPTS: Final = 20
"""How often a step is tried again because the nodes have changed between its requests."""


class Lowest(NamedTuple):
    """The holder of a lock.

    Attributes:
        path: the path of its node.
        fence: the transaction that created the node.
        since: when it acquired the lock, in milliseconds since 1970.
        description: its data.
    """

    path: str
    fence: int
    since: int
    description: Description


def lowest_of(stored: Stored) -> Lowest:
    """Return the holder from its node."""
    description = unpack(stored.data)
    return Lowest(stored.path, stored.created, description.since or stored.created_at, description)


def unsettled(lock: str) -> LockBackendError:
    """Return the error of a step that finds other nodes with each of its requests."""
    return LockBackendError(f"the nodes under {parent_of(lock)} change too fast", transient=True)


def finding(session: Session, lock: str, token: str) -> Step:
    """Find the node of a creation without a reply. Returns it, or None."""
    parent, prefix = parent_of(lock), prefix_of(token)
    _, names = yield [requests.sync(parent), requests.children(parent)]
    for name in () if names is Refused.MISSING else names:
        if name.startswith(prefix):
            (stored,) = yield [requests.get(f"{parent}/{name}")]
            if isinstance(stored, Stored):
                return Node(lock, token, stored.path, stored.created, unpack(stored.data))
    return None


def creating(session: Session, lock: str, token: str, description: Description) -> Step:
    """Create a node at the end of the line, unless an earlier request without a reply has done so. Returns it and the line."""
    parent = parent_of(lock)
    if (lock, token) in session.unanswered:
        node = yield from finding(session, lock, token)
        if node is not None:
            session.add(node)
            session.unanswered.discard((lock, token))
            return node, (yield from reading(lock))
    session.unanswered.add((lock, token))
    joining = [
        requests.create_in_line(f"{parent}/{prefix_of(token)}", description.pack()),
        requests.children(parent),
    ]
    if lock in session.lines:  # the parent probably exists
        stored, names = yield joining
        made: Any = Refused.EXISTS
    else:
        made, stored, names = yield [requests.create(parent), *joining]
    for _ in range(ATTEMPTS):
        if isinstance(stored, Stored):
            node = Node(lock, token, stored.path, stored.created, description)
            session.add(node)
            session.unanswered.discard((lock, token))
            if sequence_of(node.name) > LAST_SEQUENCE:
                yield from deleting(session, node)
                raise LockBackendError(f"{parent} has had too many nodes: let it become empty, or delete it")
            return node, line_of(names)
        if made is Refused.MISSING:
            yield [requests.create_all(base_of(lock.partition("}:k:")[0]))]
        made, stored, names = yield [requests.create(parent), *joining]
    raise unsettled(lock)


def reading(lock: str) -> Step:
    """Read the line of a lock, a list of names."""
    parent = parent_of(lock)
    _, names = yield [requests.sync(parent), requests.children(parent)]
    return [] if names is Refused.MISSING else line_of(names)


def inspecting(lock: str) -> Step:
    """Read the line and its lowest node. Returns the number of nodes and the ``Lowest``, None for a free lock."""
    for _ in range(ATTEMPTS):
        names = yield from reading(lock)
        if not names:
            return 0, None
        (stored,) = yield [requests.get(f"{parent_of(lock)}/{names[0]}")]
        if isinstance(stored, Stored):
            return len(names), lowest_of(stored)
    raise unsettled(lock)


def deleting(session: Session, node: Node) -> Step:
    """Delete a node, and its parent if that is empty then. Returns 0 if the node was gone, 1, or 2 if others are in line."""
    followed = session.is_followed(node.path)
    session.forget(node)
    if followed:  # then the parent isn't empty
        (deleted,) = yield [requests.delete(node.path)]
        return 0 if deleted is Refused.MISSING else 2
    deleted, parent = yield [requests.delete(node.path), requests.delete(node.path.rpartition("/")[0])]
    if deleted is Refused.MISSING:
        return 0
    return 2 if parent is Refused.NOT_EMPTY else 1


def following(session: Session, node: Node, names: Sequence[str]) -> Step:
    """Have a waiting node notified of the deletion of the one before it. Returns whether that exists; if not, the line is to
    be read again."""
    before = f"{parent_of(node.lock)}/{names[names.index(node.name) - 1]}"
    if session.follow(before, node):
        return True
    (found,) = yield [requests.get(before, watched=True)]
    if found is Refused.MISSING:
        session.unfollow(before, node)
        return False
    return True


def looking(session: Session, node: Node) -> Step:
    """Look at the line when the node before this one is gone: tell its waiter if it is the lowest now."""
    for _ in range(ATTEMPTS):
        if session.nodes.get((node.lock, node.token)) is not node or node.granted:
            return None
        (found,) = yield [requests.children(parent_of(node.lock))]  # nodes before this one can only go
        names = [] if found is Refused.MISSING else line_of(found)
        if node.name not in names:
            session.forget(node)
            raise LockBackendError("the node of a waiter is gone", transient=True)
        if names[0] == node.name:
            if not node.granted:
                session.hold(node, node.description.lease)
                session.tell(node)
            return None
        if (yield from following(session, node, names)):
            return None
    raise unsettled(node.lock)


def guarding(session: Session, nodes: Sequence[Node]) -> Step:
    """Watch the nodes of holds, and store the times of their acquires."""
    wanted: list[requests.Request] = []
    for node in nodes:
        node.guarded = True
        if not node.description.since:
            node.description = node.description._replace(since=node.since)
            wanted.append(requests.put(node.path, node.description.pack()))
        wanted.append(requests.get(node.path, watched=True))
    replies: list[Any] = yield wanted
    for node in nodes:
        gone = any(
            reply is Refused.MISSING and request.path == node.path
            for request, reply in zip(wanted, replies, strict=True)
        )
        if gone and (node.lock, node.token) in session.nodes:
            session.forget(node)
            session.confirm(node.lock)

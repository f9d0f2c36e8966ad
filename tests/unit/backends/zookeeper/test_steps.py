"""The steps of locks in ZooKeeper, with the faults between their requests: lost replies, nodes that come and go."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from django_redis_locks import LockBackendError
from django_redis_locks.backends.zookeeper import nodes, steps
from django_redis_locks.backends.zookeeper.nodes import Description
from django_redis_locks.backends.zookeeper.requests import Refused, Request, Step, Stored
from django_redis_locks.backends.zookeeper.session import Session
from django_redis_locks.core.steps.locks import (
    AcquireFair,
    FairWaiter,
    ReleaseLock,
    RenewLocks,
    UnexpectedGrant,
    UnregisterWaiter,
)

LOCK = "lock:{0}:k:a"
KEYS = LOCK, "lock:{0}:fence", "lock:{0}:w:a", "lock:{0}:index"


class Handler:
    """An engine that records its messages."""

    def __init__(self) -> None:
        self.messages: list[str] = []

    def on_message(self, word: str, lock: str) -> None:
        self.messages.append(word)

    def on_reconnect(self) -> None:
        self.messages.append("reconnect")


class Ensemble:
    """Nodes in memory. `session` is that of the tested process."""

    def __init__(self) -> None:
        self.tree: dict[str, tuple[bytes, int]] = {"/lock": (b"", 1)}
        self.before_get: Callable[[], object] = lambda: None
        self.zxid = 1000
        self.sequence = 0
        self.session = Session("zk", 40, {})
        self.handler = Handler()
        self.session.add_handler(self.handler)  # type: ignore[arg-type]
        self.session.run = lambda step, on_reply=lambda reply: None: on_reply(self.run(step))  # type: ignore[assignment]
        self.log: list[str] = []
        self.lose = ""
        """The method of a request that is carried out, and gets no reply; once."""

    def join(self, token: str) -> str:
        """Another process joins the line. Returns its node."""
        return str(self._carry_out(Request("create_in_line", f"/lock/a/{nodes.prefix_of(token)}", b"30000 0 x")).path)

    def run(self, step: Step) -> Any:
        replies: Any = None
        while True:
            try:
                requests: Sequence[Request] = step.send(replies)
            except StopIteration as end:
                return end.value
            self.log += [request.method for request in requests]
            replies = [self._carry_out(request) for request in requests]
            if self.lose in [request.method for request in requests]:
                self.lose = ""
                raise LockBackendError("lost", outcome_unknown=True)

    def names(self) -> list[str]:
        return [path.rpartition("/")[2] for path in self.tree if path.startswith("/lock/a/")]

    def delete(self, path: str) -> None:
        """Another process deletes a node, and the watch of this one fires."""
        del self.tree[path]
        self.session.on_change(path, deleted=True)

    def _carry_out(self, request: Request) -> Any:
        self.zxid += 1
        if request.method == "get":
            self.before_get()
        answer = getattr(self, f"_{request.method}", None)
        return request.path if answer is None else answer(request)

    def _create(self, request: Request) -> Any:
        if request.path in self.tree:
            return Refused.EXISTS
        self.tree[request.path] = request.data, self.zxid
        return Stored(request.path, b"", self.zxid, 0)

    def _create_in_line(self, request: Request) -> Any:
        if request.path.rpartition("/")[0] not in self.tree:
            return Refused.MISSING
        self.sequence += 1
        return self._create(request._replace(path=f"{request.path}{self.sequence:010d}"))

    def _delete(self, request: Request) -> Any:
        if any(path.startswith(f"{request.path}/") for path in self.tree):
            return Refused.NOT_EMPTY
        return None if self.tree.pop(request.path, None) else Refused.MISSING

    def _children(self, request: Request) -> Any:
        if request.path not in self.tree:
            return Refused.MISSING
        return [path.rpartition("/")[2] for path in self.tree if path.rpartition("/")[0] == request.path]

    def _get(self, request: Request) -> Any:
        found = self.tree.get(request.path)
        return Refused.MISSING if found is None else Stored(request.path, found[0], found[1], 0)

    _exists = _get


@pytest.fixture
def ensemble() -> Iterator[Ensemble]:
    ensemble = Ensemble()
    yield ensemble
    ensemble.session.after_fork_in_child()


def acquire(ensemble: Ensemble, token: str, waiter: FairWaiter | None = None) -> Any:
    return ensemble.run(steps.acquire_fair(ensemble.session, KEYS, AcquireFair(token, 30_000, "me", waiter)))


def waiter(token: str, place: int = 0) -> FairWaiter:
    return FairWaiter(f"inbox 7 {token} 30000 me", place, 4000)


def release(ensemble: Ensemble, token: str) -> Any:
    return ensemble.run(steps.release(ensemble.session, KEYS, ReleaseLock(token)))


def test_lost_reply_to_a_create_makes_no_second_node(ensemble: Ensemble) -> None:
    """[L13] The token in its name finds it."""
    ensemble.lose = "create_in_line"
    with pytest.raises(LockBackendError):
        acquire(ensemble, "t1")
    fence = acquire(ensemble, "t1")
    assert ensemble.names() == ["t1__lock__0000000001"]
    assert fence == ensemble.tree["/lock/a/t1__lock__0000000001"][1]


def test_cleanup_deletes_a_node_whose_create_was_not_answered(ensemble: Ensemble) -> None:
    ensemble.lose = "create_in_line"
    with pytest.raises(LockBackendError):
        acquire(ensemble, "t1")
    assert release(ensemble, "t1") == 1
    assert release(ensemble, "t1") == 0
    assert ensemble.tree.keys() == {"/lock"}


def test_released_lock_leaves_no_node(ensemble: Ensemble) -> None:
    acquire(ensemble, "t1")
    assert release(ensemble, "t1") == 1
    assert ensemble.tree.keys() == {"/lock"}
    assert not ensemble.session.nodes
    assert not ensemble.session.lines


def test_caller_without_a_wait_leaves_the_line(ensemble: Ensemble) -> None:
    acquire(ensemble, "t1")
    assert acquire(ensemble, "t2")[0] == 0
    assert ensemble.names() == ["t1__lock__0000000001"]


def test_waiter_is_notified_when_all_before_it_are_gone(ensemble: Ensemble) -> None:
    """The departure of one in the middle moves the watch, and notifies nobody."""
    acquire(ensemble, "t0")
    first, second = ensemble.join("x1"), ensemble.join("x2")
    assert acquire(ensemble, "t1", waiter("t1"))[0] == 0
    release(ensemble, "t0")
    ensemble.delete(second)
    assert ensemble.handler.messages == []
    ensemble.delete(first)
    own = ensemble.session.nodes[LOCK, "t1"]
    assert ensemble.handler.messages == [f"7,t1,{own.created}"]
    assert acquire(ensemble, "t1", waiter("t1")) == own.created


def test_node_before_that_goes_between_two_reads_is_no_lost_watch(ensemble: Ensemble) -> None:
    ensemble.tree["/lock/a"] = b"", 1
    gone = ensemble.join("x1")
    ensemble.before_get = lambda: ensemble.tree.pop(gone, None)
    assert acquire(ensemble, "t1", waiter("t1")) == ensemble.session.nodes[LOCK, "t1"].created


def test_last_attempt_leaves_the_line_with_the_holder(ensemble: Ensemble) -> None:
    ensemble.tree["/lock/a"] = b"", 1
    holder = ensemble.join("x1")
    acquire(ensemble, "t1", waiter("t1"))
    reply = acquire(ensemble, "t1", waiter("t1", place=-1))
    assert reply[:5] == [0, 30_000, ensemble.tree[holder][1], 0, "x"]
    assert ensemble.names() == ["x1__lock__0000000001"]


def test_grant_that_a_request_has_claimed_is_kept(ensemble: Ensemble) -> None:
    """[H10] Its message was late."""
    fence = acquire(ensemble, "t1")
    unexpected = UnregisterWaiter("", UnexpectedGrant("t1", fence))
    assert ensemble.run(steps.unregister(ensemble.session, KEYS[:2], unexpected)) == 0
    assert len(ensemble.names()) == 1


def test_renewal_asks_the_leader_and_finds_deleted_nodes(ensemble: Ensemble) -> None:
    acquire(ensemble, "t1")
    renewal = steps.renew(ensemble.session, (LOCK,), RenewLocks(30_000, ("t1",)))
    ensemble.log.clear()
    assert ensemble.run(renewal) == [1]
    assert ensemble.log == ["sync", "exists"]
    ensemble.tree.pop("/lock/a/t1__lock__0000000001")
    assert ensemble.run(steps.renew(ensemble.session, (LOCK,), RenewLocks(30_000, ("t1",)))) == [0]
    assert ensemble.run(steps.renew(ensemble.session, (LOCK,), RenewLocks(30_000, ("t1",)))) == [0]


def test_expired_session_forgets_its_nodes_and_has_the_holds_checked(ensemble: Ensemble) -> None:
    acquire(ensemble, "t1")
    ensemble.session.on_expired()
    assert ensemble.handler.messages == ["look"]
    assert not ensemble.session.nodes


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"30000 5 [1]", Description(30_000, 5, "[1]")),
        (b"", Description(0, 0, "")),
        (b"\xff x", Description(0, 0, "")),
        (b"9999999999999999999999 1 x y", Description(0, 1, "x y")),
    ],
)
def test_data_of_other_clients_are_no_error(data: bytes, found: Description) -> None:
    assert nodes.unpack(data) == found


@pytest.mark.parametrize("key", ["order:42", "a/b", "..", ".", "zookeeper", "100%25", "ä锁"])
def test_any_key_is_one_name_in_a_path(key: str) -> None:
    """[L45]"""
    parent = nodes.parent_of(f"lock:{{0}}:k:{key}")
    base, _, name = parent.rpartition("/")
    assert base == nodes.base_of("lock:{0}:index") == "/lock"
    assert name.isascii()
    assert name not in {".", ".."}
    assert nodes.escaped_of(name) == key


def test_line_is_in_the_order_of_its_numbers_and_ignores_other_nodes() -> None:
    assert nodes.line_of(["b__lock__0000000010", "a__lock__0000000002", "config", "x__lock__y"]) == [
        "a__lock__0000000002",
        "b__lock__0000000010",
    ]

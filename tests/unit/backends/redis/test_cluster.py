"""Redirections of a Cluster: where a command goes after each, how often, and what a caller gets at the end."""

from __future__ import annotations

import asyncio
import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from django_redis_locks import LockBackendError
from django_redis_locks.backends.redis import cluster_subscriber
from django_redis_locks.backends.redis.cluster import ClusterBackend
from django_redis_locks.backends.redis.cluster_route import MOST_REDIRECTIONS
from django_redis_locks.backends.redis.slot_table import slot_of
from django_redis_locks.core.commands import Command
from django_redis_locks.core.steps.locks import InspectLock
from tests.resp import Frames
from tests.waiting import eventually

KEY = "lock:{7}:k:a"
SLOT = slot_of(KEY)
Call = Callable[[ClusterBackend, Command[Any]], Any]
COMMAND: Command[Any] = Command("lock/inspect", (KEY, "lock:{7}:w:a"), InspectLock("lock"), lambda reply: reply)


class FakeNode(socketserver.ThreadingTCPServer):
    """Sends the next of ``replies``, and the last one again and again, after ``delay`` seconds. ``requests`` has the
    commands that it received."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.port = self.server_address[1]
        self.owner: FakeNode = self
        self.replies: list[bytes] = [b":1\r\n"]
        self.requests: list[str] = []
        self.tables = 0
        self.delay = 0.0
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    def stop(self) -> None:
        self.shutdown()
        self.server_close()

    def table(self) -> bytes:
        self.tables += 1
        return b"*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:%d\r\n" % self.owner.port


class _Handler(socketserver.BaseRequestHandler):
    server: FakeNode

    def handle(self) -> None:
        frames = Frames()
        while data := self._receive():
            for frame in frames.feed(data):
                self.request.sendall(self._reply(frame.value[0].decode()))

    def _reply(self, word: str) -> bytes:
        node = self.server
        if word == "CLUSTER":
            return node.table()
        if word not in {"EVALSHA", "EVAL", "ASKING"}:
            return b"+OK\r\n"
        node.requests.append(word)
        if word == "ASKING":
            return b"+OK\r\n"
        time.sleep(node.delay)
        return node.replies.pop(0) if len(node.replies) > 1 else node.replies[0]

    def _receive(self) -> bytes:
        try:
            data: bytes = self.request.recv(65536)
        except ConnectionResetError:
            return b""
        return data


def redirection(word: str, node: FakeNode) -> bytes:
    return f"-{word} {SLOT} 127.0.0.1:{node.port}\r\n".encode()


TRYAGAIN = b"-TRYAGAIN Multiple keys request during rehashing of slot\r\n"


@pytest.fixture
def nodes() -> Iterator[tuple[FakeNode, FakeNode]]:
    """Two nodes; the first one has all slots."""
    first, second = FakeNode(), FakeNode()
    second.owner = first
    yield first, second
    first.stop()
    second.stop()


@pytest.fixture
def backend(nodes: tuple[FakeNode, FakeNode]) -> Iterator[ClusterBackend]:
    hosts = ",".join(f"127.0.0.1:{node.port}" for node in nodes)
    backend = ClusterBackend(f"redis+cluster://me:secret@{hosts}", {"socket_timeout": 1.0})
    yield backend
    backend.close()


def in_thread(backend: ClusterBackend, command: Command[Any]) -> Any:
    return backend.call(command)


def in_loop(backend: ClusterBackend, command: Command[Any]) -> Any:
    return asyncio.run(backend.acall(command))  # type: ignore[arg-type]


def among_many(backend: ClusterBackend, command: Command[Any]) -> Any:
    (reply,) = backend.call_many([command], 1.0)
    if isinstance(reply, LockBackendError):
        raise reply
    return reply


@pytest.fixture(params=[in_thread, in_loop, among_many])
def call(request: pytest.FixtureRequest) -> Call:
    found: Call = request.param
    return found


def test_moved_corrects_one_slot_and_reads_the_table(
    nodes: tuple[FakeNode, FakeNode], backend: ClusterBackend, call: Call
) -> None:
    """[L22] The next command goes to the right node at once."""
    first, second = nodes
    call(backend, COMMAND)
    first.replies = [redirection("MOVED", second)]
    second.replies = [b":2\r\n"]
    first.owner = second.owner = second
    assert call(backend, COMMAND) == 2
    assert call(backend, COMMAND) == 2
    assert (first.requests, second.requests) == (["EVALSHA"] * 2, ["EVALSHA"] * 2)
    eventually(lambda: first.tables + second.tables == 2)
    eventually(lambda: {node.address[1] for node in backend.table.masters} == {second.port})


def test_ask_leaves_the_table_and_asks_in_one_write(
    nodes: tuple[FakeNode, FakeNode], backend: ClusterBackend, call: Call
) -> None:
    """[L22] An unknown script is sent there as source, after another ASKING."""
    first, second = nodes
    first.replies = [redirection("ASK", second), b":3\r\n"]
    second.replies = [b"-NOSCRIPT No matching script\r\n", b":2\r\n"]
    assert call(backend, COMMAND) == 2
    assert second.requests == ["ASKING", "EVALSHA", "ASKING", "EVAL"]
    assert call(backend, COMMAND) == 3
    assert first.tables + second.tables == 1


def test_keys_on_two_nodes_are_tried_again(
    nodes: tuple[FakeNode, FakeNode], backend: ClusterBackend, call: Call
) -> None:
    """[L22] By the node of the slot, also after the target has said so."""
    first, second = nodes
    first.replies = [TRYAGAIN, redirection("ASK", second), b":4\r\n"]
    second.replies = [TRYAGAIN]
    assert call(backend, COMMAND) == 4
    assert (first.requests, second.requests) == (["EVALSHA"] * 3, ["ASKING", "EVALSHA"])


def test_a_move_that_never_ends_is_reported_as_passing(
    nodes: tuple[FakeNode, FakeNode], backend: ClusterBackend, call: Call
) -> None:
    first, _ = nodes
    first.replies = [TRYAGAIN]
    with pytest.raises(LockBackendError, match="TRYAGAIN") as caught:
        call(backend, COMMAND)
    error = caught.value
    assert (error.transient, error.outcome_unknown, error.unreachable) == (True, False, False)
    assert len(first.requests) < 40


def test_a_move_whose_target_lacks_a_key_is_waited_for(
    nodes: tuple[FakeNode, FakeNode], backend: ClusterBackend, call: Call
) -> None:
    """[L22] The source says ASK of an absent key, and the target TRYAGAIN, as long as the slot moves."""
    first, second = nodes
    first.replies = [redirection("ASK", second)]
    second.replies = [TRYAGAIN]
    with pytest.raises(LockBackendError, match="TRYAGAIN"):
        call(backend, COMMAND)


@pytest.mark.parametrize("word", ["MOVED", "ASK"])
def test_redirections_are_limited(
    nodes: tuple[FakeNode, FakeNode], backend: ClusterBackend, call: Call, word: str
) -> None:
    """Nodes that disagree would send a command to and fro for ever."""
    first, second = nodes
    first.replies, second.replies = [redirection(word, second)], [redirection(word, first)]
    with pytest.raises(LockBackendError, match=word) as caught:
        call(backend, COMMAND)
    error = caught.value
    assert (error.transient, error.outcome_unknown) == (True, False)
    sent = [request for node in nodes for request in node.requests if request != "ASKING"]
    assert len(sent) <= MOST_REDIRECTIONS + 2  # call_many sends one more before


def test_redirections_end_with_the_time_of_the_call(nodes: tuple[FakeNode, FakeNode], backend: ClusterBackend) -> None:
    """A call of a slow Cluster takes no multiple of its time limit."""
    first, second = nodes
    first.replies, second.replies = [redirection("MOVED", second)], [redirection("MOVED", first)]
    first.delay = second.delay = 0.4
    with pytest.raises(LockBackendError, match="MOVED"):
        backend.call(COMMAND)
    assert len(first.requests) + len(second.requests) <= 4


def test_a_cluster_that_is_down_is_asked_again_by_the_caller(
    nodes: tuple[FakeNode, FakeNode], backend: ClusterBackend, call: Call
) -> None:
    """[L22] Often, since another node may take over."""
    first, _ = nodes
    first.replies = [b"-CLUSTERDOWN Hash slot not served\r\n"]
    with pytest.raises(LockBackendError, match="CLUSTERDOWN") as caught:
        call(backend, COMMAND)
    error = caught.value
    assert (error.transient, error.awaits_failover, error.outcome_unknown) == (True, True, False)


@pytest.mark.parametrize("call", [in_thread, in_loop])
def test_a_node_that_is_away_is_replaced_by_the_table_of_another_one(
    nodes: tuple[FakeNode, FakeNode], backend: ClusterBackend, call: Call
) -> None:
    first, second = nodes
    call(backend, COMMAND)
    backend.close()
    first.stop()
    second.owner, second.replies = second, [b":5\r\n"]
    assert call(backend, COMMAND) == 5


def test_a_lost_reply_is_not_repeated(nodes: tuple[FakeNode, FakeNode], backend: ClusterBackend, call: Call) -> None:
    """[L12] The command may have been executed: only its program knows what a copy would do."""
    first, second = nodes
    call(backend, COMMAND)
    first.replies = [b""]
    with pytest.raises(LockBackendError, match="no answer from") as caught:
        call(backend, COMMAND)
    assert (caught.value.outcome_unknown, caught.value.awaits_failover) == (True, True)
    assert (len(first.requests), second.requests) == (2, [])
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("call", [in_thread, in_loop])
def test_nodes_that_are_all_away_are_named(
    nodes: tuple[FakeNode, FakeNode], backend: ClusterBackend, call: Call
) -> None:
    for node in nodes:
        node.stop()
    with pytest.raises(LockBackendError, match="no node tells the slots") as caught:
        call(backend, COMMAND)
    assert caught.value.unreachable
    assert all(str(node.port) in str(caught.value) for node in nodes)
    assert "secret" not in str(caught.value)


def test_announced_addresses_are_remapped(nodes: tuple[FakeNode, FakeNode]) -> None:
    """For nodes behind a translation of addresses. LOCATION has those that the process reaches."""
    inner, outer = nodes
    outer.replies = [b":6\r\n"]
    inner.stop()
    moved = {("127.0.0.1", inner.port): ("127.0.0.1", outer.port)}
    backend = ClusterBackend(f"redis+cluster://127.0.0.1:{outer.port}", {"address_remap": moved.__getitem__})
    assert backend.call(COMMAND) == 6
    backend.close()


def test_channel_that_moves_while_it_is_opened_is_opened_at_the_new_node(
    backend: ClusterBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[H10] At the former node it would get no message."""
    channel = "lock:{7}:inbox:"
    table = backend.table
    table.refresh()
    other = table.node_at(("127.0.0.1", 1))
    opened: list[tuple[Any, Any]] = []

    class Home:
        def __init__(self, node: Any, *_: object) -> None:
            self.node = node
            self.callbacks: list[Any] = []

        def open(self, channel: str, callback: Any) -> None:
            opened.append((self.node, callback))
            if len(opened) == 1:
                table.owners[slot_of(channel)] = other
                table.on_change()
            self.callbacks.append(callback)

        def discard(self, channel: str) -> list[Any]:
            found, self.callbacks = self.callbacks, []
            return found

    monkeypatch.setattr(cluster_subscriber, "ShardedSubscriber", Home)
    subscriber: Any = backend.subscriber(None)  # type: ignore[arg-type]
    callback = object()
    subscriber.open(channel, callback)
    assert opened[0][0] is not other
    assert (other, callback) in opened


def test_slots_are_those_of_the_specification() -> None:
    """[L44] Known values of CLUSTER KEYSLOT."""
    assert slot_of("123456789") == 0x31C3
    assert slot_of("{user1000}.following") == slot_of("{user1000}.followers") == slot_of("user1000")
    assert slot_of("foo{}{bar}") == slot_of("foo{}{bar}")
    assert slot_of("foo{{bar}}zap") == slot_of("{bar")
    assert slot_of("foo{bar}{zap}") == slot_of("bar")


def test_a_table_that_is_being_read_delays_no_redirection(
    nodes: tuple[FakeNode, FakeNode], backend: ClusterBackend
) -> None:
    """A node that hangs while it tells the table would otherwise block the event loops, and collect a thread for each
    request that fails meanwhile."""
    first, second = nodes
    release = threading.Event()
    tell, begun = first.table, threading.Event()

    def hang() -> bytes:
        begun.set()
        release.wait(0.8)
        return tell()

    backend.call(COMMAND)
    first.table = second.table = hang  # type: ignore[method-assign]
    try:
        backend.table.refresh_soon()
        assert begun.wait(5)
        for _ in range(20):
            backend.table.refresh_soon()
            release.wait(0.005)
        readers = [thread for thread in threading.enumerate() if thread.name == "django-redis-locks cluster"]
        backend.table.node_at(("127.0.0.1", 1))
        assert len(readers) <= 2
        assert any(thread.is_alive() for thread in readers)
    finally:
        release.set()


def test_a_missing_right_names_those_of_a_cluster(nodes: tuple[FakeNode, FakeNode], backend: ClusterBackend) -> None:
    nodes[0].replies = [b"-NOPERM no permissions to run the 'spublish' command\r\n"]
    with pytest.raises(LockBackendError, match=r"\+cluster\|slots.*\+spublish \+ssubscribe"):
        backend.call(COMMAND)


def test_commands_for_many_unknown_slots_read_the_table_once(
    backend: ClusterBackend, nodes: tuple[FakeNode, FakeNode], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if no node answers: else each of them would wait as long."""
    reads: list[float] = []
    monkeypatch.setattr(backend.table, "_read", lambda: reads.append(0) or "no node answers")
    commands = [COMMAND] * 50
    replies = backend.call_many(commands, 1.0)
    assert [str(reply) for reply in replies] == ["no node answers"] * 50
    assert len(reads) == 1


def test_reason_of_a_node_that_is_away_has_no_login(
    backend: ClusterBackend, nodes: tuple[FakeNode, FakeNode], call: Call
) -> None:
    first, _ = nodes
    call(backend, COMMAND)
    first.replies = [b"-LOADING busy\r\n"]
    with pytest.raises(LockBackendError, match="LOADING") as caught:
        call(backend, COMMAND)
    assert "me:" not in str(caught.value)
    assert f"//127.0.0.1:{first.port}" in str(caught.value)

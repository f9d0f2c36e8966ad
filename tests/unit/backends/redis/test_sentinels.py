"""The search for the master: which sentinel is asked, for how long, and what its answers mean."""

from __future__ import annotations

import asyncio
import socketserver
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from django_redis_locks import clock
from django_redis_locks.backends.redis import RedisBackend
from django_redis_locks.backends.redis.sentinel_url import parse
from django_redis_locks.backends.redis.sentinels import NoMasterError, Sentinels
from django_redis_locks.backends.redis.subscriber import PING
from tests.resp import Frames

Address = tuple[str, int]
Locate = Callable[[Sentinels], Address]

UNKNOWN = b"-ERR No such master with that name\r\n"
LOADING = b"-LOADING reading\r\n"


def names(host: str, flags: str = "master", others: int = 2, port: int = 7) -> bytes:
    """The reply of a sentinel that names a master."""
    words = ["name", "m", "ip", host, "port", str(port), "flags", flags, "num-other-sentinels", str(others)]
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word.encode()) for word in words)


class FakeSentinel(socketserver.ThreadingTCPServer):
    """Sends ``reply`` to each request, or nothing; to a server's commands always OK."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.reply: bytes | None = names("10.0.0.1")
        self.requests: list[list[bytes]] = []
        self.commands: list[list[bytes]] = []
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()


class _Handler(socketserver.BaseRequestHandler):
    server: FakeSentinel

    def handle(self) -> None:
        frames = Frames()
        while data := self._receive():
            for frame in frames.feed(data):
                if frame.value[0] != b"SENTINEL":
                    self.server.commands.append(frame.value)
                    self.request.sendall(b"+OK\r\n")
                    continue
                self.server.requests.append(frame.value)
                if self.server.reply is not None:
                    self.request.sendall(self.server.reply)

    def _receive(self) -> bytes:
        try:
            data: bytes = self.request.recv(65536)
        except ConnectionResetError:
            return b""
        return data


@pytest.fixture
def three() -> Iterator[list[FakeSentinel]]:
    sentinels = [FakeSentinel() for _ in range(3)]
    yield sentinels
    for sentinel in sentinels:
        sentinel.shutdown()
        sentinel.server_close()


def of(three: list[FakeSentinel], **options: Any) -> Sentinels:
    hosts = ",".join(f"127.0.0.1:{sentinel.server_address[1]}" for sentinel in three)
    url = parse(f"redis+sentinel://me:secret@{hosts}/m/0")
    return Sentinels(url, {"socket_timeout": 1.0, "socket_connect_timeout": 1.0, **options})


def logins(sentinel: FakeSentinel) -> list[list[bytes]]:
    return [command for command in sentinel.commands if command[0] == b"AUTH"]


def ask_in_thread(backend: RedisBackend, runner: asyncio.Runner) -> None:
    backend._pool.execute(PING)


def ask_in_loop(backend: RedisBackend, runner: asyncio.Runner) -> None:
    async def ask() -> None:
        await backend._loop_connections.execute(PING)

    runner.run(ask())


def in_thread(sentinels: Sentinels) -> Address:
    return sentinels.locate(clock.now() + 1.0)


def in_loop(sentinels: Sentinels) -> Address:
    return asyncio.run(sentinels.alocate(clock.now() + 1.0))


@pytest.fixture(params=[in_thread, in_loop])
def locate(request: pytest.FixtureRequest) -> Locate:
    found: Locate = request.param
    return found


@pytest.mark.parametrize(
    "useless",
    [None, UNKNOWN, LOADING, names("10.0.0.9", "s_down,master"), names("10.0.0.9", others=0), b"*0\r\n", b"\0"],
)
def test_sentinel_without_a_usable_answer_is_asked_once(
    three: list[FakeSentinel], locate: Locate, useless: bytes | None
) -> None:
    """The next one is asked in the same attempt, also after silence, and is the first one from then on."""
    three[0].reply = useless
    sentinels = of(three, min_other_sentinels=1)
    assert [locate(sentinels) for _ in range(2)] == [("10.0.0.1", 7)] * 2
    assert [len(sentinel.requests) for sentinel in three] == [1, 2, 0]
    assert three[1].requests[0] == [b"SENTINEL", b"MASTER", b"m"]


@pytest.mark.parametrize(
    ("replies", "text"),
    [
        ([UNKNOWN, UNKNOWN, UNKNOWN], "no sentinel knows the service 'm'"),
        ([UNKNOWN, None, LOADING], "no sentinel knows the service 'm'"),
        ([UNKNOWN, names("10.0.0.9", "o_down,master"), None], r"name no master of 'm' .*10.0.0.9:7 is down"),
        ([names("h", others=1)] * 3, r"name no master of 'm' .*knows 1 other sentinels, and min_other_sentinels is 2"),
        ([None, LOADING, None], "no sentinel answers .*: no answer in time, .*: .*reading"),
    ],
)
def test_error_names_all_sentinels_and_the_reason(
    three: list[FakeSentinel], locate: Locate, replies: list[bytes | None], text: str
) -> None:
    """An unknown service is a wrong setting, sentinels that are away are an outage. Every sentinel is named."""
    for sentinel, reply in zip(three, replies, strict=True):
        sentinel.reply = reply
    began = clock.now()
    with pytest.raises(NoMasterError, match=text) as caught:
        locate(of(three, min_other_sentinels=2))
    assert clock.now() - began < 1.5
    for sentinel in three:
        assert f"127.0.0.1:{sentinel.server_address[1]}: " in str(caught.value)


def test_silent_sentinels_leave_time_for_the_master(three: list[FakeSentinel]) -> None:
    """Each of three gets its part of the time that is left, and the master is the fourth."""
    shares = [seconds for _, seconds in of(three)._shares(clock.now() + 1.0)]
    assert shares == pytest.approx([1 / 4, 1 / 3, 1 / 2], abs=0.05)


def test_another_master_is_reported_once(three: list[FakeSentinel], locate: Locate) -> None:
    """The connections to the former master are then left. The first master is no switch."""
    sentinels = of(three)
    switches: list[bool] = []
    sentinels.on_switch = lambda: switches.append(True)
    locate(sentinels)
    assert not switches
    three[0].reply = names("::2")
    assert [locate(sentinels) for _ in range(2)] == [("::2", 7)] * 2
    assert len(switches) == 1


def test_sentinels_get_their_own_login(three: list[FakeSentinel], locate: Locate) -> None:
    """The login of the master is never sent to a sentinel."""
    locate(of(three, username="me", password="secret"))
    assert logins(three[0]) == []
    locate(of(three, sentinel_kwargs={"username": "watch", "password": "pw"}))
    assert logins(three[0]) == [[b"AUTH", b"watch", b"pw"]]


@pytest.mark.parametrize("ask", [ask_in_thread, ask_in_loop])
def test_connection_in_use_leaves_the_former_master_at_a_switch(
    three: list[FakeSentinel], ask: Callable[[RedisBackend, asyncio.Runner], None]
) -> None:
    """[E1] A master that is cut off from the sentinels accepts writes. A connection that is always busy never is idle
    for long enough to be checked."""
    sentinel, former, new = three
    sentinel.reply = names("127.0.0.1", port=former.server_address[1])
    backend = RedisBackend(f"redis+sentinel://127.0.0.1:{sentinel.server_address[1]}/m/0", {})
    with asyncio.Runner() as runner:
        for _ in range(2):
            ask(backend, runner)
        sentinel.reply = names("127.0.0.1", port=new.server_address[1])
        assert backend._sentinels is not None
        in_thread(backend._sentinels)
        ask(backend, runner)
    backend.close()
    assert [server.commands.count([b"PING"]) for server in three] == [0, 2, 1]

"""Servers for tests: one shared by all, flushed for each test, and new ones for tests that hurt theirs."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack

import freezegun
import pytest

from tests.probes.client import forget_locks
from tests.probes.tuning import Tune
from tests.servers import needs_version, unavailable
from tests.simulation.summary import pytest_terminal_summary
from tools.processes import ServerNotFound
from tools.redis_binary import find_server
from tools.redis_server import RedisServer, one_node_cluster

__all__ = ["needs_version", "pytest_terminal_summary", "unavailable"]

freezegun.configure(extend_ignore_list=["_pytest.timing"])  # else --durations shows the span from frozen to real time


# What a script starts in the background ignores Ctrl-C, and so would the programs that tests start and interrupt
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN and threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def forgetful() -> Iterator[None]:
    """A lock that a test leaves held, on purpose or because it fails, isn't the next one's: all share this thread. Nor is
    it renewed, or reported as lost, while another test listens: until Python has collected it that could be long."""
    yield
    forget_locks()


@pytest.fixture(autouse=True)
def tune() -> Iterator[Tune]:
    """`tune(max_poll_interval=60.0)`: with other delays and time-outs in all engines of this process."""
    tune = Tune()
    tune.reset()
    yield tune
    tune.reset()


@pytest.fixture
def often(tune: Tune) -> None:
    """A hold is renewed after a thirtieth of its lease, not a third: the lease can be so long that it outlives a machine
    that stands still for seconds, and the test is none the longer."""
    tune(renew_at=1 / 30)


@pytest.fixture(scope="session")
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    """A loop that runs in a thread of its own."""
    started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    async def main() -> None:
        end = asyncio.Event()
        started.set_result((asyncio.get_running_loop(), end))
        await end.wait()

    thread = threading.Thread(target=asyncio.run, args=(main(),), name="tests' loop")
    thread.start()
    loop, end = started.result(30)
    yield loop
    loop.call_soon_threadsafe(end.set)
    thread.join(30)


@pytest.fixture(scope="session")
def redis_executable() -> None:
    """Skips, or fails in CI, where there is no server."""
    try:
        find_server()
    except ServerNotFound as error:
        unavailable(str(error))


@pytest.fixture(scope="session")
def redis_server(redis_executable: None) -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


@pytest.fixture
def redis_url(redis_server: RedisServer) -> str:
    """The shared server, empty."""
    redis_server.flush()
    return redis_server.url()


@pytest.fixture(scope="session")
def cluster_server(redis_executable: None) -> Iterator[RedisServer]:
    with one_node_cluster() as server:
        yield server


@pytest.fixture
def cluster_url(cluster_server: RedisServer) -> str:
    """The shared cluster of one node, empty."""
    cluster_server.flush()
    return cluster_server.url()


@pytest.fixture
def make_server(redis_executable: None) -> Iterator[Callable[..., RedisServer]]:
    """`make_server(maxmemory="5mb")`: a new server, ended with the test. Underscores stand for redis.conf's hyphens."""
    with ExitStack() as stack:

        def make(**config: str | int | Sequence[str]) -> RedisServer:
            names = {name.replace("_", "-"): value for name, value in config.items()}
            return stack.enter_context(RedisServer(names))

        yield make

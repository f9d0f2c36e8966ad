"""Fixtures: a shared server that is flushed for each test, new servers for tests that change or stop theirs, tuning."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack

import freezegun
import pytest
from kazoo.client import KazooClient

from tests.probes.client import forget_locks
from tests.probes.tuning import Tune
from tests.servers import UNHURRIED, needs_version, unavailable
from tests.simulation.summary import pytest_terminal_summary
from tools.processes import ServerNotFound
from tools.redis_binary import find_server
from tools.redis_cluster import RedisCluster
from tools.redis_sentinel import SentinelGroup
from tools.redis_server import RedisServer, one_node_cluster
from tools.zookeeper_server import ZooKeeperEnsemble

__all__ = ["needs_version", "pytest_terminal_summary", "unavailable"]

freezegun.configure(
    extend_ignore_list=["_pytest.timing"]
)  # otherwise --durations shows the difference between frozen and real time


# A script's background processes ignore SIGINT; the programs that tests start and interrupt would inherit that
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN and threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def forget_locks_after_test() -> Iterator[None]:
    """Forget the locks that a test leaves held: all tests share this thread, so the next test would own them. They
    would also be renewed or reported as lost until Python collects them."""
    yield
    forget_locks()


@pytest.fixture(autouse=True)
def tune() -> Iterator[Tune]:
    """`tune(max_poll_interval=60.0)` changes delays and timeouts in all engines of this process."""
    tune = Tune()
    tune.reset()
    yield tune
    tune.reset()


@pytest.fixture
def frequent_renewal(tune: Tune) -> None:
    """Renew a hold after a thirtieth of its lease instead of a third: the lease can be long enough for a machine that
    pauses for seconds, while the test stays short."""
    tune(renewal_share=1 / 30)


@pytest.fixture(scope="session")
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    """An event loop that runs in a thread of its own."""
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
    """Skip without a Redis server, or fail in CI."""
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
    """The URL of the shared server, flushed."""
    redis_server.flush()
    return redis_server.url()


@pytest.fixture(scope="session")
def cluster_server(redis_executable: None) -> Iterator[RedisServer]:
    with one_node_cluster() as server:
        yield server


@pytest.fixture
def cluster_url(cluster_server: RedisServer) -> str:
    """The URL of the shared cluster of one node, flushed."""
    cluster_server.flush()
    return cluster_server.url()


@pytest.fixture(scope="session")
def redis_cluster(redis_executable: None) -> Iterator[RedisCluster]:
    with RedisCluster() as cluster:
        yield cluster


@pytest.fixture
def cluster_location(redis_cluster: RedisCluster) -> str:
    """The LOCATION of the shared Cluster of six nodes, flushed."""
    redis_cluster.flush()
    return redis_cluster.location()


@pytest.fixture(scope="session")
def sentinel_group(redis_executable: None) -> Iterator[SentinelGroup]:
    with SentinelGroup() as group:
        yield group


@pytest.fixture
def sentinel_location(sentinel_group: SentinelGroup) -> str:
    """The LOCATION of the shared sentinels. Their master is flushed."""
    sentinel_group.master.flush()
    return sentinel_group.location()


@pytest.fixture(scope="session")
def zookeeper_client() -> Iterator[KazooClient]:
    """A plain client of the shared ZooKeeper."""
    try:
        with ZooKeeperEnsemble() as ensemble:
            client = KazooClient(ensemble.location())
            client.start(UNHURRIED)
            yield client
            client.stop()
            client.close()
    except ServerNotFound as error:
        unavailable(str(error))


@pytest.fixture
def zookeeper_location(zookeeper_client: KazooClient) -> str:
    """The LOCATION of the shared ZooKeeper, without the locks of other tests."""
    if zookeeper_client.exists("/tests"):
        zookeeper_client.delete("/tests", recursive=True)
    host, port = zookeeper_client.hosts[0]
    return f"{host}:{port}/tests"


@pytest.fixture(scope="session")
def redlock_servers(redis_executable: None) -> Iterator[list[RedisServer]]:
    """Five independent servers."""
    with ExitStack() as stack:
        yield [stack.enter_context(RedisServer()) for _ in range(5)]


@pytest.fixture
def redlock_location(redlock_servers: list[RedisServer]) -> list[str]:
    """The LOCATION of the shared servers of a Redlock, flushed."""
    for server in redlock_servers:
        server.flush()
    return [server.url() for server in redlock_servers]


@pytest.fixture
def make_server(redis_executable: None) -> Iterator[Callable[..., RedisServer]]:
    """`make_server(maxmemory="5mb")` starts a server for one test. Underscores stand for the hyphens of redis.conf."""
    with ExitStack() as stack:

        def make(**config: str | int | Sequence[str]) -> RedisServer:
            names = {name.replace("_", "-"): value for name, value in config.items()}
            return stack.enter_context(RedisServer(names))

        yield make

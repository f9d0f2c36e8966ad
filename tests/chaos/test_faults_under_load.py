"""Faults of a server under load: no call hangs, no lock stays held, and there is never more than one holder, unless the
server lost the data of the first one, which is then notified."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest
import redis

from django_redis_locks import LockBackendError, locks
from django_redis_locks.client import Locks
from tests.chaos.conftest import SILENCE
from tests.chaos.crowd import KEY, WAITERS, Crowd, pair
from tests.probes.tuning import Tune
from tests.waiting import eventually
from tools.redis_server import RedisServer

Make = Callable[..., RedisServer]
Fault = Callable[[RedisServer, Crowd], object]
CAP = 0.5


@pytest.fixture
def polling(tune: Tune) -> None:
    tune(max_poll_interval=CAP)


@pytest.fixture
def server(make_server: Make) -> RedisServer:
    return make_server(maxmemory_policy="noeviction")


@pytest.fixture
def crowd(frequent_renewal: None, server: RedisServer, open_both: Callable[..., list[Locks]]) -> Iterator[Crowd]:
    """A running crowd. In the end all locks must be free."""
    with Crowd(open_both(server.url())).running() as crowd:
        yield crowd
    eventually(lambda: not server.command("EXISTS", KEY, WAITERS))


def killed(kind: str) -> Fault:
    """The server closes all connections of a kind each time all members have held the lock."""

    def fault(server: RedisServer, crowd: Crowd) -> None:
        for _ in range(6):
            server.command("CLIENT", "KILL", "TYPE", kind)
            crowd.wait_for_progress()

    return fault


def paused(seconds: float, mode: str = "ALL") -> Fault:
    """The server delays all commands, or all writes."""

    def fault(server: RedisServer, crowd: Crowd) -> None:
        server.command("CLIENT", "PAUSE", round(seconds * 1000), mode)
        eventually(lambda: server.command("PING"))

    return fault


def restarted(server: RedisServer, crowd: Crowd) -> None:
    server.restart(keep_data=True)


def crowded_out(server: RedisServer, crowd: Crowd) -> None:
    """The server closes all connections and refuses new ones: `maxclients` is reached."""
    with redis.Redis.from_url(server.url(), single_connection_client=True) as admin:
        admin.config_set("maxclients", 1)
        for kind in ("normal", "pubsub"):
            admin.client_kill_filter(_type=kind, skipme=True)
        with pytest.raises(LockBackendError, match=r"max number of clients reached\. Raise its maxclients"):
            locks["localhost"].lock("b").acquire(timeout=0)
        refused = admin.info("stats")["rejected_connections"]
        eventually(lambda: admin.info("stats")["rejected_connections"] > refused + 10)
        admin.config_set("maxclients", 1000)


@pytest.mark.chaos
@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(killed("normal"), id="connections killed"),
        pytest.param(killed("pubsub"), id="subscribers killed"),
        pytest.param(paused(SILENCE / 2), id="paused shortly"),
        pytest.param(paused(3 * SILENCE), id="paused"),
        pytest.param(paused(3 * SILENCE, "WRITE"), id="paused for writers"),
        restarted,
        crowded_out,
    ],
)
def test_every_member_acquires_again_after_the_fault(
    fault: Fault, no_polling: None, server: RedisServer, crowd: Crowd
) -> None:
    """[L22] [H10] [H24] Soon after the fault every member holds the lock again; no `with` block raised, and no hold was
    lost."""
    fault(server, crowd)
    crowd.wait_for_progress()
    crowd.stop()
    assert crowd.failures == []
    assert crowd.overlaps == []
    assert crowd.lost == set()
    assert crowd.kept == 2


def test_loss_of_the_servers_data_is_reported_to_the_holders(polling: None, server: RedisServer, crowd: Crowd) -> None:
    """[L3] [H1] [L22] Every hold that overlapped with another one is reported lost; all members go on."""
    for _ in range(2):
        server.flush()
        crowd.wait_for_progress()
    crowd.stop()
    assert set(crowd.overlaps) <= crowd.lost
    assert crowd.kept == 0


def test_waiters_acquire_after_a_full_server_has_memory_again(polling: None, server: RedisServer, crowd: Crowd) -> None:
    """[E14] [H11] [L43] Waiters for a free lock retry while the memory is full; when there is room they acquire it, and
    all members hold theirs again."""
    server.command("CONFIG", "SET", "maxmemory", 1000)
    waiters = pair(locks["localhost"].lock("b"))
    eventually(lambda: re.search(r"errorstat_OOM:count=(?!1\b)", server.command("INFO", "errorstats")))
    server.command("CONFIG", "SET", "maxmemory", 0)
    assert all(waiter.result(20) for waiter in waiters)
    crowd.wait_for_progress()
    crowd.stop()
    assert crowd.failures == []
    assert crowd.overlaps == []
    assert crowd.lost == set()
    assert crowd.kept == 2

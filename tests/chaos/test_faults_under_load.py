"""A crowd is at work while the server suffers: nobody hangs, nothing stays locked, and there is never more than one holder,
unless the server forgot the first one, who is then told."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import redis

from django_redis_locks import LockBackendError, locks
from django_redis_locks.client import Locks
from tests.chaos.conftest import SILENCE
from tests.chaos.crowd import KEY, LINE, Crowd
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
def crowd(often: None, server: RedisServer, open_both: Callable[..., list[Locks]]) -> Iterator[Crowd]:
    """At work, and in the end everybody has left and nothing is locked."""
    with Crowd(open_both(server.url())).at_work() as crowd:
        yield crowd
    eventually(lambda: not server.command("EXISTS", KEY, LINE))


def killed(kind: str) -> Fault:
    """Connections are closed again and again, as soon as everybody has had his turn."""

    def fault(server: RedisServer, crowd: Crowd) -> None:
        for _ in range(6):
            server.command("CLIENT", "KILL", "TYPE", kind)
            crowd.goes_on()

    return fault


def paused(seconds: float, mode: str = "ALL") -> Fault:
    """It answers nobody, or nobody who may write."""

    def fault(server: RedisServer, crowd: Crowd) -> None:
        server.command("CLIENT", "PAUSE", round(seconds * 1000), mode)
        eventually(lambda: server.command("PING"))

    return fault


def restarted(server: RedisServer, crowd: Crowd) -> None:
    server.restart(keep_data=True)


def crowded_out(server: RedisServer, crowd: Crowd) -> None:
    """There is no room for any of them."""
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
        pytest.param(killed("pubsub"), id="inboxes killed"),
        pytest.param(paused(SILENCE / 2), id="paused shortly"),
        pytest.param(paused(3 * SILENCE), id="paused"),
        pytest.param(paused(3 * SILENCE, "WRITE"), id="paused for writers"),
        restarted,
        crowded_out,
    ],
)
def test_all_go_on(fault: Fault, no_polling: None, server: RedisServer, crowd: Crowd) -> None:
    """[L22] [H10] [H24] When the fault is over each of them has his turn soon, nobody was told a failure by a `with`
    block, and no hold was lost."""
    fault(server, crowd)
    crowd.goes_on()
    crowd.leaves()
    assert crowd.failures == []
    assert crowd.overlaps == []
    assert crowd.lost == set()
    assert crowd.kept == 2


def test_holders_forgotten_by_the_server_learn_of_their_loss(polling: None, server: RedisServer, crowd: Crowd) -> None:
    """[L3] [H1] [L22] Whoever held a lock beside another one learns of it; the others go on as if nothing had been."""
    for _ in range(2):
        server.flush()
        crowd.goes_on()
    crowd.leaves()
    assert set(crowd.overlaps) <= crowd.lost
    assert crowd.kept == 0


def test_a_full_server_refuses_and_then_serves(polling: None, server: RedisServer, crowd: Crowd) -> None:
    """[E14] [H11] [L43] Refusals are waited out: as soon as there is room again all have their turns."""
    server.command("CONFIG", "SET", "maxmemory", 1000)
    eventually(lambda: "errorstat_OOM:count=2" in server.command("INFO", "errorstats"))
    server.command("CONFIG", "SET", "maxmemory", 0)
    crowd.goes_on()
    crowd.leaves()
    assert crowd.failures == []
    assert crowd.overlaps == []
    assert crowd.lost == set()
    assert crowd.kept == 2

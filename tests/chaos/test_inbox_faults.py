"""The connection on which a process hears of its locks breaks, with a word or without, while others are well; or all of
them fall silent at once."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from django_redis_locks import Lock, clock, locks
from tests.chaos.crowd import lined_up, listening, pair
from tests.probes.tuning import Tune
from tests.proxy import Proxy
from tests.waiting import BUSY, eventually
from tools.redis_server import RedisServer

Make = Callable[..., RedisServer]
Open = Callable[..., list[Lock]]
CAP = 0.4


def heard_by(server: RedisServer) -> int:
    """How many connections, dead ones too, a message to the only inbox would reach."""
    (channel,) = server.command("PUBSUB", "CHANNELS", "lock:*")
    return int(server.command("PUBSUB", "NUMSUB", channel)[1])


def test_half_open_subscription_is_replaced_within_two_caps(make_server: Make, open_lock: Open, tune: Tune) -> None:
    """[H10] [L24] What is published reaches a dead connection: the waiters ask at the cap. While somebody waits the silence
    is noticed within two caps, and the next release is heard of."""
    tune(max_poll_interval=CAP)
    server = make_server()
    with Proxy(server.port) as proxy:
        theirs, ours = open_lock(proxy.url, expire=60)
        grant = theirs.acquire()
        waiters = pair(ours)
        lined_up(server)
        dead = heard_by(server)
        proxy.freeze("SUBSCRIBE")
        begin = clock.now()
        grant.release()
        had = [waiter.result(20) for waiter in waiters]
        assert max(one.at for one in had) - begin < CAP + locks.tuning.jitter + BUSY

        grant = theirs.acquire()
        waiters = pair(ours)
        assert eventually(lambda: heard_by(server) > dead) < 3 * CAP + BUSY
        grant.release()
        assert all(waiter.result(20) for waiter in waiters)

        tune(max_poll_interval=60.0)
        grant = theirs.acquire()
        waiters = pair(ours)
        lined_up(server)
        begin = clock.now()
        grant.release()
        assert all(waiter.result(20) for waiter in waiters)
        assert clock.now() - begin < BUSY


def test_closed_while_the_lock_is_released(make_server: Make, open_lock: Open, tune: Tune) -> None:
    """[H7] [H10] Nobody hears that release. Everybody asks once when the inbox is back, which is at once, every time."""
    tune(max_poll_interval=60.0)
    server = make_server()
    theirs, ours = open_lock(server.url(), expire=60)
    for _ in range(8):
        grant = theirs.acquire()
        waiters = pair(ours)
        listening(server)
        lined_up(server)
        begin = clock.now()
        server.command("CLIENT", "KILL", "TYPE", "pubsub")
        grant.release()
        assert all(waiter.result(20) for waiter in waiters)
        assert clock.now() - begin < BUSY


@pytest.mark.chaos
def test_silent_for_longer_than_a_lease(make_server: Make, open_lock: Open, tune: Tune) -> None:
    """[L2] [L3] [H14] The holder learns in time that its lease must have ended; the waiters have the lock when the server
    speaks again."""
    tune(max_poll_interval=CAP)
    server = make_server()
    theirs, ours = open_lock(server.url(), expire=3, renew=True, OPTIONS={"socket_timeout": 30})
    begin = clock.now()
    grant = theirs.acquire()
    waiters = pair(ours)
    lined_up(server)
    server.pause()
    try:
        eventually(lambda: grant.lost)
        assert clock.now() - begin < 3 + 1 + BUSY, "a lease, and a third of one at most since its last renewal"
        assert not any(waiter.done() for waiter in waiters)
    finally:
        server.resume()
    begin = clock.now()
    had = [waiter.result(20) for waiter in waiters]
    assert max(one.at for one in had) - begin < BUSY
    assert min(one.fence for one in had) > grant.fence

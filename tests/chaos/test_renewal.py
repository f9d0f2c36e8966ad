"""The maintenance thread: renewals, and the notice of lost locks."""

from __future__ import annotations

import contextlib
import gc
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import redis

from django_redis_locks import LockLost, clock
from django_redis_locks.client import Locks
from tests.chaos.helpers import LEASE
from tests.probes import client as probes
from tests.probes.engine import Event, Lost
from tests.probes.tuning import Tune
from tests.proxy import Proxy
from tests.waiting import BUSY, eventually, in_thread
from tools.redis_server import RedisServer

Open = Callable[..., Locks]
KEY = "lock:{0}:k:a"


@pytest.mark.chaos
@pytest.mark.usefixtures("frequent_renewal")
def test_renewal_with_lost_replies_keeps_the_lease(
    proxied: Locks, proxy: Proxy, direct: redis.Redis, tune: Tune
) -> None:
    """[L9] [E8] After lost replies and a broken network a hold lasts until its lease ends; "unknown" isn't "lost"."""
    tune(maintenance_timeout=0.3)
    grant = proxied.lock("a", expire=LEASE, renew=True).acquire()
    for action, direction in (("drop", "reply"), ("cut", "reply"), ("drop", "request")):
        proxy.plan(action, direction, of="lock/renew")
    begin = clock.now()
    eventually(lambda: proxy.fates("lock/renew").count("pass") >= 1)
    assert not grant.lost, f"after {clock.now() - begin} s"
    assert direct.pttl(KEY) > 0
    grant.release()


@pytest.mark.usefixtures("frequent_renewal")
def test_many_holds_are_renewed_in_few_requests_by_one_thread(
    open_locks: Open, make_server: Callable[..., RedisServer]
) -> None:
    """[L10] [H6] [M7] Exactly the grants of deleted or replaced locks are lost."""
    server = make_server()  # no other test's maintenance thread cleans up here
    direct = redis.Redis.from_url(server.url(), decode_responses=True)
    client = open_locks(server.url(), OPTIONS={"socket_timeout": 20})
    grants = [client.lock(f"crowd:{number}", expire=LEASE, renew=True).acquire() for number in range(250)]
    direct.set("lock:{0}:k:crowd:7", "1 lock other 1", px=60_000)
    direct.delete("lock:{0}:k:crowd:8")
    direct.delete("lock:{0}:k:crowd:9")
    direct.rpush("lock:{0}:k:crowd:9", "x")
    maintenance_threads = [thread for thread in threading.enumerate() if "maintenance" in thread.name]
    direct.config_resetstat()
    eventually(lambda: [number for number, grant in enumerate(grants) if grant.lost] == [7, 8, 9])
    eventually(lambda: direct.info("commandstats").get("cmdstat_pexpire", {"calls": 0})["calls"] > 700)
    assert [number for number, grant in enumerate(grants) if grant.lost] == [7, 8, 9]
    assert direct.info("commandstats")["cmdstat_evalsha"]["calls"] < 250
    assert [thread for thread in threading.enumerate() if "maintenance" in thread.name] == maintenance_threads
    for grant in grants[10:]:
        grant.release()
    assert direct.zcard("lock:{0}:index") == 10
    direct.close()


@pytest.mark.usefixtures("frequent_renewal")
def test_renewal_that_crosses_a_release_reports_no_loss(
    open_locks: Open, redis_url: str, events: list[Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    """[H6] [L8] The reply to a renewal is discarded if the lock was released in between."""
    client = open_locks(redis_url)
    crossing = threading.Event()
    released = threading.Event()
    probes.call_before_each_renewal_result(monkeypatch, lambda: crossing.set() or released.wait(20))
    grant = client.lock("a", expire=LEASE, renew=True).acquire()
    assert crossing.wait(20)
    grant.release()
    with client.lock("a"):  # a new hold of the key: a late "not mine" must not be applied to it
        released.set()
        client.engine.wait_until_idle(20)
    assert not [event for event in events if isinstance(event, Lost)]


def test_fixed_lease_starts_no_thread(redis_server: RedisServer, redis_url: str) -> None:
    """[H23] [F11] Without renewal and `on_lost` no timer is set."""
    program = f"""
import threading
from django_redis_locks import locks
locks.configure({{"default": {{"LOCATION": {redis_url!r}}}}})
with locks.lock("a", expire=60):
    assert threading.active_count() == 1, threading.enumerate()
with locks.lock("b"):
    assert threading.active_count() == 2
with locks.lock("c"), locks.lock("d"):
    assert threading.active_count() == 2
"""
    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True, env=_bare(), timeout=60)


def test_on_lost_of_a_fixed_lease_is_called_at_its_end(open_locks: Open, redis_url: str) -> None:
    """[F11] [H23] `extend` postpones the call."""
    client = open_locks(redis_url)
    extended = False
    while not extended:  # repeated, since the first lease may end while the machine is suspended
        reported: list[float] = []
        begin = clock.now()
        grant = client.lock(
            "a", expire=0.2, on_lost=lambda grant, reported=reported: reported.append(clock.now())
        ).acquire()
        with contextlib.suppress(LockLost):
            grant.extend(0.6)
            extended = True
    eventually(lambda: reported)
    assert 0.5 < reported[0] - begin < 0.6 + BUSY


def test_end_of_the_interpreter_sends_pending_releases(
    redis_server: RedisServer, redis_url: str, direct: redis.Redis
) -> None:
    """[H13] Pending cleanups are executed at the end of the program, within a second on an idle machine."""
    program = f"""
from django_redis_locks import locks, LockBackendError
from django_redis_locks.engine import maintenance
from tests.proxy import Proxy
maintenance.EXIT_FLUSH = 20.0
proxy = Proxy({redis_server.port})
locks.configure({{"default": {{"LOCATION": proxy.url, "BACKEND_WAIT": 0, "OPTIONS": {{"socket_timeout": 1}}}}}})
with locks.lock("warm up"):
    pass
grant = locks.lock("a", expire=60).acquire()
proxy.plan("drop", "request", of="lock/release")
try:
    grant.release()
except LockBackendError:
    pass
else:
    raise SystemExit("the release was answered")
"""
    begin = clock.now()
    subprocess.run([sys.executable, "-c", program], check=True, env=_bare(), timeout=60)
    assert clock.now() - begin < 30  # starting a program takes seconds on a busy machine
    assert not direct.exists(KEY)


def _bare() -> dict[str, str]:
    """Return an environment without Django's settings."""
    return {**{k: v for k, v in os.environ.items() if k != "DJANGO_SETTINGS_MODULE"}, "PYTHONPATH": str(Path.cwd())}


@pytest.mark.parametrize("silent", [False, True], ids=["down", "silent"])
def test_lasting_outage_ends_the_hold_by_its_deadline(
    make_server: Callable[..., RedisServer], open_locks: Open, silent: bool
) -> None:
    """[L2] [L3] [L10] `lost` is set at the local deadline, never later than the lease ends on the server. A stopped
    server still accepts connections: neither a missing reply nor a handshake delays the notice."""
    server = make_server()
    reported: list[float] = []
    client = open_locks(server.url(), OPTIONS={"socket_timeout": 30, "socket_connect_timeout": 30})
    begin = clock.now()
    grant = client.lock("a", expire=1, renew=True, on_lost=lambda grant: reported.append(clock.now() - begin)).acquire()
    server.pause() if silent else server.kill()
    try:
        eventually(lambda: reported, seconds=60)
    finally:
        if silent:
            server.resume()
    assert reported[0] < 1 + BUSY
    for attempt in (grant.ensure_held, grant.release):
        with pytest.raises(LockLost):
            attempt()


def test_hold_of_an_ended_owner_ends_without_garbage_collection(
    proxied: Locks, proxy: Proxy, direct: redis.Redis
) -> None:
    """[H6] [X5] A thread ends after its lock was granted at the second attempt, or after NOSCRIPT: no frame of a
    traceback may keep the grant, and its renewal, alive until the garbage collector runs."""
    lock = proxied.lock("a", expire=0.4, renew=True)
    gc.collect()
    gc.disable()
    try:
        for inject_fault in (direct.script_flush, lambda: proxy.plan("cut", "request", of="lock/acquire")):
            inject_fault()
            in_thread(lambda: bool(lock.acquire()))
            eventually(lambda: not direct.exists(KEY))
    finally:
        gc.enable()

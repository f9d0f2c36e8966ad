"""A user without a right to a command, key or channel: the error names the right, and no lock stays held."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable

import pytest

from django_redis_locks import LockBackendError, LockKeyError, LockLost, LockNotOwned, inspection
from django_redis_locks.client import Locks
from tests.chaos.crowd import KEY, WAITERS, pair, release_and_collect, script_calls, wait_until_registered
from tests.probes.client import rights_named_when_refused
from tests.probes.tuning import Tune
from tests.waiting import eventually, in_thread
from tools.redis_server import RedisServer

Make = Callable[..., RedisServer]
Open = Callable[..., Locks]
CAP = 0.2

RIGHTS = rights_named_when_refused()
"""The rights that the error message lists."""

FOR_WAKE_UPS = {"ping", "publish", "pubsub", "subscribe", "zpopmin"}
"""Without one of these no call fails: waiters poll."""


def limited(server: RedisServer, rights: list[str], channels: str = "&lock:*") -> str:
    """Create a user with these rights only; return the URL."""
    commands = [f"+{command}" for command in (*rights, "hello", "client")]
    words = ["reset", "on", ">pw", "~lock:*", "resetchannels", *channels.split(), "-@all", *commands]
    server.command("ACL", "SETUSER", "app", *words)
    return f"redis://app:pw@127.0.0.1:{server.port}/0"


def test_missing_right_reports_no_loss(make_server: Make, open_locks: Open) -> None:
    """A denied command inside a script raises an error, and doesn't count as "not held"."""
    server = make_server()
    url = limited(server, RIGHTS)
    client = open_locks(url)
    grant = client.lock("a", expire=30).acquire()
    limited(server, [right for right in RIGHTS if right != "get"])
    for attempt in (lambda: grant.ensure_held(confirm=True), lambda: grant.extend(60), grant.release):
        with pytest.raises(LockBackendError, match=r"NOPERM.*\+get"):
            attempt()
    limited(server, RIGHTS)
    grant.release()


def use(server: RedisServer, client: Locks) -> None:
    """Call every method of a lock, also with a second caller that waits for it."""
    lock = client.lock("a", expire=20)
    server.command("SET", "lock:{0}:fence", "9007199254740009")  # the next fence triggers cleaning of the index
    grant = lock.acquire()
    grant.extend(30)
    lock.holder()
    for order in ("lease_left", "-lease_left"):
        inspection.held(client.settings.alias, order=order)
    assert in_thread(lambda: lock.acquire(timeout=0)) is None
    grant.release()
    grant = lock.acquire()
    assert lock.force_release()
    with pytest.raises(LockLost):
        grant.release()
    grant = lock.acquire()
    before = script_calls(server)
    waiters = pair(lock, timeout=20)
    eventually(lambda: script_calls(server) >= before + 2)
    grant.release()
    for waiter in waiters:
        assert waiter.result(30)
    record = client.record("job")
    written = record.put(None, {}, expire=20, show_in_admin="queued").record
    assert written is not None
    written = record.put(record.touch(written, 30).record, {}, show_in_admin=True).record
    assert [row.key for row in inspection.held(client.settings.alias, state="all").rows] == ["job"]
    assert written is not None
    assert inspection.force_release("job", using=client.settings.alias, fence=written.version)
    semaphore = client.semaphore("s", 2)
    held = [semaphore.acquire(), semaphore.acquire()]
    held[0].extend(40)
    assert len(semaphore.holders()) == 2
    assert semaphore.acquire(timeout=0) is None
    for permit in held:
        permit.release()
    server.command("RPUSH", "lock:{0}:k:list", "x")
    with pytest.raises(LockKeyError):
        client.lock("list").acquire()


def test_call_without_a_required_right_raises_an_error_that_names_it(
    make_server: Make, open_locks: Open, tune: Tune
) -> None:
    """[H2] The changes that a script made before the error are undone."""
    tune(max_poll_interval=CAP)
    server = make_server()
    for missing in (right for right in RIGHTS if right not in FOR_WAKE_UPS):
        client = open_locks(limited(server, [right for right in RIGHTS if right != missing]), METADATA=())
        with pytest.raises(LockBackendError, match=rf"NOPERM.*\+{missing}\b"):
            use(server, client)
        limited(server, RIGHTS)
        with contextlib.suppress(LockNotOwned):
            client.lock("a").release()  # if it was acquired
        eventually(lambda: server.command("EXISTS", KEY) == 0)
        client.close()
        server.command("SCRIPT", "FLUSH")
        server.flush()


@pytest.mark.parametrize("missing", ["", "channels", "subscribe", "ping", "publish", "zpopmin"])
def test_listed_rights_suffice_and_those_for_wake_ups_are_optional(
    make_server: Make,
    open_both: Callable[..., list[Locks]],
    tune: Tune,
    caplog: pytest.LogCaptureFixture,
    missing: str,
) -> None:
    """[L28] [H10] [E10] With the rights that the message lists every method works, and waiters are woken. Without a
    right to subscribe or publish no call fails: releases release, and waiters poll. A lock that no process can be
    notified of is granted to none. A denied subscription is logged once."""
    warned = missing in {"channels", "subscribe", "ping"}
    server = make_server()
    url = limited(server, [right for right in RIGHTS if right != missing], "" if missing == "channels" else "&lock:*")
    there, here = open_both(url, METADATA=())
    tune(subscribe_retry_delay=0.0)
    for _ in range(2 if warned else 1):
        tune(max_poll_interval=CAP if missing else 60.0)
        grant = there.lock("a", expire=30).acquire()
        before, waiters = script_calls(server), pair(here.lock("a"))
        if missing:
            eventually(lambda before=before: script_calls(server) >= before + 4)
        else:
            wait_until_registered(server)
        release_and_collect(grant, waiters)
        tune(max_poll_interval=CAP)
        use(server, here)
    grant = there.lock("a").acquire()
    server.command("ZADD", WAITERS, 1, "lock:{0}:inbox:dead 1 token 3000 ")
    grant.release()
    assert server.command("EXISTS", KEY) == 0
    server.command("DEL", WAITERS)
    warnings = [
        record for record in caplog.records if record.levelno == logging.WARNING and "Waiters poll" in record.msg
    ]
    assert len(warnings) == (1 if warned else 0)
    if warned:
        assert "&<KEY_PREFIX>:*" in warnings[0].getMessage()
        assert server.command("EXISTS", WAITERS) == 0, "a waiter without a subscription isn't registered"


def test_dead_waiter_keeps_no_permits_from_others_if_none_may_publish(
    make_server: Make, open_locks: Open, tune: Tune
) -> None:
    """[H10] It is silent, as every dead waiter is."""
    tune(max_poll_interval=CAP)
    server = make_server()
    client = open_locks(limited(server, [right for right in RIGHTS if right != "publish"]), METADATA=())
    semaphore = client.semaphore("a", 1)
    address, now = "lock:{0}:inbox:dead 1 token 3000/semaphore/1/1 ", int(server.command("TIME")[0])
    server.command("ZADD", WAITERS, 1, address)
    server.command("ZADD", "lock:{0}:h:a", 1000 * (now + 1), address)
    assert semaphore.acquire(timeout=0) is None
    assert semaphore.acquire(timeout=20)

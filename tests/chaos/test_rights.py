"""What a server forbids: a command, a key, a channel. Everything is told with its name, and nothing stays behind."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable

import pytest

from django_redis_locks import LockBackendError, LockKeyError, LockLost, LockNotOwned, inspection
from django_redis_locks.client import Locks
from tests.chaos.crowd import KEY, LINE, asked, lined_up, pair, told
from tests.probes.client import rights_named_when_refused
from tests.probes.tuning import Tune
from tests.waiting import eventually, in_thread
from tools.redis_server import RedisServer

Make = Callable[..., RedisServer]
Open = Callable[..., Locks]
CAP = 0.2

RIGHTS = rights_named_when_refused()
"""What the message lists."""

FOR_WAKE_UPS = {"exists", "ping", "publish", "subscribe", "zpopmin"}
"""Without one of these nobody is refused anything: waiters ask now and then."""


def limited(server: RedisServer, rights: list[str], channels: str = "&lock:*") -> str:
    """The URL of a user who has these rights only."""
    commands = [f"+{command}" for command in (*rights, "hello", "client")]
    words = ["reset", "on", ">pw", "~lock:*", "resetchannels", *channels.split(), "-@all", *commands]
    server.command("ACL", "SETUSER", "app", *words)
    return f"redis://app:pw@127.0.0.1:{server.port}/0"


def test_a_missing_right_is_no_loss(make_server: Make, open_locks: Open) -> None:
    """A denial inside a script is told as what it is, and not as "not mine"."""
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
    """Whatever one may do with a lock, and what two do with it who want it both."""
    lock = client.lock("a", expire=20)
    server.command("SET", "lock:{0}:fence", "9007199254740009")  # the next one looks after the index
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
    before = asked(server)
    waiters = pair(lock, timeout=20)
    eventually(lambda: asked(server) >= before + 2)
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
    server.command("RPUSH", "lock:{0}:k:list", "x")
    with pytest.raises(LockKeyError):
        client.lock("list").acquire()


def test_use_without_a_right_raises_an_error_that_names_it(make_server: Make, open_locks: Open, tune: Tune) -> None:
    """[H2] What a script had done before it was stopped is undone."""
    tune(max_poll_interval=CAP)
    server = make_server()
    for missing in (right for right in RIGHTS if right not in FOR_WAKE_UPS):
        client = open_locks(limited(server, [right for right in RIGHTS if right != missing]), METADATA=())
        with pytest.raises(LockBackendError, match=rf"NOPERM.*\+{missing}\b"):
            use(server, client)
        limited(server, RIGHTS)
        with contextlib.suppress(LockNotOwned):
            client.lock("a").release()  # if it got as far as to hold it
        eventually(lambda: server.command("EXISTS", KEY) == 0)
        client.close()
        server.command("SCRIPT", "FLUSH")
        server.flush()


@pytest.mark.parametrize("missing", ["", "channels", "subscribe", "ping", "publish", "zpopmin", "exists"])
def test_rights_are_enough_and_those_for_wake_ups_can_be_spared(
    make_server: Make,
    open_both: Callable[..., list[Locks]],
    tune: Tune,
    caplog: pytest.LogCaptureFixture,
    missing: str,
) -> None:
    """[L28] [H10] [E10] Whoever follows the advice of the message can do everything with a lock, and his waiters are woken.
    Without a right to listen or publish nobody is refused anything: releases release, and waiters ask at the cap. Who may
    not listen says so once, however often he finds it out."""
    warned = missing in {"channels", "subscribe", "ping"}
    server = make_server()
    url = limited(server, [right for right in RIGHTS if right != missing], "" if missing == "channels" else "&lock:*")
    there, here = open_both(url, METADATA=())
    tune(subscriber_refused=0.0)
    for _ in range(2 if warned else 1):
        tune(max_poll_interval=CAP if missing else 60.0)
        grant = there.lock("a", expire=30).acquire()
        before, waiters = asked(server), pair(here.lock("a"))
        if missing:
            eventually(lambda before=before: asked(server) >= before + 4)
        else:
            lined_up(server)
        told(grant, waiters)
        tune(max_poll_interval=CAP)
        use(server, here)
    warnings = [
        record for record in caplog.records if record.levelno == logging.WARNING and "Waiters ask" in record.msg
    ]
    assert len(warnings) == (1 if warned else 0)
    if warned:
        assert "&<KEY_PREFIX>:*" in warnings[0].getMessage()
        assert server.command("EXISTS", LINE) == 0, "nobody lines up who can't be told"

"""What a server forbids: a login, a command, a key, a channel. Everything is told with its name, and nothing stays behind."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

import pytest

from django_redis_locks import LockBackendError, LockKeyError, LockLost, LockNotOwned, clock, inspection, locks
from django_redis_locks.client import Locks
from tests.chaos.crowd import KEY, LINE, asked, lined_up, pair
from tests.probes.client import rights_named_when_refused, subscribe_again_now
from tests.probes.tuning import Tune
from tests.waiting import BUSY, eventually, in_thread
from tools.redis_server import RedisServer

Make = Callable[..., RedisServer]
Open = Callable[..., Locks]
CAP = 0.2

RIGHTS = rights_named_when_refused()
"""What the message lists."""

FOR_WAKE_UPS = {"exists", "ping", "publish", "subscribe", "zpopmin"}
"""Without one of these nobody is refused anything: waiters ask now and then."""


@pytest.mark.parametrize("password", ["", "wrong"])
def test_a_wrong_password_says_so(make_server: Make, open_locks: Open, password: str) -> None:
    """The message names the alias, the server without its password, and what to correct."""
    server = make_server(requirepass="right")
    login = f":{password}@" if password else ""
    client = open_locks(f"redis://{login}127.0.0.1:{server.port}/0")
    begin = clock.now()
    with pytest.raises(LockBackendError) as caught:
        client.lock("a", wait=30).acquire()
    assert clock.now() - begin < BUSY, "it can't pass, so nobody waits for it"
    text = str(caught.value)
    assert "alias 'default'" in text
    assert "password" in text
    assert "LOCATION" in text
    assert "wrong" not in text.replace("WRONGPASS", "")
    with pytest.raises(LockBackendError, match="password"):
        asyncio.run(client.lock("a", wait=5).aacquire())


def limited(server: RedisServer, rights: list[str], channels: str = "&lock:*") -> str:
    """The URL of a user who has these rights only."""
    commands = [f"+{command}" for command in (*rights, "hello", "client")]
    words = ["reset", "on", ">pw", "~lock:*", "resetchannels", *channels.split(), "-@all", *commands]
    server.command("ACL", "SETUSER", "app", *words)
    return f"redis://app:pw@127.0.0.1:{server.port}/0"


def test_a_user_without_script_rights_says_so(make_server: Make, open_locks: Open) -> None:
    """The message lists what the user needs."""
    client = open_locks(limited(make_server(), ["ping"]))
    with pytest.raises(LockBackendError, match=r"alias 'default'.*NOPERM.*\+evalsha") as caught:
        client.lock("a").acquire()
    assert "pw" not in str(caught.value)


def test_the_rights_that_the_message_lists_are_enough(
    make_server: Make, open_both: Callable[..., list[Locks]], tune: Tune
) -> None:
    """Whoever follows the advice can do everything with a lock, and his waiters are woken."""
    tune(max_poll_interval=60.0)
    server = make_server()
    client, other = open_both(limited(server, RIGHTS), METADATA=())
    lock = client.lock("a")
    with lock as grant:
        grant.extend(60)
        assert lock.locked()
        assert lock.force_release()
        with pytest.raises(LockLost):
            grant.release()
    grant = lock.acquire()
    waiters = pair(other.lock("a"))
    lined_up(server)
    begin = clock.now()
    grant.release()
    assert all(waiter.result(20) for waiter in waiters)
    assert clock.now() - begin < BUSY


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
    written = record.put(None, {}, expire=20, listed="queued").record
    assert written is not None
    written = record.put(record.touch(written, 30).record, {}, listed=True).record
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


@pytest.mark.parametrize(
    ("missing", "warned"),
    [
        ("channels", True),
        ("subscribe", True),
        ("ping", True),
        ("publish", False),
        ("zpopmin", False),
        ("exists", False),
    ],
)
def test_without_wake_ups(
    make_server: Make,
    open_both: Callable[..., list[Locks]],
    tune: Tune,
    caplog: pytest.LogCaptureFixture,
    missing: str,
    warned: bool,
) -> None:
    """[L28] [H10] [E10] Nobody is refused anything: releases release, and waiters ask at the cap. Who may not listen says
    so once, however often he finds it out."""
    tune(max_poll_interval=CAP)
    tune(subscriber_refused=0.0)
    server = make_server()
    url = limited(server, [right for right in RIGHTS if right != missing], "" if missing == "channels" else "&lock:*")
    there, here = open_both(url)
    for _ in range(2 if warned else 1):
        grant = there.lock("a", expire=30).acquire()
        waiters = pair(here.lock("a"))
        before = asked(server)
        eventually(lambda before=before: asked(server) >= before + 4)
        begin = clock.now()
        grant.release()
        had = [waiter.result(20) for waiter in waiters]
        assert max(one.at for one in had) - begin < CAP + locks.tuning.jitter + BUSY
        use(server, here)
    warnings = [
        record for record in caplog.records if record.levelno == logging.WARNING and "Waiters ask" in record.msg
    ]
    assert len(warnings) == (1 if warned else 0)
    if warned:
        assert "&<KEY_PREFIX>:*" in warnings[0].getMessage()
        assert server.command("EXISTS", LINE) == 0, "nobody lines up who can't be told"


def test_a_right_that_is_taken_away(
    make_server: Make,
    open_both: Callable[..., list[Locks]],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    tune: Tune,
) -> None:
    """[H10] The server closes an inbox whose channels it forbids: waiters go on asking. When it allows them again it is
    asked again after a while, and the next release is heard of."""
    tune(max_poll_interval=CAP)
    server = make_server()
    theirs, ours = (client.lock("a", expire=30) for client in open_both(limited(server, RIGHTS)))
    grant = theirs.acquire()
    waiters = pair(ours)
    lined_up(server)
    limited(server, RIGHTS, channels="")
    eventually(lambda: "Waiters ask" in caplog.text)
    grant.release()
    begin = clock.now()
    had = [waiter.result(20) for waiter in waiters]
    assert max(one.at for one in had) - begin < CAP + locks.tuning.jitter + BUSY
    limited(server, RIGHTS)
    tune(max_poll_interval=60.0)
    subscribe_again_now(ours, monkeypatch)
    grant = theirs.acquire()
    waiters = pair(ours)
    lined_up(server)
    begin = clock.now()
    grant.release()
    assert all(waiter.result(20) for waiter in waiters)
    assert clock.now() - begin < BUSY

"""Passwords that change while locks are held: open connections stay usable, new ones use the new password, and no
message shows either."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable
from typing import Any

import pytest
from django.core.checks import run_checks
from redis.credentials import CredentialProvider

from django_redis_locks import LockBackendError, clock, locks
from django_redis_locks.client import Locks
from tests.chaos.crowd import pair, release_and_collect, script_calls, wait_until_registered, wait_until_subscribed
from tests.chaos.helpers import LEASE, Async, Sync, renewed
from tests.waiting import BUSY, eventually
from tools.redis_server import RedisServer

Make = Callable[..., RedisServer]
Open = Callable[..., Locks]
Face = Sync | Async

OLD, NEW = "0ld-s3cret", "n3w-s3cret"
KEY = "lock:{0}:k:a"


class Vault(CredentialProvider):
    """Provides the current password."""

    def __init__(self) -> None:
        self.password = OLD
        self.sealed = False
        self.refusals = 0
        """The number of requests that it refuses first."""
        self.asked = 0

    def get_credentials(self) -> tuple[str, str]:
        self.asked += 1
        self.refusals -= 1
        if self.sealed or self.refusals >= 0:
            raise ZeroDivisionError("the vault is sealed")
        return "locks", self.password

    async def get_credentials_async(self) -> tuple[str, str]:
        await asyncio.sleep(0)
        return self.get_credentials()


@pytest.fixture
def server(make_server: Make) -> RedisServer:
    server = make_server()
    server.command("ACL", "SETUSER", "locks", "on", f">{OLD}", "~*", "&*", "+@all")
    return server


def rotate(server: RedisServer, vault: Vault | None = None) -> None:
    server.command("ACL", "SETUSER", "locks", "resetpass", f">{NEW}")
    if vault is not None:
        vault.password = NEW


def kick(server: RedisServer) -> None:
    server.command("CLIENT", "KILL", "USER", "locks")


def login(server: RedisServer, password: str = OLD) -> str:
    return f"redis://locks:{password}@127.0.0.1:{server.port}/0"


def provided(server: RedisServer, open_locks: Open, vault: Vault, **options: object) -> Locks:
    return open_locks(server.url(), EXPIRE=30, OPTIONS={"credential_provider": vault, "socket_timeout": 2, **options})


def all_of(error: BaseException) -> str:
    """Return everything that a log could show of an error."""
    return "".join(traceback.format_exception(error)) + repr(error.__dict__)


@pytest.mark.parametrize("protocol", [2, 3])
def test_each_connection_requests_the_current_password(
    server: RedisServer, open_locks: Open, face: Face, protocol: int
) -> None:
    """[H24] A connection is replaced, with the current password and without an error, at its maximum age, or when
    `CLIENT KILL USER` has closed it, as the documentation recommends."""
    vault = Vault()
    lock = provided(server, open_locks, vault, protocol=protocol, max_connection_age=0.3).lock("a")
    grant = face.acquire(lock, timeout=0)
    assert grant is not None
    for change, pause in ((None, 0.35), (kick, 0.06)):
        before = vault.asked
        vault.password += "!"
        server.command("ACL", "SETUSER", "locks", "resetpass", f">{vault.password}")
        if change is not None:
            change(server)
        else:
            face.extend(grant, 60)
        face.sleep(pause)
        face.extend(grant, 60)
        assert vault.asked > before
    face.release(grant)


@pytest.mark.usefixtures("no_polling")
def test_waiters_are_woken_after_a_rotation(server: RedisServer, settings: Any) -> None:
    """[H10] The subscriber's connection is replaced as well."""
    vault = Vault()
    settings.REDIS_LOCKS = {
        "default": {"LOCATION": server.url(), "OPTIONS": {"credential_provider": vault, "socket_timeout": 2}},
        "theirs": {"LOCATION": server.url().replace("127.0.0.1", "localhost")},
    }
    grant = locks["theirs"].lock("a", expire=60).acquire()
    waiters = pair(locks.lock("a"))
    wait_until_registered(server)
    before = script_calls(server), vault.asked
    rotate(server, vault)
    kick(server)
    eventually(lambda: script_calls(server) >= before[0] + 2)  # each waiter tries once when the subscriber is back
    wait_until_subscribed(server)
    assert vault.asked > before[1]
    release_and_collect(grant, waiters)


def test_error_after_a_password_change_does_not_show_the_password(
    server: RedisServer, open_locks: Open, face: Face
) -> None:
    """Open connections stay usable. New ones are refused at once; the message suggests a fix and shows neither
    password. A held lock isn't lost, and a lock that couldn't be released is released when the login is correct
    again."""
    lock = open_locks(login(server), OPTIONS={"socket_timeout": 2}).lock("a", expire=30)
    grant = face.acquire(lock, timeout=0)
    assert grant is not None
    rotate(server)
    face.extend(grant, 60)
    kick(server)
    face.sleep(0.06)
    begin = clock.now()
    for step in (
        lambda: face.extend(grant, 60),
        lambda: face.acquire(locks.lock("b"), timeout=30),
        lambda: face.release(grant),
    ):
        with pytest.raises(LockBackendError, match=r"alias 'default'.*WRONGPASS.*Correct the login in LOC") as caught:
            step()
        assert not caught.value.outcome_unknown
        assert OLD not in all_of(caught.value)
        assert NEW not in all_of(caught.value)
    assert clock.now() - begin < 2 + BUSY, "it can't pass"
    assert OLD not in repr(locks["default"])
    assert server.command("EXISTS", KEY)
    server.command("ACL", "SETUSER", "locks", f">{OLD}")
    eventually(lambda: not server.command("EXISTS", KEY))


@pytest.mark.usefixtures("frequent_renewal")
def test_renewal_is_repeated_while_its_user_is_missing(
    server: RedisServer, open_locks: Open, caplog: pytest.LogCaptureFixture
) -> None:
    """[L22] A renewal is repeated until the lease ends; the warnings show no password."""
    grant = open_locks(login(server), EXPIRE=LEASE).lock("a").acquire()
    server.command("ACL", "DELUSER", "locks")
    eventually(lambda: "Lock a couldn't be renewed" in caplog.text)
    assert "WRONGPASS" in caplog.text
    assert OLD not in caplog.text
    server.command("ACL", "SETUSER", "locks", "on", f">{OLD}", "~*", "&*", "+@all")
    renewed(grant)
    grant.release()


@pytest.mark.usefixtures("frequent_renewal")
def test_failing_credential_provider_counts_as_an_unreachable_server(
    server: RedisServer, open_locks: Open, face: Face
) -> None:
    """[L9] Waiters and renewals retry whatever it raises, and the message contains its error. A wrong password from it
    is an error of the login."""
    vault = Vault()
    client = provided(server, open_locks, vault)
    kept = face.acquire(client.lock("kept", expire=LEASE, renew=True), timeout=0)
    assert kept is not None
    lock = client.lock("a")
    vault.sealed = True
    kick(server)
    face.sleep(0.06)
    for timeout in (0, 0.3):
        with pytest.raises(LockBackendError, match=r"alias 'default': can't reach .*the vault is sealed"):
            face.acquire(lock, timeout=timeout)
    before = vault.asked
    eventually(lambda: vault.asked > before)  # by the renewal
    vault.sealed, vault.refusals = False, 2
    grant = face.acquire(lock, timeout=20)
    assert grant is not None
    face.release(grant)
    renewed(kept)
    rotate(server)
    kick(server)
    face.sleep(0.06)
    with pytest.raises(LockBackendError, match=r"alias 'default'.*WRONGPASS"):
        face.acquire(lock, timeout=5)
    server.command("ACL", "SETUSER", "locks", f">{OLD}")
    face.release(kept)


def test_credential_provider_is_not_called_by_checks_and_refused_beside_a_login(
    server: RedisServer, open_locks: Open, settings: Any
) -> None:
    """[53] The latter is invalid; the message doesn't show the password."""
    vault = Vault()
    provided(server, open_locks, vault)
    assert not [message for message in run_checks(tags=["redis_locks"]) if message.is_serious()]
    assert vault.asked == 0
    settings.REDIS_LOCKS = {"default": {"LOCATION": login(server), "OPTIONS": {"credential_provider": vault}}}
    (message,) = run_checks(tags=["redis_locks"])
    assert message.is_serious()
    assert "credential_provider" in message.msg
    assert OLD not in message.msg

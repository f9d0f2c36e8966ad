"""Passwords that change while locks are held: connections that are open go on, new ones use the new one, and nothing that is
said shows either."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable
from typing import Any

import pytest
from django.core.checks import run_checks
from redis.credentials import CredentialProvider

from django_redis_locks import Lock, LockBackendError, clock, locks
from django_redis_locks.client import Locks
from tests.chaos.crowd import asked, lined_up, listening, pair
from tests.chaos.helpers import LEASE, Async, Sync, renewed
from tests.probes.tuning import Tune
from tests.waiting import BUSY, eventually
from tools.redis_server import RedisServer

Make = Callable[..., RedisServer]
Open = Callable[..., Locks]
Face = Sync | Async

OLD, NEW = "0ld-s3cret", "n3w-s3cret"
KEY = "lock:{0}:k:a"


class Vault(CredentialProvider):
    """Tells the password of today."""

    def __init__(self) -> None:
        self.password = OLD
        self.sealed = False
        self.refusals = 0
        """So many are refused before it is opened."""
        self.asked = 0

    def get_credentials(self) -> tuple[str, str]:
        self.asked += 1
        self.refusals -= 1
        if self.sealed or self.refusals >= 0:
            raise ConnectionError("the vault is sealed")
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


def provided(server: RedisServer, open_locks: Open, vault: Vault, protocol: int = 2, **options: object) -> Locks:
    about = {"credential_provider": vault, "socket_timeout": 2, "protocol": protocol, **options}
    return open_locks(server.url(), EXPIRE=30, OPTIONS=about)


def around(face: Face, lock: Lock) -> None:
    grant = face.acquire(lock, timeout=0)
    assert grant is not None
    face.extend(grant, 60)
    face.release(grant)


def all_of(error: BaseException) -> str:
    """All that a log could show of it."""
    return "".join(traceback.format_exception(error)) + repr(error.__dict__)


def pause(face: Face, seconds: float) -> None:
    face._runner.run(asyncio.sleep(seconds)) if isinstance(face, Async) else clock.sleep(seconds)


@pytest.mark.parametrize("protocol", [2, 3])
def test_each_connection_asks_for_its_password(
    server: RedisServer, open_locks: Open, face: Face, protocol: int
) -> None:
    """[H24] The old ones are replaced at their age, with what is right by then; nobody notices."""
    vault = Vault()
    lock = provided(server, open_locks, vault, protocol, max_connection_age=0.3).lock("a")
    around(face, lock)
    before = vault.asked
    assert before >= 1
    grant = face.acquire(lock, timeout=0)
    assert grant is not None
    rotate(server, vault)
    face.extend(grant, 60)
    pause(face, 0.35)
    face.extend(grant, 60)
    assert vault.asked > before
    face.release(grant)
    around(face, lock)


@pytest.mark.parametrize("protocol", [2, 3])
def test_a_connection_that_is_killed_is_replaced_with_the_new_password(
    server: RedisServer, open_locks: Open, face: Face, protocol: int
) -> None:
    """[H24] `CLIENT KILL USER` after the change, as the book says: the next call finds the connection closed."""
    vault = Vault()
    lock = provided(server, open_locks, vault, protocol).lock("a")
    grant = face.acquire(lock, timeout=0)
    assert grant is not None
    before = vault.asked
    rotate(server, vault)
    kick(server)
    pause(face, 0.06)
    face.extend(grant, 60)
    assert vault.asked == before + 1
    face.release(grant)
    around(face, lock)
    assert vault.asked == before + 1


def test_waiters_are_woken_after_a_rotation(server: RedisServer, settings: Any, tune: Tune) -> None:
    """[H10] The connection that listens is replaced as well."""
    tune(max_poll_interval=60.0)  # who gets the lock before that was told
    vault = Vault()
    settings.REDIS_LOCKS = {
        "default": {"LOCATION": server.url(), "OPTIONS": {"credential_provider": vault, "socket_timeout": 2}},
        "theirs": {"LOCATION": server.url().replace("127.0.0.1", "localhost")},
    }
    grant = locks["theirs"].lock("a", expire=60).acquire()
    waiters = pair(locks.lock("a"))
    lined_up(server)
    before = asked(server), vault.asked
    rotate(server, vault)
    kick(server)
    eventually(lambda: asked(server) >= before[0] + 2)  # each asks once when the inbox is back
    listening(server)
    assert vault.asked > before[1]
    begin = clock.now()
    grant.release()
    assert all(waiter.result(20) for waiter in waiters)
    assert clock.now() - begin < BUSY


def test_changed_password_is_named_without_being_shown(server: RedisServer, open_locks: Open, face: Face) -> None:
    """What is open goes on; what comes new is refused, at once and in words that help, and neither password is shown."""
    lock = open_locks(login(server), OPTIONS={"socket_timeout": 2}).lock("a", expire=30)
    grant = face.acquire(lock, timeout=0)
    assert grant is not None
    rotate(server)
    face.extend(grant, 60)
    kick(server)
    pause(face, 0.06)
    other = locks.lock("b")
    begin = clock.now()
    for step in (
        lambda: face.extend(grant, 60),
        lambda: face.acquire(other, timeout=30),
        lambda: face.release(grant),
    ):
        with pytest.raises(
            LockBackendError, match=r"alias 'default'.*WRONGPASS.*Correct the login in LOCATION"
        ) as caught:
            step()
        assert OLD not in all_of(caught.value)
        assert NEW not in all_of(caught.value)
    assert clock.now() - begin < 2 + BUSY, "it can't pass"
    assert OLD not in repr(locks["default"])
    server.command("ACL", "SETUSER", "locks", f">{OLD}")
    eventually(lambda: not server.command("EXISTS", KEY))


def test_a_user_that_is_deleted_and_comes_back(server: RedisServer, open_locks: Open, face: Face) -> None:
    """Held locks are held until their leases end, and what couldn't be released is released when he is back."""
    lock = open_locks(login(server), OPTIONS={"socket_timeout": 2}).lock("a", expire=60)
    grant = face.acquire(lock, timeout=0)
    assert grant is not None
    server.command("ACL", "DELUSER", "locks")
    pause(face, 0.06)
    with pytest.raises(LockBackendError, match="WRONGPASS") as caught:
        face.extend(grant, 60)
    assert not caught.value.unanswered
    assert not grant.lost
    with pytest.raises(LockBackendError, match="WRONGPASS") as caught:
        face.release(grant)
    assert OLD not in all_of(caught.value)
    assert server.command("EXISTS", KEY)
    server.command("ACL", "SETUSER", "locks", "on", f">{OLD}", "~*", "&*", "+@all")
    eventually(lambda: not server.command("EXISTS", KEY))
    around(face, lock)


@pytest.mark.usefixtures("often")
def test_renewal_outlives_the_absence_of_a_user(
    server: RedisServer, open_locks: Open, caplog: pytest.LogCaptureFixture
) -> None:
    """[L22] As long as a lease lasts it is tried again; the warnings name no password."""
    grant = open_locks(login(server), EXPIRE=LEASE).lock("a").acquire()
    server.command("ACL", "DELUSER", "locks")
    eventually(lambda: "couldn't be renewed" in caplog.text)
    assert "WRONGPASS" in caplog.text
    assert OLD not in caplog.text
    server.command("ACL", "SETUSER", "locks", "on", f">{OLD}", "~*", "&*", "+@all")
    renewed(grant)
    grant.release()


def test_a_vault_that_is_sealed(server: RedisServer, open_locks: Open, face: Face) -> None:
    """A provider that fails is a server that can't be reached: waiters are patient with it, and the message is its own."""
    vault = Vault()
    lock = provided(server, open_locks, vault).lock("a")
    vault.sealed = True
    with pytest.raises(LockBackendError, match=r"alias 'default': can't reach .*the vault is sealed"):
        face.acquire(lock, timeout=0)
    with pytest.raises(LockBackendError, match="the vault is sealed"):
        face.acquire(lock, timeout=0.3)
    vault.sealed, vault.refusals = False, 2
    grant = face.acquire(lock, timeout=20)
    assert grant is not None
    face.release(grant)
    around(face, lock)


def test_a_wrong_password_from_a_vault(server: RedisServer, open_locks: Open, face: Face) -> None:
    vault = Vault()
    lock = provided(server, open_locks, vault).lock("a")
    rotate(server)
    with pytest.raises(LockBackendError, match=r"alias 'default'.*WRONGPASS") as caught:
        face.acquire(lock, timeout=5)
    assert OLD not in all_of(caught.value)


def test_settings_with_a_vault(server: RedisServer, open_locks: Open) -> None:
    """[53] Checks ask no vault. One beside a login in LOCATION is a mistake, told as one."""
    vault = Vault()
    provided(server, open_locks, vault)
    assert not [message for message in run_checks(tags=["redis_locks"]) if message.is_serious()]
    assert vault.asked == 0


def test_a_vault_beside_a_login(server: RedisServer, settings: Any) -> None:
    settings.REDIS_LOCKS = {"default": {"LOCATION": login(server), "OPTIONS": {"credential_provider": Vault()}}}
    (message,) = run_checks(tags=["redis_locks"])
    assert message.is_serious()
    assert "credential_provider" in message.msg
    assert OLD not in message.msg

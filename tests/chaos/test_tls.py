"""Encrypted connections, with and without a certificate of the client's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from django_redis_locks import LockBackendError, clock
from django_redis_locks.client import Locks
from tests.chaos.helpers import Async, Sync
from tests.chaos.tls import Certificates, encrypting
from tests.waiting import BUSY, eventually, in_thread
from tools.redis_server import RedisServer

pytestmark = pytest.mark.servers

Make = Callable[..., RedisServer]
Open = Callable[..., Locks]
Face = Sync | Async

PATIENT = {"socket_timeout": 10, "socket_connect_timeout": 10}


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="session")
def urls(redis_executable: None, certificates: Certificates) -> Iterator[list[str]]:
    """Of a server that anybody may use, and of one for those who have a certificate. They outlive the tests: what is swept
    afterwards finds them."""
    with ExitStack() as stack:

        def make(**config: str) -> RedisServer:
            return stack.enter_context(RedisServer({name.replace("_", "-"): value for name, value in config.items()}))

        ports = [encrypting(make, certificates, clients=clients)[1] for clients in (False, True)]
        yield [f"rediss://127.0.0.1:{port}/0" for port in ports]


@pytest.fixture
def url(urls: list[str]) -> str:
    """Any client may come."""
    return urls[0]


@pytest.fixture
def strict_url(urls: list[str]) -> str:
    """Only who has a certificate."""
    return urls[1]


def whole_life(client: Locks, face: Face) -> None:
    lock = client.lock("a", expire=30)
    for _ in range(2):
        grant = face.acquire(lock, timeout=0)
        assert grant is not None
        assert in_thread(lambda: lock.acquire(timeout=0)) is None
        face.extend(grant, 60)
        face.release(grant)
    assert not lock.locked()


@pytest.mark.parametrize("protocol", [2, 3])
def test_tls_connection_speaks_both_protocols(
    url: str, open_locks: Open, certificates: Certificates, face: Face, protocol: int
) -> None:
    """[L2] Encrypted as plain."""
    options = {"ssl_ca_certs": certificates.path("ca"), "protocol": protocol, "socket_timeout": 10}
    whole_life(open_locks(url, OPTIONS=options), face)


@pytest.mark.parametrize("where", ["LOCATION", "OPTIONS"])
def test_a_certificate_of_the_clients(
    strict_url: str, open_locks: Open, certificates: Certificates, face: Face, where: str
) -> None:
    """Its files are named in the URL or in the options."""
    files = {
        "ssl_ca_certs": certificates.path("ca"),
        "ssl_certfile": certificates.path("client"),
        "ssl_keyfile": certificates.key("client"),
    }
    if where == "LOCATION":
        query = "&".join(f"{name}={path}" for name, path in files.items())
        client = open_locks(f"{strict_url}?{query}", OPTIONS={"socket_timeout": 10})
    else:
        client = open_locks(strict_url, OPTIONS={"socket_timeout": 10, **files})
    whole_life(client, face)


def test_many_tasks_share_one_tls_connection(url: str, open_locks: Open, certificates: Certificates) -> None:
    """[H20] What one turn of the loop sends, and what comes back at once, is cut into records, not into answers."""
    client = open_locks(url, OPTIONS={"ssl_ca_certs": certificates.path("ca"), **PATIENT})

    async def one(number: int) -> None:
        for _ in range(5):
            async with client.lock(f"long:{number}:{'x' * 150}") as grant:
                assert grant.key.startswith(f"long:{number}:")
                await grant.aextend(60)

    async def main() -> None:
        await asyncio.gather(*map(one, range(10)))

    asyncio.run(main())


def test_a_connection_that_is_killed(
    make_server: Make, open_locks: Open, certificates: Certificates, face: Face
) -> None:
    """[H24] Without a close_notify: found out, and tried again at once."""
    server, port = encrypting(make_server, certificates)
    options = {"ssl_ca_certs": certificates.path("ca"), "socket_timeout": 10}
    client = open_locks(f"rediss://127.0.0.1:{port}/0", OPTIONS=options)
    for _ in range(3):
        whole_life(client, face)
        server.command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")


@pytest.mark.chaos
def test_a_server_that_is_silent(make_server: Make, open_locks: Open, certificates: Certificates, face: Face) -> None:
    """[F15] Encryption has no patience of its own: neither a request nor a handshake takes longer."""
    server, port = encrypting(make_server, certificates)
    options = {"ssl_ca_certs": certificates.path("ca"), "socket_timeout": 1.5, "socket_connect_timeout": 1.5}
    lock = open_locks(f"rediss://127.0.0.1:{port}/0", OPTIONS=options).lock("a", expire=60)
    grant = face.acquire(lock, timeout=0)
    assert grant is not None
    server.pause()
    for _ in range(2):
        begin = clock.now()
        with pytest.raises(LockBackendError, match="alias 'default'"):
            face.extend(grant, 60)
        assert clock.now() - begin < 2 * 1.5 + BUSY
    server.resume()
    eventually(lambda: server.command("PING"))
    face.extend(grant, 60)
    face.release(grant)


# Certificates that don't fit


def complaint(client: Locks, face: Face, wait: float = 0) -> str:
    begin = clock.now()
    with pytest.raises(LockBackendError) as caught:
        face.acquire(client.lock("a"), timeout=wait)
    assert clock.now() - begin < wait + PATIENT["socket_timeout"] + BUSY
    text = str(caught.value)
    assert "alias 'default'" in text
    assert "127.0.0.1" in text
    return text


@pytest.mark.parametrize("authority", ["other-ca", None])
def test_a_server_whose_authority_is_unknown(
    url: str, open_locks: Open, certificates: Certificates, face: Face, authority: str | None
) -> None:
    """The message says what failed, and which option names the right one."""
    options = {} if authority is None else {"ssl_ca_certs": certificates.path(authority)}
    text = complaint(open_locks(url, OPTIONS={"socket_timeout": 10, **options}), face)
    assert "certificate verify failed" in text
    assert "ssl_ca_certs" in text
    assert "Start that server" not in text


def test_a_server_of_another_name(make_server: Make, open_locks: Open, certificates: Certificates, face: Face) -> None:
    """The certificate is right, and not that of the host in LOCATION."""
    port = encrypting(make_server, certificates, name="elsewhere")[1]
    options = {"ssl_ca_certs": certificates.path("ca"), "ssl_check_hostname": True, "socket_timeout": 10}
    text = complaint(open_locks(f"rediss://127.0.0.1:{port}/0", OPTIONS=options), face)
    assert "mismatch" in text
    assert "LOCATION" in text


@pytest.mark.parametrize("who", ["nobody", "stranger"])
def test_a_client_without_the_right_certificate(
    strict_url: str, open_locks: Open, certificates: Certificates, face: Face, who: str
) -> None:
    """The server hangs up in the middle of the handshake, or right behind it: the message speaks of certificates."""
    options = {"ssl_ca_certs": certificates.path("ca"), "socket_timeout": 10}
    if who != "nobody":
        options |= {"ssl_certfile": certificates.path(who), "ssl_keyfile": certificates.key(who)}
    text = complaint(open_locks(strict_url, OPTIONS=options), face)
    assert "ssl_certfile" in text


def test_plain_words_to_a_server_that_encrypts(url: str, open_locks: Open, face: Face) -> None:
    """`redis://` where `rediss://` is spoken."""
    text = complaint(open_locks(url.replace("rediss", "redis"), OPTIONS={"socket_timeout": 10}), face)
    assert "can't reach" in text or "no answer" in text


def test_encrypted_words_to_a_server_that_does_not(redis_url: str, open_locks: Open, face: Face) -> None:
    """And the other way round: the message says which of the two it is."""
    text = complaint(
        open_locks(
            redis_url.replace("redis:", "rediss:"), OPTIONS={"socket_timeout": 0.5, "socket_connect_timeout": 0.5}
        ),
        face,
    )
    assert "redis://" in text


def test_a_file_that_is_not_there(url: str, open_locks: Open, face: Face) -> None:
    """Said by its name."""
    text = complaint(open_locks(url, OPTIONS={"ssl_ca_certs": "/nowhere/ca.pem", "socket_timeout": 10}), face)
    assert "No such file" in text

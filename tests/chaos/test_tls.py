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


def test_tls_connection_speaks_both_protocols(
    url: str, open_locks: Open, certificates: Certificates, face: Face
) -> None:
    """[L2] Encrypted as plain."""
    for protocol in (2, 3):
        options = {"ssl_ca_certs": certificates.path("ca"), "protocol": protocol, "socket_timeout": 10}
        whole_life(open_locks(url, OPTIONS=options), face)


def test_client_certificate_from_location_or_options_is_sent(
    strict_url: str, open_locks: Open, certificates: Certificates, face: Face
) -> None:
    files = {
        "ssl_ca_certs": certificates.path("ca"),
        "ssl_certfile": certificates.path("client"),
        "ssl_keyfile": certificates.key("client"),
    }
    query = "&".join(f"{name}={path}" for name, path in files.items())
    whole_life(open_locks(f"{strict_url}?{query}", OPTIONS={"socket_timeout": 10}), face)
    whole_life(open_locks(strict_url, OPTIONS={"socket_timeout": 10, **files}), face)


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


def test_tls_connection_that_is_killed_is_replaced(
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
def test_silent_tls_server_fails_requests_after_the_socket_timeout(
    make_server: Make, open_locks: Open, certificates: Certificates, face: Face
) -> None:
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


def error_of(client: Locks, face: Face, wait: float = 0) -> str:
    begin = clock.now()
    with pytest.raises(LockBackendError) as caught:
        face.acquire(client.lock("a"), timeout=wait)
    assert clock.now() - begin < wait + PATIENT["socket_timeout"] + BUSY
    text = str(caught.value)
    assert "alias 'default'" in text
    assert "127.0.0.1" in text
    return text


def test_server_of_an_unknown_authority_is_refused_with_a_hint(
    url: str, open_locks: Open, certificates: Certificates, face: Face
) -> None:
    """The message says what failed, and which option names the right one."""
    for options in ({}, {"ssl_ca_certs": certificates.path("other-ca")}):
        text = error_of(open_locks(url, OPTIONS={"socket_timeout": 10, **options}), face)
        assert "certificate verify failed" in text, options
        assert "ssl_ca_certs" in text, options
        assert "Start that server" not in text, options


def test_certificate_of_another_host_is_refused_with_a_hint(
    make_server: Make, open_locks: Open, certificates: Certificates, face: Face
) -> None:
    """The certificate is right, and not that of the host in LOCATION."""
    port = encrypting(make_server, certificates, name="elsewhere")[1]
    options = {"ssl_ca_certs": certificates.path("ca"), "ssl_check_hostname": True, "socket_timeout": 10}
    text = error_of(open_locks(f"rediss://127.0.0.1:{port}/0", OPTIONS=options), face)
    assert "mismatch" in text
    assert "LOCATION" in text


def test_client_without_the_right_certificate_raises_with_a_hint(
    strict_url: str, open_locks: Open, certificates: Certificates, face: Face
) -> None:
    """The server closes the connection during the handshake, or right behind it."""
    stranger = {"ssl_certfile": certificates.path("stranger"), "ssl_keyfile": certificates.key("stranger")}
    for files in ({}, stranger):
        options = {"ssl_ca_certs": certificates.path("ca"), "socket_timeout": 10, **files}
        assert "ssl_certfile" in error_of(open_locks(strict_url, OPTIONS=options), face), files


def test_plain_connection_to_a_tls_port_raises(url: str, open_locks: Open, face: Face) -> None:
    """`redis://` where `rediss://` is spoken."""
    text = error_of(open_locks(url.replace("rediss", "redis"), OPTIONS={"socket_timeout": 10}), face)
    assert "can't reach" in text or "no answer" in text


def test_tls_connection_to_a_plain_port_raises_with_a_hint(redis_url: str, open_locks: Open, face: Face) -> None:
    """And the other way round: the message says which of the two it is."""
    text = error_of(
        open_locks(
            redis_url.replace("redis:", "rediss:"), OPTIONS={"socket_timeout": 0.5, "socket_connect_timeout": 0.5}
        ),
        face,
    )
    assert "redis://" in text


def test_missing_certificate_file_is_named(url: str, open_locks: Open, face: Face) -> None:
    """Said by its name."""
    text = error_of(open_locks(url, OPTIONS={"ssl_ca_certs": "/nowhere/ca.pem", "socket_timeout": 10}), face)
    assert "No such file" in text

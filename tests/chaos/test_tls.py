"""Connections with TLS, with and without a client certificate."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import redis

from django_redis_locks import LockBackendError, clock
from django_redis_locks.client import Locks
from tests.chaos.helpers import Async, Sync
from tests.probes.client import replies_owed
from tests.servers import unavailable
from tests.waiting import BUSY, eventually, in_thread
from tools.redis_server import RedisServer

pytestmark = pytest.mark.servers

Make = Callable[..., RedisServer]
Open = Callable[..., Locks]
Face = Sync | Async

PATIENT = {"socket_timeout": 10, "socket_connect_timeout": 10}


class Certificates:
    """Two authorities: one has signed the certificates of server and client, the other one an unrelated certificate."""

    def __init__(self, folder: Path) -> None:
        if shutil.which("openssl") is None:
            unavailable("needs the program openssl")
        self._folder = folder
        for authority in ("ca", "other-ca"):
            self._make(authority, "-subj", f"/CN={authority}", "-addext", "keyUsage=critical,keyCertSign,cRLSign")
        here, there = "DNS:localhost,IP:127.0.0.1", "DNS:locks.example"
        for name, authority, hosts in (
            ("server", "ca", here),
            ("elsewhere", "ca", there),
            ("client", "ca", there),
            ("stranger", "other-ca", there),
        ):
            signed = ["-CA", self.path(authority), "-CAkey", self.key(authority)]
            about = ["-addext", "basicConstraints=critical,CA:FALSE", "-addext", f"subjectAltName={hosts}"]
            self._make(name, "-subj", f"/CN={name}", *signed, *about)

    def path(self, name: str) -> str:
        return str(self._folder / f"{name}.pem")

    def key(self, name: str) -> str:
        return str(self._folder / f"{name}.key")

    def _make(self, name: str, *more: str) -> None:
        curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
        files = ["-keyout", self.key(name), "-out", self.path(name)]
        subprocess.run(["openssl", "req", "-x509", *curve, *more, *files], check=True, capture_output=True)


def encrypting(
    make_server: Make, certificates: Certificates, *, clients: bool = False, name: str = "server"
) -> tuple[RedisServer, int]:
    """Start a server; return it with its TLS port. With ``clients`` it requires client certificates."""
    try:
        server = make_server(
            tls_port="0",
            tls_cert_file=certificates.path(name),
            tls_key_file=certificates.key(name),
            tls_ca_cert_file=certificates.path("ca"),
            tls_auth_clients="yes" if clients else "no",
        )
    except Exception as error:  # noqa: BLE001 - a server without TLS doesn't know the directives
        unavailable(f"needs a server with TLS: {error}")
    with redis.Redis.from_url(server.url()) as plain:
        for port in range(22_000, 23_000):
            try:
                plain.config_set("tls-port", port)
            except redis.ResponseError:
                continue
            return server, port
    raise AssertionError("there is no free port")


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="session")
def urls(redis_executable: None, certificates: Certificates) -> Iterator[list[str]]:
    """The URLs of a server without, and of one with required client certificates. The servers run until the session
    ends, since cleanups may follow a test."""
    with ExitStack() as stack:

        def make(**config: str) -> RedisServer:
            return stack.enter_context(RedisServer({name.replace("_", "-"): value for name, value in config.items()}))

        ports = [encrypting(make, certificates, clients=clients)[1] for clients in (False, True)]
        yield [f"rediss://127.0.0.1:{port}/0" for port in ports]


def whole_life(client: Locks, face: Face) -> None:
    lock = client.lock("a", expire=30)
    for _ in range(2):
        grant = face.acquire(lock, timeout=0)
        assert grant is not None
        assert in_thread(lambda: lock.acquire(timeout=0)) is None
        face.extend(grant, 60)
        face.release(grant)
    assert not lock.locked()


def test_tls_connection_speaks_both_protocols_and_sends_its_certificate(
    urls: list[str], open_locks: Open, certificates: Certificates, face: Face
) -> None:
    """[L2] TLS works like plain connections; a certificate may be named in LOCATION or in OPTIONS."""
    url, strict_url = urls
    for protocol in (2, 3):
        options = {"ssl_ca_certs": certificates.path("ca"), "protocol": protocol, "socket_timeout": 10}
        whole_life(open_locks(url, OPTIONS=options), face)
    files = {
        "ssl_ca_certs": certificates.path("ca"),
        "ssl_certfile": certificates.path("client"),
        "ssl_keyfile": certificates.key("client"),
    }
    query = "&".join(f"{name}={path}" for name, path in files.items())
    whole_life(open_locks(f"{strict_url}?{query}", OPTIONS={"socket_timeout": 10}), face)
    whole_life(open_locks(strict_url, OPTIONS={"socket_timeout": 10, **files}), face)


def test_sentinels_and_their_master_are_asked_with_tls(
    urls: list[str], open_locks: Open, certificates: Certificates, face: Face
) -> None:
    """[L2] The same authority serves for both. Without it neither is trusted."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    config = {
        "tls-port": port,
        "tls-cert-file": certificates.path("server"),
        "tls-key-file": certificates.key("server"),
        "tls-ca-cert-file": certificates.path("ca"),
        "tls-auth-clients": "no",
        "tls-replication": "yes",
        "sentinel": [f"monitor mymaster 127.0.0.1 {urlsplit(urls[0]).port} 1"],
    }
    with RedisServer(config, arguments=["--sentinel"]):
        location = f"rediss+sentinel://127.0.0.1:{port}/mymaster/0"
        whole_life(open_locks(location, OPTIONS={"ssl_ca_certs": certificates.path("ca"), **PATIENT}), face)
        untrusting = open_locks(location, OPTIONS={"ssl_ca_certs": certificates.path("other-ca"), **PATIENT})
        with pytest.raises(LockBackendError, match=r"no sentinel answers .*certificate verify failed"):
            face.acquire(untrusting.lock("a"), timeout=0)


def test_many_tasks_share_one_tls_connection(urls: list[str], open_locks: Open, certificates: Certificates) -> None:
    """[H20] TLS splits the data into records, which don't end where replies end."""
    client = open_locks(urls[0], OPTIONS={"ssl_ca_certs": certificates.path("ca"), **PATIENT})

    async def one(number: int) -> None:
        for _ in range(5):
            async with client.lock(f"long:{number}:{'x' * 150}") as grant:
                assert grant.key.startswith(f"long:{number}:")
                await grant.aextend(60)

    async def main() -> None:
        await asyncio.gather(*map(one, range(10)))

    asyncio.run(main())


def test_posted_write_over_tls_is_carried_out(make_server: Make, open_locks: Open, certificates: Certificates) -> None:
    """Its reply is received by the next request or by a timer. A write that the server refuses is repeated."""
    server, port = encrypting(make_server, certificates)
    options = {"ssl_ca_certs": certificates.path("ca"), "socket_timeout": 10}
    client = open_locks(f"rediss://127.0.0.1:{port}/0", OPTIONS=options)
    ref = client.record("posted")
    written = ref.put(None, {"state": "x"}, expire=60).record
    fields: dict[str, str] = {}

    def is_written() -> bool:
        found = ref.get()
        return found is not None and found.fields == fields

    for number, what in enumerate(("next request", "timer", "refused")):
        assert written is not None
        if what == "refused":
            server.command("SCRIPT", "FLUSH")
        fields = {"state": f"{number}{'x' * 20_000}"}  # more than one TLS record
        ref.post(written, fields, 60, "queued")
        assert what != "next request" or is_written()
        eventually(lambda: replies_owed(client) == 0)
        eventually(is_written)  # a repetition is sent a moment after the reply
        written = ref.get()


def test_tls_connection_that_is_killed_is_replaced(
    make_server: Make, open_locks: Open, certificates: Certificates, face: Face
) -> None:
    """[H24] Also without close_notify: the request is repeated at once."""
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
    """[F15] With TLS neither a request nor a handshake exceeds the timeout."""
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

    def extended() -> bool:
        with contextlib.suppress(LockBackendError):  # a busy machine may need longer for a handshake
            face.extend(grant, 60)
            return True
        return False

    eventually(extended)


# Invalid certificates


def test_connection_with_a_certificate_that_does_not_fit_is_refused_with_a_hint(
    make_server: Make, urls: list[str], redis_url: str, open_locks: Open, certificates: Certificates, face: Face
) -> None:
    """[E5] The message says what failed, and which option or part of LOCATION to correct. The host name is verified
    with every version of redis-py, unless an option disables it."""
    url, strict_url = urls
    elsewhere = f"rediss://127.0.0.1:{encrypting(make_server, certificates, name='elsewhere')[1]}/0"
    ours = {"ssl_ca_certs": certificates.path("ca")}
    for lax in ({**ours, "ssl_check_hostname": False}, {"ssl_cert_reqs": "none"}):
        whole_life(open_locks(elsewhere, OPTIONS=PATIENT | lax), face)
    whole_life(open_locks(f"{elsewhere}?ssl_cert_reqs=none", OPTIONS=PATIENT), face)
    stranger = {"ssl_certfile": certificates.path("stranger"), "ssl_keyfile": certificates.key("stranger")}
    brief = {"socket_timeout": 0.5, "socket_connect_timeout": 0.5}
    for location, options, expected in (
        (url, {}, "certificate verify failed.*ssl_ca_certs"),
        (url, {"ssl_ca_certs": certificates.path("other-ca")}, "certificate verify failed.*ssl_ca_certs"),
        (url, {"ssl_ca_certs": "/nowhere/ca.pem"}, "No such file"),
        (elsewhere, ours, "mismatch.*LOCATION"),
        (strict_url, ours, "ssl_certfile"),
        (strict_url, ours | stranger, "ssl_certfile"),
        (url.replace("rediss", "redis"), {}, "can't reach|no answer"),
        (redis_url.replace("redis:", "rediss:"), brief, "redis://"),
    ):
        begin = clock.now()
        with pytest.raises(LockBackendError, match=f"(?s)alias 'default'.*({expected})") as caught:
            face.acquire(open_locks(location, OPTIONS=PATIENT | options).lock("a"), timeout=0)
        assert clock.now() - begin < PATIENT["socket_timeout"] + BUSY, expected
        assert "127.0.0.1" in str(caught.value), expected
        assert "verify failed" not in expected or "Start that server" not in str(caught.value)

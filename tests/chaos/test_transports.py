"""The ways to a server: TCP, a unix socket, TLS; RESP2 and RESP3; with a user and without."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import redis

from django_redis_locks import locks
from django_redis_locks.client import Locks
from tests.chaos.helpers import elsewhere
from tests.servers import unavailable
from tools.redis_server import RedisServer

Make = Callable[..., RedisServer]
Open = Callable[..., Locks]


def both_faces(client: Locks) -> None:
    lock = client.lock("a", expire=0.5, renew=True)
    with lock as grant:
        assert elsewhere(lambda: lock.acquire(timeout=0)) is None
        grant.ensure_held(confirm=True)

    async def main() -> None:
        async with lock as grant:
            await grant.aextend(30)
            assert elsewhere(lambda: lock.acquire(timeout=0.1)) is None

    asyncio.run(main())
    assert not lock.locked()


@pytest.mark.parametrize("protocol", [2, 3])
def test_resp(redis_url: str, open_locks: Open, protocol: int) -> None:
    """[L2] The replies of the scripts are read alike in both protocols."""
    both_faces(open_locks(redis_url, OPTIONS={"protocol": protocol}))


@pytest.mark.parametrize("scheme", ["redis", "valkey"])
def test_a_user_and_a_database(make_server: Make, open_locks: Open, scheme: str) -> None:
    """Whatever redis-py reads from a URL works, and Valkey's spelling of it."""
    server = make_server(requirepass="s3cret")
    both_faces(open_locks(f"{scheme}://default:s3cret@127.0.0.1:{server.port}/3"))
    assert "s3cret" not in repr(locks["default"])


def test_a_unix_socket(make_server: Make, open_locks: Open, tmp_path: Path) -> None:
    """SO_LINGER means nothing there, and harms nothing."""
    path = f"/tmp/drl-{tmp_path.name[-40:]}.sock"  # a socket's path must be short
    make_server(unixsocket=path)
    both_faces(open_locks(f"unix://{path}?db=1"))


@pytest.mark.servers
def test_tls(make_server: Make, open_locks: Open, tmp_path: Path) -> None:
    """An encrypted connection is dropped, closed and shared as a plain one."""
    if shutil.which("openssl") is None:
        unavailable("needs the program openssl")
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *subject]
    subprocess.run([*command, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    try:
        server = make_server(tls_port="0", tls_cert_file=str(certificate), tls_key_file=str(key), tls_auth_clients="no")
    except Exception as error:  # noqa: BLE001 - a server without TLS doesn't know the directives
        unavailable(f"needs a server with TLS: {error}")
    with redis.Redis.from_url(server.url()) as plain:
        for port in range(22_000, 23_000):
            try:
                plain.config_set("tls-port", port)
                break
            except redis.ResponseError:
                continue
        url = f"rediss://127.0.0.1:{port}/0?ssl_ca_certs={certificate}"
        both_faces(open_locks(url, OPTIONS={"socket_timeout": 2}))

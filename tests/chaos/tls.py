"""Certificates for tests, and a server that encrypts."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import redis

from tests.servers import unavailable
from tools.redis_server import RedisServer

Make = Callable[..., RedisServer]


class Certificates:
    """Two authorities; one has signed a server's certificate and a client's, the other one what a stranger has."""

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
    """A server, and the port on which it encrypts; ``clients`` must have a certificate of their own, or needn't."""
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

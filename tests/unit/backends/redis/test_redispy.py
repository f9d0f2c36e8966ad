"""How redis-py packs requests in a handshake."""

from __future__ import annotations

from redis.connection import PythonRespSerializer

from django_redis_locks.backends.redis.redispy import connection_makers


def test_connections_of_every_scheme_pack_without_hiredis() -> None:
    """[H21] hiredis's packer crashes the process when a signal handler raises inside it."""
    for scheme in ("redis", "rediss", "unix"):
        make, _, make_resp2 = connection_makers(f"{scheme}://localhost/0", {})
        for connection in (make(), make_resp2()):
            assert type(connection._command_packer) is PythonRespSerializer, scheme

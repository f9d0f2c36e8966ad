"""LOCATION with sentinels: its parts, its identity, its form without logins, and what is wrong with it."""

from __future__ import annotations

from typing import Any

import pytest

from django_redis_locks.backends.redis import RedisBackend
from django_redis_locks.backends.redis.sentinel_url import SENTINEL_SCHEMES, parse
from django_redis_locks.backends.redis.urls import identity, mask_password

DATABASES: list[tuple[str, dict[str, Any], str]] = [
    ("redis+sentinel://s1/m", {}, "sentinel:m@s1:26379/0"),
    ("redis+sentinel://S2:5,s1:26379/m/3", {}, "sentinel:m@s1:26379,s2:5/3"),
    ("rediss+sentinel://me:p,w@s1,s2:5/m/3", {"db": 4}, "sentinel:m@s1:26379,s2:5/3"),
    ("valkey+sentinel://s2:5,s1/m?db=3", {"db": 4}, "sentinel:m@s1:26379,s2:5/3"),
    ("valkeys+sentinel://s2:5,s1/m", {"db": 3}, "sentinel:m@s1:26379,s2:5/3"),
    ("redis+sentinel://[::1],[fe80::2]:5/my%20m/0", {}, "sentinel:my m@[::1]:26379,[fe80::2]:5/0"),
]
MASKED = {
    "redis+sentinel://s1,s2/m/0": "redis+sentinel://s1:26379,s2:26379/m/0",
    "valkeys+sentinel://me:secret@s1:5,s2/m/2": "valkeys+sentinel://me:***@s1:5,s2:26379/m/2",
    "redis+sentinel://:secret@s1/m/2": "redis+sentinel://:***@s1:26379/m/2",
    "redis+sentinel://secret@s1/m/2": "redis+sentinel://***@s1:26379/m/2",
    "redis+sentinel://me:secret@s1/m/2?sentinel_password=secret": "redis+sentinel://me:***@s1:26379/m/2",
    "redis+sentinel://s1/m/2?sentinel_password=sec@ret": "redis+sentinel://***",
    "redis+sentinel://me:sec/ret@s1/m/0": "redis+sentinel://me:***@s1/m/0",
    "redis+sentinel://me:secret@s1,you:secret@s2/m/0": "redis+sentinel://me:***@s2/m/0",
}
WRONG = {
    "redis+sentinel://": "sentinel without a host",
    "redis+sentinel://s1,s2": "names no service",
    "redis+sentinel://s1,s2/": "names no service",
    "redis+sentinel://s1,s2//0": "names no service",
    "redis+sentinel://s1/m/": "must end with the number of a database",
    "redis+sentinel://s1/m/x": "must end with the number of a database",
    "redis+sentinel://s1/m/0/1": "must end with the number of a database",
    "redis+sentinel:///m/0": "sentinel without a host",
    "redis+sentinel://s1,/m/0": "sentinel without a host",
    "redis+sentinel://s1,:26379/m/0": "sentinel without a host",
    "redis+sentinel://s1:port/m/0": "sentinel with an invalid address",
    "redis+sentinel://s1:65536/m/0": "sentinel with an invalid address",
    "redis+sentinel://[::1/m/0": "sentinel with an invalid address",
    "redis+sentinel://me:sec/ret@s1/m/0": "percent-encoded",
    "redis+sentinel://me:secret@s1,you:secret@s2/m/0": "one login",
    "redis+sentinels://s1/m/0": r"its scheme is one of .*redis\+sentinel",
    "redis+sentinel://s1/m/0?sokcet_timeout=1": "unknown argument 'sokcet_timeout'; did you mean 'socket_timeout'",
    "redis+sentinel://s1/m/0?sentinel_pasword=secret": "sentinel.* unknown argument 'pasword'; did you mean 'password'",
}
WRONG_OPTIONS: list[tuple[dict[str, Any], str]] = [
    ({"sentinel_kwargs": {"pasword": "secret"}}, "sentinel.* unknown argument 'pasword'; did you mean 'password'"),
    ({"sentinel_kwargs": "secret"}, "sentinel_kwargs is a dict, not str"),
    ({"sentinel_kwargs": {"socket_timeout": None}}, "socket_timeout is a number of seconds above 0"),
    ({"min_other_sentinels": -1}, "min_other_sentinels is a whole number"),
    ({"min_other_sentinels": "2"}, "min_other_sentinels is a whole number"),
    ({"replicas": -1}, "replicas is a whole number"),
    ({"sokcet_timeout": 1}, "unknown argument 'sokcet_timeout'"),
]


def test_identity_of_one_database_is_one_however_it_is_spelled() -> None:
    """[F23] It names the sentinels and the service: the master may change."""
    for location, options, database in DATABASES:
        assert identity(location, options) == database
        backend = RedisBackend(location, options)
        assert backend.identity == database
        assert f"/{backend._pool._make().db}" == database[-2:]


def test_masked_location_shows_no_login() -> None:
    """[D54] Also of a malformed URL."""
    assert {location: mask_password(location) for location in MASKED} == MASKED


def test_wrong_location_and_options_raise_one_sentence_without_the_login() -> None:
    """[D54] Each names what is missing or wrong."""
    cases = [(location, {}, message) for location, message in WRONG.items()]
    cases += [("redis+sentinel://s1/m/0", options, message) for options, message in WRONG_OPTIONS]
    for location, options, message in cases:
        with pytest.raises((ValueError, TypeError), match=message) as caught:
            RedisBackend(location, options)
        assert RedisBackend.validation_error(location, options) == str(caught.value)
        assert "sec" not in str(caught.value).replace("seconds", "")
        assert "ret" not in str(caught.value)


def test_options_of_sentinels_are_those_of_their_connections() -> None:
    """Sentinels share the timeouts and TLS settings of the master, never its login."""
    location = "rediss+sentinel://me:secret@s1/m/0?socket_timeout=3&sentinel_username=watch&sentinel_socket_timeout=0.5"
    options = {"ssl_cert_reqs": "none", "username": "other", "sentinel_kwargs": {"password": "pw"}}
    backend = RedisBackend(location, options)
    assert backend._sentinels is not None
    sentinel, master = backend._sentinels._make(), backend._pool._make()
    assert (sentinel.username, sentinel.password, sentinel.socket_timeout) == ("watch", "pw", 0.5)
    assert (master.username, master.password, master.socket_timeout) == ("me", "secret", 3.0)
    assert sentinel.cert_reqs == master.cert_reqs
    plain = RedisBackend(location, {**options, "sentinel_kwargs": {"ssl": False}})
    assert plain._sentinels is not None
    assert not hasattr(plain._sentinels._make(), "cert_reqs")


def test_every_scheme_says_whether_connections_are_encrypted() -> None:
    tls = {scheme: parse(f"{scheme}://s1/m").servers.tls for scheme in SENTINEL_SCHEMES}
    assert tls == {
        "redis+sentinel": False,
        "rediss+sentinel": True,
        "valkey+sentinel": False,
        "valkeys+sentinel": True,
    }

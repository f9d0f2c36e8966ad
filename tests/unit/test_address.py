"""LOCATION: which database it means, and what of it may be shown."""

from __future__ import annotations

import pytest

from django_redis_locks.backends.redis import RedisBackend
from django_redis_locks.backends.redis.address import identity, masked


@pytest.mark.parametrize(
    ("location", "options", "database"),
    [
        ("redis://h", {}, "redis:h:6379/0"),
        ("redis://h/", {}, "redis:h:6379/0"),
        ("redis://H:6379/0", {}, "redis:h:6379/0"),
        ("rediss://me:pw@h/0", {}, "redis:h:6379/0"),
        ("redis://h?db=5", {}, "redis:h:6379/5"),
        ("redis://h", {"db": 5}, "redis:h:6379/5"),
        ("redis://h/0", {"db": 5}, "redis:h:6379/0"),
        ("unix:///run/redis.sock", {}, "unix:/run/redis.sock?db=0"),
        ("unix:///run/redis.sock?db=2", {"db": 5}, "unix:/run/redis.sock?db=2"),
    ],
)
def test_one_database_has_one_identity(location: str, options: dict[str, int], database: str) -> None:
    """[F23] However it is spelled, as redis-py reads it: the URL first, then the options."""
    assert identity(location, options) == database
    connection = RedisBackend(location, options)._wire._make()
    assert f"{connection.db}" == database.rpartition("=" if "unix" in database else "/")[2]


@pytest.mark.parametrize(
    ("location", "shown"),
    [
        ("redis://h:1/0", "redis://h:1/0"),
        ("redis://me:secret@h/0", "redis://me:***@h/0"),
        ("redis://:secret@h/0", "redis://:***@h/0"),
        ("redis://secret@h/0", "redis://***@h/0"),
        ("redis://me:sec/ret@h:1/0", "redis://me:***@h:1/0"),
        ("redis://me:sec#r@et@h:1/0", "redis://me:***@h:1/0"),
        ("redis://h/0?password=sec@ret", "redis://***"),
        ("redis://me:sec?ret@h/0?db=1", "redis://me:***@h/0"),
        ("me:secret@h:6379", "me:***@h:6379"),
        (":secret@h:1", ":***@h:1"),
    ],
)
def test_no_password_is_shown(location: str, shown: str) -> None:
    """[D54] Not even that of a URL that can't be read, where it stands in no password's place."""
    assert masked(location) == shown


@pytest.mark.parametrize(
    "location",
    [
        "",
        "redis://h/abc",
        "redis://h/-1",
        "redis://me:sec/ret@h:1/0",
        "redis://h:port/0",
        "redis://",
        "redis:h",
        "http://h",
    ],
)
def test_what_is_no_url_says_so(location: str) -> None:
    """[D54] A parser's own message would show a part of the password."""
    with pytest.raises(ValueError, match="LOCATION") as caught:
        RedisBackend(location, {})
    assert "sec" not in str(caught.value)
    assert "ret" not in str(caught.value)

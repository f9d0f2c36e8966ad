"""LOCATION: which database it names, and its form without the password."""

from __future__ import annotations

import pytest

from django_redis_locks.backends.redis import RedisBackend
from django_redis_locks.backends.redis.urls import identity, mask_password

DATABASES: list[tuple[str, dict[str, int], str]] = [
    ("redis://h", {}, "redis:h:6379/0"),
    ("redis://h/", {}, "redis:h:6379/0"),
    ("redis://H:6379/0", {}, "redis:h:6379/0"),
    ("rediss://me:pw@h/0", {}, "redis:h:6379/0"),
    ("redis://h?db=5", {}, "redis:h:6379/5"),
    ("redis://h", {"db": 5}, "redis:h:6379/5"),
    ("redis://h/0", {"db": 5}, "redis:h:6379/0"),
    ("unix:///run/redis.sock", {}, "unix:/run/redis.sock?db=0"),
    ("unix:///run/redis.sock?db=2", {"db": 5}, "unix:/run/redis.sock?db=2"),
]
MASKED = {
    "redis://h:1/0": "redis://h:1/0",
    "redis://me:secret@h/0": "redis://me:***@h/0",
    "redis://:secret@h/0": "redis://:***@h/0",
    "redis://secret@h/0": "redis://***@h/0",
    "redis://me:sec/ret@h:1/0": "redis://me:***@h:1/0",
    "redis://me:sec#r@et@h:1/0": "redis://me:***@h:1/0",
    "redis://h/0?password=sec@ret": "redis://***",
    "redis://me:sec?ret@h/0?db=1": "redis://me:***@h/0",
    "me:secret@h:6379": "me:***@h:6379",
    ":secret@h:1": ":***@h:1",
}
NO_URLS = [
    "",
    "redis://h/abc",
    "redis://h/-1",
    "redis://me:sec/ret@h:1/0",
    "redis://h:port/0",
    "redis://",
    "redis:h",
    "http://h",
]


def test_identity_of_one_database_is_one_however_it_is_spelled() -> None:
    """[F23] As redis-py reads it: the URL before the options."""
    for location, options, database in DATABASES:
        assert identity(location, options) == database
        connection = RedisBackend(location, options)._pool._make()
        assert f"{connection.db}" == database.rpartition("=" if "unix" in database else "/")[2], location


def test_masked_location_shows_no_password() -> None:
    """[D54] Also of a malformed URL."""
    assert {location: mask_password(location) for location in MASKED} == MASKED


def test_location_that_is_no_url_raises_ValueError_without_the_password() -> None:
    """[D54] The parser's own message would show a part of it."""
    for location in NO_URLS:
        with pytest.raises(ValueError, match="LOCATION") as caught:
            RedisBackend(location, {})
        assert "sec" not in str(caught.value)
        assert "ret" not in str(caught.value)

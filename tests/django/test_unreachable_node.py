"""The list of a Cluster while one of its masters can't be reached: the locks of the others are shown, and which is away."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple
from zlib import crc32

import pytest

from django_redis_locks import LockBackendError, inspection, locks, release_dead
from tests.django.admin_site import LIST, VIEW, client_with_permissions, listed_keys, urlpatterns, visible_text
from tests.django.test_console import call
from tests.probes.client import slot_of
from tests.probes.tuning import Tune
from tools.redis_cluster import RedisCluster

__all__ = ["urlpatterns"]

pytestmark = pytest.mark.django_db

KEYS = [f"job:{number}" for number in range(12)]


class Away(NamedTuple):
    """A master that is stopped, and the held locks that the others have."""

    port: str
    left: list[str]


@pytest.fixture
def away(settings: Any, tune: Tune, redis_cluster: RedisCluster) -> Iterator[Away]:
    """For a shorter time than a failover takes."""
    redis_cluster.flush()
    tune(socket_timeout=0.2)
    options = {"socket_timeout": 0.2}
    settings.REDIS_LOCKS = {"default": {"LOCATION": redis_cluster.location(), "OPTIONS": options, "BACKEND_WAIT": 0.2}}
    grants = [locks.lock(key, expire=60).acquire() for key in KEYS]
    master = redis_cluster.masters[0]
    left = sorted(key for key in KEYS if redis_cluster.owner(slot(key)) is not master)
    assert left != sorted(KEYS)
    master.pause()
    yield Away(str(master.port), left)
    master.resume()
    redis_cluster.wait_until_whole()
    for grant in grants:
        grant.release()


def slot(key: str) -> int:
    return slot_of(f"lock:{{{crc32(key.encode()) % 256}}}:k:{key}")


@pytest.mark.parametrize("order", ["lease_left", "key", "holder"])
def test_list_has_the_locks_of_the_other_masters(away: Away, order: str) -> None:
    """However it is sorted, which decides what is read."""
    page = inspection.held(order=order)
    assert sorted(row.key for row in page.rows) == away.left
    counts = inspection.counts()
    assert counts.held == len(away.left)
    for (reason,) in (page.unreachable, counts.unreachable):
        assert f"127.0.0.1:{away.port}" in reason


def test_console_says_that_the_list_is_incomplete(away: Away) -> None:
    """With the exit code of a store that is down."""
    shown = call("list", "--json")
    assert shown.code == 3
    assert sorted(row["key"] for row in shown.document["locks"]) == away.left
    assert away.port in str(shown.document["aliases"]["default"]["unreachable"])
    assert shown.err.startswith("default: the result is incomplete: ")
    assert away.port in shown.err


def test_admin_shows_the_other_locks_below_the_reason(away: Away) -> None:
    response = client_with_permissions(VIEW).get(LIST)
    assert sorted(listed_keys(response)) == away.left
    text = visible_text(response)
    assert "Some locks can't be reached" in text
    assert away.port in text


def test_dead_holders_are_not_searched_on_a_part_of_the_masters(away: Away) -> None:
    with pytest.raises(LockBackendError, match=away.port):
        release_dead()

"""The settings of a Redlock, and `check --deploy` of its servers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.core.checks import CheckMessage, run_checks

from django_redis_locks import InvalidLockBackend, LockBackendError, LockLost, diagnosis, inspection, locks
from django_redis_locks.fencing import fenced_update
from tests.django.test_server_checks import ids
from tools.redis_server import RedisServer

BACKEND = "django_redis_locks.backends.redlock.RedlockBackend"
URLS = [f"redis://me:hunter{number}@10.0.0.{number}:6379/0" for number in range(1, 6)]

WRONG: list[tuple[Any, dict[str, Any], str, str]] = [
    (URLS[0], {}, "E006", "LOCATION of a Redlock is a list of 3, 5 or 7 URLs, not a text"),
    (None, {}, "E006", "LOCATION of a Redlock is a list of 3, 5 or 7 URLs, not a text"),
    (URLS[:4], {}, "E006", "LOCATION of a Redlock is a list of 3, 5 or 7 URLs, not of 4"),
    (URLS[:1], {}, "E006", "LOCATION of a Redlock is a list of 3, 5 or 7 URLs, not of 1"),
    ([*URLS[:2], 6379], {}, "E006", "server 3 of LOCATION is a URL, not int"),
    (
        [*URLS[:2], URLS[0].replace("/0", "/3").replace("hunter1", "hunter9")],
        {},
        "E006",
        "the same server twice: redis://me:***@10.0.0.1:6379/0 and redis://me:***@10.0.0.1:6379/3 are one server",
    ),
    (
        [*URLS[:2], "redis+sentinel://me:hunter3@s1,s2/main"],
        {},
        "E006",
        "server 3 of LOCATION is a single server, not redis+sentinel://: a Redlock has independent servers",
    ),
    (
        [*URLS[:2], "memcached://me:hunter3@10.0.0.3"],
        {},
        "E006",
        "LOCATION 'memcached://me:***@10.0.0.3' isn't the URL",
    ),
    (URLS, {"fence": 1}, "E032", "the option fence is True or False, not 1"),
    (URLS, {"replicas": 1}, "E032", "the option replicas isn't for a Redlock: its servers are independent"),
    (URLS, {"socket_timout": 1}, "E032", "did you mean 'socket_timeout'?"),
]


def run(*, deploy: bool) -> list[CheckMessage]:
    """Run the checks, without those of the decorators of other tests, which a Redlock may not support."""
    found = run_checks(tags=["redis_locks"], include_deployment_checks=deploy)
    return [message for message in found if message.id != "redis_locks.E068"]


def entry(location: Any, **more: Any) -> dict[str, Any]:
    return {"default": {"BACKEND": BACKEND, "LOCATION": location, **more}}


@pytest.mark.parametrize(("location", "options", "id", "text"), WRONG)
def test_wrong_servers_are_said_in_one_sentence(
    settings: Any, location: Any, options: dict[str, Any], id: str, text: str
) -> None:
    settings.REDIS_LOCKS = entry(location, OPTIONS=options)
    with pytest.raises(InvalidLockBackend) as raised:
        locks.lock("a")
    (message,) = run(deploy=False)
    assert ids([message]) == [id]
    assert text in message.msg
    assert message.msg in str(raised.value)
    assert "hunter" not in str(raised.value)


def test_locations_are_masked(settings: Any) -> None:
    settings.REDIS_LOCKS = entry(URLS)
    assert run(deploy=False) == []
    assert "hunter" not in repr(locks["default"])
    assert repr(locks["default"]).count("me:***@") == 5


@pytest.mark.parametrize(("timeout", "lease", "warned"), [(0.5, 1.5, False), (0.6, 1.5, True), (None, 1, True)])
def test_long_timeout_is_W116(settings: Any, timeout: float | None, lease: float, warned: bool) -> None:
    options = {} if timeout is None else {"socket_timeout": timeout}
    settings.REDIS_LOCKS = entry(URLS, EXPIRE=lease, OPTIONS=options)
    assert ids(run(deploy=False)) == ["W116"] * warned


def test_each_server_is_checked(settings: Any, redlock_servers: list[RedisServer], closed_port: int) -> None:
    """W117 for a server without a file that is always synced; W101 for one that is away. The others go on."""
    redlock_servers[0].command("CONFIG", "SET", "appendonly", "yes", "appendfsync", "always")
    urls = [server.url() for server in redlock_servers[:2]]
    try:
        settings.REDIS_LOCKS = entry([*urls, f"redis://me:hunter2@127.0.0.1:{closed_port}/0"])
        messages = sorted(run(deploy=True), key=lambda message: str(message.id))
    finally:
        redlock_servers[0].command("CONFIG", "SET", "appendonly", "no", "appendfsync", "everysec")
    assert ids(messages) == ["W101", "W117"]
    assert f"me:***@127.0.0.1:{closed_port}" in messages[0].msg
    assert f"{urls[1]} has no append-only file" in messages[1].msg


def test_wrong_password_of_some_servers_is_named(settings: Any, redlock_servers: list[RedisServer]) -> None:
    """One wrong password costs a vote, which the checks report. A majority of them is an error."""
    urls = [server.url() for server in redlock_servers[:3]]
    wrong = [url.replace("//", "//me:hunter2@") for url in urls]
    settings.REDIS_LOCKS = entry([wrong[0], *urls[1:]])
    with locks.lock("a"):
        assert locks.lock("a").locked()
    (reason,) = diagnosis.facts().unreachable
    assert "WRONGPASS" in reason
    settings.REDIS_LOCKS = entry([*wrong[:2], urls[2]])
    with pytest.raises(LockBackendError) as failed:
        locks.lock("a").acquire()
    assert "1 of the 3 servers" in str(failed.value)
    assert "WRONGPASS" in str(failed.value)
    assert "hunter2" not in str(failed.value)


def test_lock_of_a_minority_is_unclear(settings: Any, redlock_location: list[str]) -> None:
    settings.REDIS_LOCKS = {**entry(redlock_location), "one": {"LOCATION": redlock_location[0]}}
    grant = locks["one"].lock("a").acquire()
    assert grant
    found = inspection.find("a")
    assert (found.state, found.fence) == ("unclear", grant.fence)
    assert [row.state for row in inspection.held().rows] == ["unclear"]
    assert not locks.lock("a").locked()
    assert inspection.force_release("a", fence=grant.fence)
    assert inspection.find("a").state == "free"
    with pytest.raises(LockLost):
        grant.release()


def test_grant_without_fence(settings: Any, redlock_location: list[str]) -> None:
    settings.REDIS_LOCKS = entry(redlock_location, OPTIONS={"fence": False})
    grant = locks.lock("a").acquire()
    assert grant
    assert grant.fence is None
    assert grant.protected
    grant.ensure_held(confirm=True)
    with pytest.raises(TypeError, match="has no fence to compare"):
        fenced_update(Group.objects.all(), grant, name="x")
    assert inspection.find("a").state == "held"
    assert inspection.force_release("a", fence=inspection.find("a").fence)
    assert not locks.lock("a").locked()
    with pytest.raises(LockLost):
        grant.release()


def test_what_a_majority_cant_have_is_refused(settings: Any) -> None:
    settings.REDIS_LOCKS = entry(URLS)
    with pytest.raises(InvalidLockBackend) as refused:
        locks.semaphore("a", 2)
    assert str(refused.value) == (
        "REDIS_LOCKS['default']: semaphores need Redis; RedlockBackend can't have them, as a majority isn't a count."
    )
    makers: list[Callable[[], object]] = [
        lambda: locks.record("a"),
        lambda: locks.latch("a"),
        lambda: locks.fair_lock("a"),
        lambda: locks.rwlock("a"),
        lambda: locks.multi_lock("a", "b"),
    ]
    for make in makers:
        with pytest.raises(InvalidLockBackend, match="RedlockBackend can't have them"):
            make()


def test_holds_arent_detached(settings: Any, redlock_location: list[str]) -> None:
    settings.REDIS_LOCKS = entry(redlock_location)
    with locks.lock("a") as grant:
        with pytest.raises(InvalidLockBackend, match="need Redis; RedlockBackend can't have them"):
            grant.detach()
        assert grant.held

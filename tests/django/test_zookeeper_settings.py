"""The settings of a store in ZooKeeper, and `check --deploy` of its servers."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.checks import CheckMessage, run_checks

from django_redis_locks import InvalidLockBackend, LockBackendError, diagnosis, inspection, locks
from tests.django.test_server_checks import ids
from tests.probes.client import forget_kazoo
from tests.probes.tuning import Tune

BACKEND = "django_redis_locks.backends.zookeeper.ZooKeeperBackend"
HOSTS = "zk1:2181,zk2:2181,zk3:2181/app"

WRONG: list[tuple[Any, dict[str, Any], str, str]] = [
    (None, {}, "E005", "names servers, such as zk1:2181,zk2:2181,zk3:2181/app"),
    ("redis://zk1:2181", {}, "E005", "is a text of servers, such as zk1:2181,zk2:2181,zk3:2181/app"),
    ("zk1:port", {}, "E005", "names servers, such as zk1:2181,zk2:2181,zk3:2181/app"),
    (HOSTS, {"auth_dat": []}, "E032", "ZooKeeper has no option 'auth_dat'; did you mean 'auth_data'?"),
    (HOSTS, {"timeout": 30}, "E032", "ZooKeeper has no option 'timeout'"),
    (HOSTS, {"EXPIRE": 30}, "E032", "the option 'EXPIRE' belongs beside OPTIONS"),
]


def run(*, deploy: bool = False) -> list[CheckMessage]:
    """Run the checks, without those of the decorators of other tests, which ZooKeeper may not support."""
    found = run_checks(tags=["redis_locks"], include_deployment_checks=deploy)
    return [message for message in found if message.id != "redis_locks.E068"]


def entry(location: Any = HOSTS, **more: Any) -> dict[str, Any]:
    return {"default": {"BACKEND": BACKEND, "LOCATION": location, **more}}


@pytest.mark.parametrize(("location", "options", "id", "text"), WRONG)
def test_wrong_settings_are_said_in_one_sentence(
    settings: Any, location: Any, options: dict[str, Any], id: str, text: str
) -> None:
    settings.REDIS_LOCKS = entry(location, OPTIONS=options)
    with pytest.raises(InvalidLockBackend) as raised:
        locks.lock("a")
    (message,) = run()
    assert ids([message]) == [id]
    assert text in message.msg
    assert message.msg in str(raised.value)


def test_missing_kazoo_is_E054(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    forget_kazoo(monkeypatch)
    settings.REDIS_LOCKS = entry()
    (message,) = run()
    assert ids([message]) == ["E054"]
    with pytest.raises(InvalidLockBackend, match=r"install django-redis-locks\[zookeeper\]"):
        locks.lock("a")


def test_longer_lease_than_that_of_the_alias_is_E055(settings: Any) -> None:
    settings.REDIS_LOCKS = entry(EXPIRE=30, LOCKS={"short": {"EXPIRE": 5}, "long": {"EXPIRE": 60}, "none": {}})
    (message,) = run()
    assert ids([message]) == ["E055"]
    assert "['LOCKS']['long']" in message.msg


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (
            lambda: locks.record("a"),
            "records need Redis; ZooKeeperBackend can't have them, as its nodes end with their",
        ),
        (lambda: locks.lock("a", expire=5, auto_release=False), "locks with auto_release=False need Redis"),
        (lambda: locks.multi_lock("a", "b"), "multi locks need Redis; ZooKeeperBackend can't have them"),
        (diagnosis.fences, "fence counters need Redis; ZooKeeperBackend can't have them, as its fences are"),
    ],
    ids=["record", "kept", "multi", "fences"],
)
def test_what_nodes_cannot_do_is_refused(settings: Any, make: Any, text: str) -> None:
    settings.REDIS_LOCKS = entry()
    with pytest.raises(InvalidLockBackend) as refused:
        make()
    assert text in str(refused.value)


def test_lease_beyond_the_session_is_refused(settings: Any, zookeeper_location: str) -> None:
    settings.REDIS_LOCKS = entry(zookeeper_location, EXPIRE=3)
    with pytest.raises(
        ValueError, match="a lease is at most EXPIRE, 3 s, not 60: raise EXPIRE, or have the lease renewed"
    ):
        locks.lock("a", expire=60).acquire()
    with locks.lock("a") as grant, pytest.raises(ValueError, match="at most EXPIRE"):
        grant.extend(60)
    assert inspection.find("a").state == "free"


@pytest.mark.parametrize(("expire", "text"), [(30, None), (0.6, "stays held for 1 s"), (3000, "Set EXPIRE to 2700")])
def test_other_timeout_of_the_ensemble_is_W121(
    settings: Any, zookeeper_location: str, expire: float, text: str | None
) -> None:
    settings.REDIS_LOCKS = entry(zookeeper_location, EXPIRE=expire, MAX_HOLD=3600)
    found = [message for message in run(deploy=True) if not str(message.id).endswith("W014")]
    if text is None:
        assert found == []
        return
    (message,) = found
    assert ids([message]) == ["W121"]
    assert text in str(message.hint)
    if expire > 60:
        with pytest.raises(ValueError, match="so that EXPIRE is at most 2700: set it to that, or raise the servers'"):
            locks.lock("a").acquire()


def test_unreachable_ensemble_is_W101(settings: Any, tune: Tune) -> None:
    tune(socket_timeout=0.3)
    settings.REDIS_LOCKS = entry("127.0.0.1:1", BACKEND_WAIT=0)
    (message,) = run(deploy=True)
    assert ids([message]) == ["W101"]
    assert "ZooKeeper at 127.0.0.1:1 can't be reached" in message.msg
    with pytest.raises(LockBackendError, match=r"ZooKeeper at 127\.0\.0\.1:1 can't be reached"):
        locks.lock("a").acquire()

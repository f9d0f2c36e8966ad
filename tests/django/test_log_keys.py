"""Log records and the keys of locks, which may be personal data."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import Any

import pytest

from django_redis_locks import LockError, LockLost, inspection, locks, redis_lock
from tests.django.admin_site import (
    LIST,
    VIEW,
    client_with_permissions,
    listed_keys,
    lock_url,
    urlpatterns,
    visible_text,
)
from tests.django.helpers import PATIENCE, held_elsewhere, in_thread, wait_until

__all__ = ["urlpatterns"]

KEY = "person:zoe"


def lock(**options: Any) -> Any:
    return locks.lock(KEY, **options)


def everything_that_is_logged(settings: Any, closed_port: int) -> None:
    """Log all events: a busy lock, a forced release, a loss, a failed renewal, and an unreachable store."""
    with held_elsewhere(KEY):
        assert lock().acquire(timeout=0) is None
    with pytest.raises(LockLost), lock():
        in_thread(lambda: lock().force_release(reason="it hangs"))
    grant = in_thread(lock(expire=0.2, wait=PATIENCE, on_lost=lambda _: 1 / 0).acquire)
    wait_until(lambda: grant.lost)
    locks["default"].engine.wait_until_idle(PATIENCE)
    with suppress(LockLost):
        grant.release()
    entry = {**settings.REDIS_LOCKS["default"], "BACKEND": "django_redis_locks.backends.redis.RedisBackend"}
    settings.REDIS_LOCKS = {"default": {**entry, "LOCATION": f"redis://127.0.0.1:{closed_port}/0"}}
    with lock(wait=0, on_backend_error="open"):
        pass
    with suppress(LockError):
        redis_lock("person:{name}")(lambda name: None)("zoe")


@pytest.mark.parametrize("log_keys", [False, True])
def test_records_from_INFO_on_have_a_digest_instead_of_the_key(
    caplog: pytest.LogCaptureFixture, settings: Any, redis_url: str, closed_port: int, log_keys: bool
) -> None:
    """[D9] Neither the text nor the attributes of the record have the key, unless LOG_KEYS is True."""
    settings.REDIS_LOCKS = {"default": {"LOCATION": redis_url, "LOG_KEYS": log_keys}}
    caplog.set_level(logging.DEBUG, "django_redis_locks")
    digest = inspection.find(KEY).digest
    everything_that_is_logged(settings, closed_port)
    records = [record for record in caplog.records if record.levelno >= logging.INFO]
    assert {record.name.rpartition(".")[2] for record in records} >= {"acquire", "release", "lost", "backend"}
    assert any("zoe" in repr(vars(record)) for record in records) is log_keys
    of_locks = [vars(record) for record in records if hasattr(record, "lock_alias")]
    field, value = ("lock_key", KEY) if log_keys else ("lock_digest", digest)
    assert {about[field] for about in of_locks} == {value}
    assert {about.get("lock_key") for about in map(vars, caplog.records) if about["levelno"] == logging.DEBUG} >= {KEY}


@pytest.mark.django_db
def test_digest_in_the_log_finds_its_lock(store: str) -> None:
    """[D9] By the search of the admin, and on the page of the lock; also for a long key, which lists truncate."""
    client = client_with_permissions(VIEW)
    for key in (KEY, "person:" + "x" * 300):
        with held_elsewhere(key, expire=60), held_elsewhere("person:bob", expire=60):
            digest = inspection.find(key).digest
            (found,) = listed_keys(client.get(LIST, {"q": digest}))
            assert digest in visible_text(client.get(lock_url(found)))
            assert digest != inspection.find("person:bob").digest

"""Requests and replies that are lost, late or cut off, with sync and async calls."""

from __future__ import annotations

import pytest
import redis

from django_redis_locks import LockBackendError, clock
from django_redis_locks.client import Locks
from tests.chaos.conftest import SILENCE
from tests.chaos.helpers import Async, Sync
from tests.probes.client import lease_began
from tests.probes.engine import BackendFailed, Event, ForceReleased, Released
from tests.proxy import Proxy
from tests.waiting import eventually

SOCKET_TIMEOUT = SILENCE


def names(direct: redis.Redis) -> list[str]:
    return [key for key in direct.keys("lock:*") if ":k:" in key]


def test_attempt_without_wait_and_without_reply_raises_and_leaves_nothing(
    face: Sync | Async, proxied: Locks, proxy: Proxy, direct: redis.Redis
) -> None:
    """[L16] [F15] An unknown outcome isn't "busy"; a lock that it may have left is deleted at once, not after its
    lease."""
    proxy.plan("drop", "reply", of="lock/acquire")
    with pytest.raises(LockBackendError, match=r"alias 'default'.*no answer"):
        face.acquire(proxied.lock("a", expire=30), timeout=0)
    eventually(lambda: not names(direct))


def test_late_copy_of_acquire_is_freed_within_seconds(
    face: Sync | Async, proxied: Locks, proxy: Proxy, direct: redis.Redis
) -> None:
    """[H2a] The first copy of the request arrives after the release: a token without a hold is deleted within
    seconds."""
    proxy.plan("delay", "request", of="lock/acquire")
    grant = face.acquire(proxied.lock("a", expire=60), timeout=20)
    assert grant is not None
    assert grant.hold.outcome_unknown
    face.release(grant)
    proxied.engine.wait_until_idle(20)
    proxy.deliver()
    eventually(lambda: int(direct.get("lock:{0}:fence") or 0) > grant.fence)  # the late copy took the lock
    eventually(lambda: not names(direct))


def test_a_late_copy_of_acquire_never_shortens_a_lease(
    face: Sync | Async, proxied: Locks, proxy: Proxy, direct: redis.Redis
) -> None:
    """[H2b] acquire(expire=30) arrives once more after extend(60): the lease stays at 60 seconds."""
    proxy.plan("delay", "request", of="lock/acquire")
    grant = face.acquire(proxied.lock("a", expire=30), timeout=20)
    assert grant is not None
    grant_key = names(direct)[0]
    face.extend(grant, 60)
    proxy.deliver()
    assert direct.pttl(grant_key) > 55_000
    grant.ensure_held()


def test_forced_release_succeeds_after_a_lost_reply(
    proxied: Locks, proxy: Proxy, direct: redis.Redis, events: list[Event]
) -> None:
    """[H15] [E1] The first attempt freed the lock, but its reply was lost: the release returns, and logs it as
    unconfirmed."""
    proxied.lock("warm up").force_release()
    lock = proxied.lock("a", expire=30)
    assert lock.acquire()
    proxy.plan("cut", "reply", of="lock/force_release")
    freed = lock.force_release(reason="a test")
    assert names(direct) == []
    assert freed
    assert [event.reason for event in events if isinstance(event, ForceReleased)] == ["a test"]


def test_with_block_whose_store_went_down_ends_without_an_error(
    proxied: Locks, proxy: Proxy, direct: redis.Redis, events: list[Event], caplog: pytest.LogCaptureFixture
) -> None:
    """[F12] The section was protected until its end: the block doesn't raise, and the failed release is logged."""
    with proxied.lock("a", expire=60):
        proxy.down()
    assert any(isinstance(event, BackendFailed) and event.doing == "release" for event in events)
    assert any(record.levelname == "ERROR" and record.lock_name == "a" for record in caplog.records)
    proxy.up()
    eventually(lambda: not names(direct))


@pytest.mark.parametrize("fate", ["drop reply", "cut reply", "drop request", "cut request"])
def test_acquire_succeeds_after_a_lost_reply(face: Sync | Async, proxied: Locks, proxy: Proxy, fate: str) -> None:
    """[L12] [E1] [H2] The repeated request has the same token, so the reply is a grant and not "busy". The lease counts
    from the attempt with a reply."""
    proxy.plan(*fate.split(), of="lock/acquire")
    begin = clock.now()
    grant = face.acquire(proxied.lock("a", expire=60), timeout=20)
    assert grant is not None
    assert proxy.fates("lock/acquire")[:2] == [fate, "pass"]
    assert begin + (SILENCE if "drop" in fate else 0) < lease_began(grant, 60_000) < clock.now()
    face.release(grant)


def test_release_succeeds_after_a_lost_reply(
    face: Sync | Async, proxied: Locks, proxy: Proxy, direct: redis.Redis, events: list[Event]
) -> None:
    """[E12] [H15] [L14] [L15] After a release without a reply "not mine" is a success, reported as unconfirmed."""
    grant = face.acquire(proxied.lock("a"))
    assert grant is not None
    proxy.plan("cut", "reply", of="lock/release")
    face.release(grant)
    assert names(direct) == []
    assert [event.confirmed for event in events if isinstance(event, Released)] == [False]
    grant = face.acquire(proxied.lock("a", expire=60))
    assert grant is not None
    proxy.plan("drop", "request", of="lock/release")
    face.release(grant)
    assert names(direct) == []


def test_fences_rise_although_counter_or_clock_go_back(proxied: Locks, direct: redis.Redis) -> None:
    """[H1] Also if the counter is restored from an older snapshot, lost, malformed, or ahead of the server's clock."""
    seen = []
    for counter in ("100", "", "0", None, "8000000000000000"):
        direct.delete("lock:{0}:fence") if counter is None else direct.set("lock:{0}:fence", counter)
        for _ in range(3):
            with proxied.lock("a") as grant:
                seen.append(grant.fence)
    assert seen == sorted(set(seen))
    assert seen[-3:] == [8000000000000001, 8000000000000002, 8000000000000003]

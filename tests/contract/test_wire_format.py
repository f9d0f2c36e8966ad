"""The format in Redis, byte for byte: processes of different versions share it, so it must not change."""

from __future__ import annotations

import json
import os
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
import redis

from django_redis_locks import (
    Lock,
    LockBackendError,
    LockKeyError,
    LockLost,
    LockNotAcquired,
    RecordRef,
    inspection,
    locks,
)
from tests.contract.matrix import PATIENCE, eventually
from tests.probes.engine import RESERVED_FENCES, forget_contention

LOCK, FENCE, INDEX = b"lock:{0}:k:order:42", b"lock:{0}:fence", b"lock:{0}:index"
QUEUED = INDEX + b":queued"
WAITERS = b"lock:{0}:w:order:42"


@pytest.fixture
def lock(redis_url: str, settings: Any) -> Lock:
    settings.REDIS_LOCKS = {"default": {"LOCATION": redis_url}}
    lock = locks.lock("order:42", expire=30)
    forget_contention()  # otherwise the first acquire may register as a waiter and reserve fences
    return lock


def test_a_held_lock_is_three_keys(lock: Lock, direct: redis.Redis) -> None:
    """[F6] [F7] The string with its five parts, the counter, and the index; after the release only the counter
    stays."""
    before = time.time()
    grant = lock.acquire()
    after = time.time()
    assert sorted(direct.keys()) == [FENCE, INDEX, LOCK]

    about = [socket.gethostname(), os.getpid(), threading.current_thread().name, "order"]
    fence = grant.fence
    holder = json.dumps(about, separators=(",", ":"))
    assert direct.get(LOCK) == f"1 lock {grant.hold.token} {fence} {holder}".encode()
    assert fence is not None
    assert before * 1_000_000 <= fence <= after * 1_000_000
    assert direct.get(FENCE) == str(fence).encode()
    assert 10_000 < direct.pttl(LOCK) <= 30_000
    assert direct.ttl(FENCE) == -1
    assert direct.zrange(INDEX, 0, -1, withscores=True) == [(LOCK, fence // 1000 + 30_000)]

    before = time.time() * 1000
    grant.extend(60)  # [H16] [L31] the score is the end of the lease in ms by the server's clock
    assert before + 60_000 - 1 <= direct.zscore(INDEX, LOCK) <= time.time() * 1000 + 60_000 + 1

    grant.release()
    assert direct.keys() == [FENCE]


def test_what_the_call_site_gave_is_an_object_after_the_fields_of_the_holder(lock: Lock, direct: redis.Redis) -> None:
    """[L7] Older versions read the fields before it."""
    with locks.lock("order:42", max_hold=-1, note="für Ada"):
        holder = json.loads(direct.get(LOCK).split(b" ", 4)[4])
    assert holder[4:] == [{"max_hold": -1, "note": "für Ada"}]
    assert holder[3] == "order"


def test_the_token_is_a_secret_with_a_fixed_format(lock: Lock, direct: redis.Redis) -> None:
    """Twelve random letters of the process and a counter, different for each hold, and stored in its field only."""
    tokens = []
    for _ in range(3):
        with lock as grant:
            token = grant.hold.token
            tokens.append(token)
            assert direct.get(LOCK).split()[2] == token.encode()
            assert direct.get(LOCK).count(token.encode()) == 1
            stored = [direct.get(FENCE), *direct.zrange(INDEX, 0, -1), *direct.keys()]
            assert not any(token.encode() in value for value in stored)
    assert len(set(tokens)) == 3
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{12}[0-9a-f]+", token) for token in tokens)


def test_the_index_forgets_old_entries_two_hundred_at_a_time(lock: Lock, direct: redis.Redis) -> None:
    """[E9] [H16] Holds that ended without a release stay for an hour; then one acquire in a hundred removes at most
    200, independent of the digits of the fence."""
    now = time.time() * 1000
    old = {f"lock:{{0}}:k:old:{number}": now - 3_601_000 - number for number in range(300)}
    direct.zadd(INDEX, {**old, "lock:{0}:k:young": now - 3_500_000})
    left = set()
    for _ in range(5000):
        direct.set(FENCE, 9_007_199_254_740_004)
        with lock:
            left.add(direct.zcard(INDEX) - 1)
        if 1 in left:
            break
    assert left - {301} == {101, 1}  # the very first acquire may be the one in a hundred
    assert direct.zrange(INDEX, 0, -1) == [b"lock:{0}:k:young"]


def test_a_prefix_separates_projects(redis_url: str, settings: Any, direct: redis.Redis) -> None:
    """Every key begins with KEY_PREFIX, and locks of two prefixes are independent."""
    settings.REDIS_LOCKS = {
        "default": {"LOCATION": redis_url},
        "other": {"LOCATION": redis_url, "KEY_PREFIX": "shop"},
    }
    with locks.lock("order:42"), locks["other"].lock("order:42"):
        ours = {key for key in direct.scan_iter() if key.startswith(b"lock:{0}:")}
        assert set(direct.keys()) - ours == {b"shop:{0}:k:order:42", b"shop:{0}:fence", b"shop:{0}:index"}


# The wait queue


@pytest.fixture
def waiting(lock: Lock, direct: redis.Redis) -> Iterator[Future[float]]:
    """A waiter for the lock, which the test holds; it releases the lock as soon as it gets it."""

    def wait() -> float:
        with lock:
            return time.time()

    with ThreadPoolExecutor(1) as threads, lock:
        future = threads.submit(wait)
        eventually(lambda: direct.exists(WAITERS))
        yield future


def test_a_wait_queue_is_one_key(waiting: Future[float], lock: Lock, direct: redis.Redis) -> None:
    """[H9] The address of each local queue, with its arrival in µs by the server's clock as score: the channel, the
    number of the queue, and the token, lease in ms and holder of the grant. The key expires four seconds after the last
    registration."""
    assert sorted(direct.keys()) == [FENCE, INDEX, LOCK, WAITERS]
    ((address, enqueued_at),) = direct.zrange(WAITERS, 0, -1, withscores=True)
    assert re.fullmatch(rb'lock:\{0\}:inbox:[\w-]{12} [0-9a-f]+ [\w-]{13,} 3000 \["[^"]+",\d+,.+\]', address)
    seconds, micros = direct.time()
    assert 0 < seconds * 1_000_000 + micros - enqueued_at < 20_000_000
    eventually(lambda: 3_000 < direct.pttl(WAITERS) <= 4_000)  # at each registration
    channel = address.partition(b" ")[0]
    assert direct.pubsub_numsub(channel) == [(channel, 1)]
    lock.release()
    assert waiting.result(PATIENCE)
    eventually(lambda: direct.keys() == [FENCE])  # the last waiter deletes it
    lock.acquire()  # for the end of the fixture


def test_a_released_lock_is_granted_to_the_first_waiter_with_a_subscriber(direct: redis.Redis, lock: Lock) -> None:
    """[H9] The message has the number of the queue, the token, the fence and the key of the lock. Waiters without a
    subscriber are skipped, and the others stay registered. The lock has the lease of the entry, and is listed."""
    name = "lock:{0}:inbox:abcdefghijkl"
    with direct.pubsub(ignore_subscribe_messages=True) as inbox:
        inbox.subscribe(name)
        assert inbox.get_message(timeout=PATIENCE) is None
        grant = lock.acquire()
        line = {"lock:{0}:inbox:dead 1 t1 3000 ": 1, f'{name} 7f t2 3000 ["here",1]': 2, f"{name} 80 t3 3000 ": 3}
        direct.zadd(WAITERS, line)
        grant.release()
        message = inbox.get_message(timeout=PATIENCE)
        assert message is not None
        number, token, fence = message["data"].removesuffix(b" " + LOCK).split(b",")
        assert (number, token) == (b"7f", b"t2")
        assert int(fence) > grant.fence
        assert re.fullmatch(rb'1 lock t2 %b\*(@\d+)? \["here",1\]' % fence, direct.get(LOCK))
        assert int(direct.get(FENCE)) == int(fence) + RESERVED_FENCES
        assert 0 < direct.pttl(LOCK) <= 3000
        ((listed, ends),) = direct.zrange(INDEX, 0, -1, withscores=True)
        assert (listed, ends <= 1000 * direct.time()[0] + 4000) == (LOCK, True)
        assert inbox.get_message(timeout=0.05) is None
        assert direct.zrange(WAITERS, 0, -1) == [f"{name} 80 t3 3000 ".encode()]


def test_a_waiter_without_a_token_is_woken(direct: redis.Redis, lock: Lock) -> None:
    """[H9] It waits for something else under the key."""
    name = "lock:{0}:inbox:abcdefghijkl"
    with direct.pubsub(ignore_subscribe_messages=True) as inbox:
        inbox.subscribe(name)
        assert inbox.get_message(timeout=PATIENCE) is None
        grant = lock.acquire()
        line = {"lock:{0}:inbox:dead 1": 1, f"{name} 7f": 2, f"{name} 80": 3}
        direct.zadd(WAITERS, line)
        grant.release()
        message = inbox.get_message(timeout=PATIENCE)
        assert message is not None
        assert message["data"] == b"7f " + LOCK
        assert inbox.get_message(timeout=0.05) is None
        assert direct.zrange(WAITERS, 0, -1) == [f"{name} 80".encode()]


@pytest.fixture
def record(redis_url: str, settings: Any) -> RecordRef:
    settings.REDIS_LOCKS = {"default": {"LOCATION": redis_url}}
    return locks.record("order:42")


@pytest.mark.parametrize(
    ("listed", "index", "mark"), [(False, b"", b""), (True, INDEX, rb"\.held"), ("queued", QUEUED, rb"\.queued")]
)
def test_a_record_is_a_string_whose_nonce_names_its_index(
    record: RecordRef, direct: redis.Redis, listed: Any, index: bytes, mark: bytes
) -> None:
    """[H19] Its version is a fence of the bucket, and its fields are JSON; after a drop only the counter stays. The
    next write of any process removes the index entry."""
    written = record.put(None, {"state": "ready"}, expire=30, show_in_admin=listed).record
    assert written is not None
    assert sorted(direct.keys()) == sorted(filter(None, [FENCE, LOCK, index]))
    form, kind, nonce, version, fields = direct.get(LOCK).split(b" ", 4)
    assert re.fullmatch(rb"[A-Za-z0-9_-]{12}[0-9a-f]+" + mark, nonce)
    assert (form, kind, version, fields) == (b"1", b"record", str(written.version).encode(), b'{"state":"ready"}')
    assert direct.get(FENCE) == version
    assert 10_000 < direct.pttl(LOCK) <= 30_000
    if listed:
        assert direct.zrange(index, 0, -1, withscores=True) == [(LOCK, written.version // 1000 + 30_000)]
    assert record.drop(written)
    assert direct.keys() == [FENCE]


def test_listed_records_forget_old_entries(record: RecordRef, direct: redis.Redis) -> None:
    """[H16] Without locks, no acquire removes them: one write in a hundred removes 200."""
    now = direct.time()[0] * 1000
    direct.zadd(QUEUED, {f"lock:{{0}}:k:old{n}": now - 3_700_000 - n for n in range(300)})
    direct.zadd(QUEUED, {"lock:{0}:k:young": now - 3_500_000})
    was, left = None, []
    while not left or left[-1] > 2:
        was = record.put(was, {}, show_in_admin="queued").record
        assert was is not None
        left.append(direct.zcard(QUEUED))
    assert {102, 2} <= set(left) <= {302, 102, 2}  # the very first write may be the one in a hundred
    record.put(was, {}, show_in_admin=True)
    assert direct.zrange(QUEUED, 0, -1) == [b"lock:{0}:k:young"]


# Fences


def test_a_fence_is_never_below_the_counter(lock: Lock, direct: redis.Redis) -> None:
    """[H1] [L1] A counter ahead of the clock is incremented, with all its digits."""
    direct.set(FENCE, 9_007_199_254_740_000)
    for number in (1, 2, 3):
        with lock as grant:
            assert grant.fence == 9_007_199_254_740_000 + number
            began = int(direct.get(LOCK).split()[3].partition(b"@")[2])  # the fence has no time
            seconds, micros = direct.time()
            assert 0 <= seconds * 1000 + micros // 1000 - began < 8000
            holder = lock.holder()
            assert holder is not None
            assert (holder.fence, holder.since) == (grant.fence, began / 1000)


@pytest.mark.parametrize("damage", ["DEL", "SET"])
def test_a_fence_is_never_below_the_clock(lock: Lock, direct: redis.Redis, damage: str) -> None:
    """[H1] A missing counter, or one behind the held locks, doesn't lower fences."""
    with lock as first:
        pass
    direct.execute_command(damage, FENCE, *(["100"] if damage == "SET" else []))
    with lock as second:
        assert second.fence > first.fence
        assert direct.get(FENCE) == str(second.fence).encode()


@pytest.mark.parametrize("counter", ["9007199254740992", str(2**60), "9" * 400])
def test_fences_beyond_the_range_of_lua_are_refused(lock: Lock, direct: redis.Redis, counter: str) -> None:
    """[E8] They would repeat. The message says what to delete, and nothing is changed."""
    direct.set(FENCE, counter)
    for ask in (lock.acquire, lambda: locks.record("a").put(None, {}, expire=60)):
        with pytest.raises(LockBackendError, match=r"2\^53.*delete its key.*:fence") as caught:
            ask()
        assert not caught.value.outcome_unknown
    assert direct.keys() == [FENCE]
    assert direct.get(FENCE) == counter.encode()
    direct.delete(FENCE)
    assert lock.acquire(timeout=0)


# Foreign values


def test_lock_with_foreign_fields_is_busy_and_harmless(redis_url: str, settings: Any, direct: redis.Redis) -> None:
    """[E8] With any holder fields: only documented errors are raised, and log lines contain no control characters."""
    settings.REDIS_LOCKS = {"default": {"LOCATION": redis_url, "WAIT": 0}}
    direct.zadd(INDEX, {LOCK: time.time() * 1000 + 60_000})
    evil = json.dumps(["web\n\x1b[31m" + "x" * 9000, -1, {"a": 1}, "n\u202e"])
    for since, about in (("1" * 400, "[" * 100_000), ("9" * 5000, evil), ("", evil), ("17", "[" * 900 + "]" * 900)):
        direct.set(LOCK, f"1 lock token 1790000000000000@{since} {about}", ex=60)
        with pytest.raises(LockNotAcquired) as caught:
            locks.lock("order:42").acquire()
        assert str(caught.value).isprintable(), since
        assert len(str(caught.value)) < 500
        (info,) = inspection.held().rows
        assert info.since is not None
        assert info.holder is not None
        assert (info.holder.pid, info.holder.thread) == (None, None)
    record = locks.record("order:42")
    direct.set(LOCK, f"1 record nonce {'9' * 400} {'[' * 100_000}", ex=60)
    with pytest.raises(LockBackendError):
        record.get()
    assert [info.state for info in inspection.held().rows] == ["foreign"]


FOREIGN: dict[str, Callable[[redis.Redis], Any]] = {
    "a string": lambda direct: direct.set(LOCK, "order"),
    "a list": lambda direct: direct.lpush(LOCK, "order"),
    "a hash": lambda direct: direct.hset(LOCK, "a", "b"),
    "a lock of kind fair": lambda direct: direct.set(LOCK, "1 fair t 1", ex=60),
    "a lock of format 2": lambda direct: direct.set(LOCK, "2 lock t 1", ex=60),
    "a lock without expiry": lambda direct: direct.set(LOCK, "1 lock t 1"),
}


@pytest.mark.parametrize("found", FOREIGN)
def test_a_foreign_value_under_the_key_raises_LockKeyError_and_stays(
    lock: Lock, direct: redis.Redis, found: str
) -> None:
    """[F6] [L45] [D50] Any other value, also of another version of this project, is neither a busy lock nor
    overwritten. [L17] A forced release frees a lock that never expires."""
    FOREIGN[found](direct)
    before = direct.dump(LOCK)
    for ask in (lock.acquire, lock.holder, lock.locked):
        with pytest.raises(LockKeyError, match=found):
            ask()
    assert direct.dump(LOCK) == before
    assert direct.keys() == [LOCK]
    forced = lock.force_release()
    assert (direct.dump(LOCK) != before) is forced is (found == "a lock without expiry")


def test_a_foreign_value_under_the_key_of_a_lock_is_not_deleted(lock: Lock, direct: redis.Redis) -> None:
    """[F6] Neither by a release nor by an extension."""
    for found in ("a string", "a hash"):
        grant = lock.acquire()
        direct.delete(LOCK)
        FOREIGN[found](direct)
        before = direct.dump(LOCK)
        with pytest.raises(LockLost):
            grant.extend(60)
        with pytest.raises(LockLost):
            grant.release()
        assert direct.dump(LOCK) == before, found
        direct.delete(LOCK)


def test_a_server_without_the_scripts_gets_them_again(lock: Lock, direct: redis.Redis) -> None:
    """[L20] NOSCRIPT after a restart or a flush causes no error."""
    direct.script_flush()
    with lock as grant:
        direct.script_flush()
        grant.extend(60)
        direct.script_flush()
        assert lock.locked()
        direct.script_flush()
    direct.script_flush()
    assert not lock.force_release()

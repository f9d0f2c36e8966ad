"""Loads and invalidations inside of transactions, on a database that two connections share."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from time import monotonic
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.core.cache import caches
from django.db import connection, connections, transaction
from django.test import TestCase, override_settings

from django_redis_locks import LockBackendError, locks
from django_redis_locks.cache import aget_or_load, ainvalidate, get_or_load, get_or_load_many, invalidate, refresh
from tests.cache.backends import DUMMY, HERE, LOCMEM, THERE, as_tenant, at, redis_caches, with_tenant_keys
from tests.cache.callers import Loader
from tests.contract.matrix import PATIENCE, eventually
from tests.django.helpers import in_thread
from tests.probes.cache import fail_command, followers, has_pending_stores, waiters_in_store
from tests.probes.tuning import Tune
from tests.proxy import Proxy
from tools.redis_server import RedisServer

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def nothing_pending(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The connection reports READ COMMITTED, as MySQL's can. tests/django tests real isolation levels."""
    monkeypatch.setattr(connection, "isolation_level", "read committed", raising=False)
    yield
    assert not has_pending_stores()


def in_other_thread(function: Callable[[], Any]) -> Any:
    """Call a function in another thread, which has no transaction."""

    def work() -> Any:
        try:
            return function()
        finally:
            connections.close_all()

    return in_thread(work)


def load_value(value: Any, key: str = "k", **options: Any) -> Any:
    return get_or_load(key, Loader(value), **at(HERE), ttl=60, **options)


def stored() -> Any:
    return caches[HERE].get("k")


def roll_back_after(first: Callable[[], Any]) -> None:
    """Call a function in a transaction that is rolled back."""

    def fails() -> None:
        first()
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), transaction.atomic():
        fails()


def test_load_is_stored_when_its_transaction_commits(cache_pair: str) -> None:
    """[S6] [S17] Before that other callers don't see it. A savepoint belongs to its transaction."""
    with transaction.atomic():
        with transaction.atomic():
            assert load_value("uncommitted") == "uncommitted"
        assert stored() is None
        assert load_value("again") == "uncommitted"  # the transaction sees its own value
        many = get_or_load_many(["k", "l"], lambda keys: dict.fromkeys(keys, 1), **at(HERE), ttl=60)
        assert many == {"k": "uncommitted", "l": 1}
        assert caches[HERE].get_many(["k", "l"]) == {}
    assert caches[HERE].get_many(["k", "l"]) == many
    assert load_value("later") == "uncommitted"


def test_invalidation_that_fails_at_commit_is_logged_and_later_hooks_run(
    settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """[S6] An exception couldn't undo the commit. After the first key failed, the others aren't sent."""
    settings.CACHES = redis_caches("redis://127.0.0.1:1/0")
    later: list[str] = []
    begin = monotonic()
    with transaction.atomic():
        invalidate(*(f"k{number}" for number in range(8)), cache=HERE)
        transaction.on_commit(lambda: later.append("ran"))
    assert later == ["ran"]
    assert "8 keys of cache 'here' couldn't be invalidated, and are tried again" in caplog.text
    assert "can't reach" in caplog.text
    assert monotonic() - begin < 8 * locks.tuning.invalidation_timeout


def test_failed_invalidation_is_repeated_when_the_server_is_back(
    make_server: Callable[..., RedisServer], settings: Any, tune: Tune, caplog: pytest.LogCaptureFixture
) -> None:
    """[S6] It was logged at COMMIT, or raised. Values loaded after it are kept."""
    tune(min_invalidation_retry_delay=0.1, max_invalidation_retry_delay=0.2)
    caplog.set_level("INFO", "django_redis_locks.cache")
    server = make_server()
    settings.CACHES = redis_caches(server.url())
    assert get_or_load_many("kl", lambda keys: dict.fromkeys(keys, "old"), cache=HERE, ttl=600)
    server.command("SAVE")
    server.kill()
    with transaction.atomic():
        invalidate("k", cache=HERE)
    with pytest.raises(LockBackendError):
        async_to_sync(ainvalidate)("l", cache=HERE)
    server.restart(keep_data=True)
    eventually(lambda: "are carried out, 0 are left" in caplog.text)
    assert server.command("EXISTS", ":1:k", ":1:l") == 0
    assert get_or_load("k", lambda: "new", cache=THERE, ttl=600) == "new"
    eventually(lambda: "invalidations" not in " ".join(thread.name for thread in threading.enumerate()))
    assert get_or_load("k", lambda: "newer", cache=THERE, ttl=600) == "new"


@pytest.mark.parametrize("outer", [nullcontext, transaction.atomic], ids=["transaction", "savepoint"])
def test_load_in_a_transaction_that_is_rolled_back_is_dropped(cache_pair: str, outer: Any) -> None:
    """[S6] In a transaction, or in a savepoint of a transaction that continues."""
    with outer():
        roll_back_after(lambda: load_value("uncommitted"))
        assert load_value("true") == "true"
    assert stored() == "true"


def test_load_after_a_manual_savepoint_is_dropped_by_its_rollback(cache_pair: str) -> None:
    """Values loaded before the savepoint are kept."""
    with transaction.atomic():
        load_value("before", key="l")
        savepoint = transaction.savepoint()
        load_value("uncommitted")
        transaction.savepoint_rollback(savepoint)
        assert [load_value("true"), load_value("again", key="l")] == ["true", "before"]
    assert [stored(), caches[HERE].get("l")] == ["true", "before"]


def test_waiters_go_on_at_the_end_of_a_load_in_a_transaction(cache_pair: str) -> None:
    """[S1] No caller waits for COMMIT, in this process or another, and the transaction doesn't wait for later callers.
    [S4] The waiters don't get its value."""
    theirs, others = Loader("theirs", gate=True), [HERE, THERE]
    mine = Loader("uncommitted", gate=True)

    def wait_for(name: str) -> Any:
        return get_or_load("k", theirs, **at(name), ttl=60)

    with ThreadPoolExecutor(2) as pool:

        def detach() -> str:
            waiting.extend(pool.submit(wait_for, name) for name in others)
            eventually(lambda: followers(**at(HERE)) + waiters_in_store(**at(THERE)) == 2)
            return "uncommitted"

        waiting: list[Any] = []
        with transaction.atomic():
            assert get_or_load("k", detach, **at(HERE), ttl=60) == "uncommitted"
            theirs.wait()
            begin = monotonic()
            assert [load_value("again"), load_value("again")] == ["uncommitted"] * 2
            assert monotonic() - begin < PATIENCE / 2
        assert stored() == "uncommitted"
        assert mine.calls == 0
        theirs.gate.set()
        assert {each.result(PATIENCE) for each in waiting} <= {"theirs", "uncommitted"}


def unstored(ctx: Any) -> str:
    ctx.skip_store()
    return "uncommitted"


def unreachable(patch: pytest.MonkeyPatch) -> None:
    fail_command(patch, "load/claim", LockBackendError("no answer", transient=True), **at(HERE))


@pytest.mark.parametrize("how", ["ttl=0", "skip_store", "down", "fails"])
def test_uncommitted_value_never_leaves_its_transaction(
    cache_pair: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[S4] Nor does an exception: the load of another caller may succeed."""
    if how == "down":
        unreachable(monkeypatch)
    began, go = threading.Event(), threading.Event()

    def load(ctx: Any) -> Any:
        began.set()
        assert go.wait(PATIENCE)
        if how == "fails":
            raise ZeroDivisionError
        return unstored(ctx) if how == "skip_store" else "uncommitted"

    def follow() -> Any:
        assert began.wait(PATIENCE)
        return get_or_load("k", lambda: "right", **at(HERE), ttl=60, info=True)

    def open_the_gate() -> None:
        eventually(lambda: followers(**at(HERE)) or following.done())
        go.set()

    with ThreadPoolExecutor(2) as pool, transaction.atomic():
        following = pool.submit(follow)
        pool.submit(open_the_gate)
        with suppress(ZeroDivisionError):
            get_or_load("k", load, **at(HERE), ttl=0 if how == "ttl=0" else 60)
        assert following.result(PATIENCE).value == "right"


@pytest.mark.parametrize("theirs", [HERE, THERE], ids=["one-process", "two-processes"])
@pytest.mark.parametrize(("face", "in_atomic"), [("sync", "on_commit"), ("async", "now")])
def test_transaction_waits_only_briefly_for_another_load(
    cache_pair: str, tune: Tune, counted: Any, theirs: str, face: str, in_atomic: Any
) -> None:
    """[S1] That load may need a row that this transaction has locked. After the wait the transaction loads itself."""
    loader = Loader("theirs", gate=True)  # as if it waited for a row
    get: Any = get_or_load if face == "sync" else async_to_sync(aget_or_load)
    tune(max_wait_in_transaction=0.1, load_lease=4 * PATIENCE)
    with ThreadPoolExecutor(1) as pool, transaction.atomic():
        running = pool.submit(get_or_load, "k", loader, **at(theirs), ttl=60)
        loader.wait()
        options = {"ttl": 60, "store_in_atomic": in_atomic, "on_timeout": "raise"}
        assert get("k", Loader("mine"), **at(HERE), **options) == "mine"
        assert not running.done()
        loader.gate.set()
        assert running.result(PATIENCE) == "theirs"
    assert counted()["nested"] == 1


def test_invalidation_by_another_process_before_the_commit_prevents_the_store(cache_pair: str) -> None:
    """[S1] [S6] The value that was loaded in the transaction may be older than the invalidation."""
    with transaction.atomic():
        load_value("uncommitted")
        in_other_thread(lambda: invalidate("k", **at(THERE)))
    assert stored() is None
    with transaction.atomic():
        load_value("uncommitted")
        assert in_other_thread(lambda: refresh("k", lambda: "newer", **at(THERE), ttl=60)) == "newer"
    assert stored() == "newer"


def test_store_in_atomic_now_stores_at_once_and_skip_never(cache_pair: str) -> None:
    with transaction.atomic():
        load_value("value", store_in_atomic="skip")
    assert stored() is None
    with transaction.atomic():
        load_value("value", store_in_atomic="now")
        assert stored() == "value"


def test_invalidation_waits_for_the_commit(cache_pair: str) -> None:
    """[S5] Before the commit another process would load the old row again. After a rollback nothing is invalidated;
    with the option to be immediate it doesn't wait."""
    load_value("old")
    roll_back_after(lambda: invalidate("k", **at(HERE)))
    assert stored() == "old"
    with transaction.atomic():
        invalidate("k", **at(HERE))
        assert in_other_thread(lambda: get_or_load("k", lambda: "old row", **at(THERE), ttl=60)) == "old"
    assert stored() is None
    with transaction.atomic():
        assert refresh("k", Loader("new"), **at(HERE), ttl=60) == "new"
        assert load_value("other") == "new"
    with transaction.atomic():
        invalidate("k", **at(HERE), immediate=True)
        assert stored() is None


def test_commit_as_another_tenant_changes_the_keys_of_the_caller(cache_pair: str, settings: Any) -> None:
    """[S5] [S6] The keys of the tenant of the commit aren't deleted or written."""
    settings.CACHES = with_tenant_keys(settings.CACHES)
    cache = caches[HERE]
    cache.set("k", "right")
    with transaction.atomic(), as_tenant("a"):
        cache.set("k", "old")
        invalidate("k", **at(HERE))
        load_value("secret", "l")
    assert cache.get_many("kl") == {"k": "right"}
    with as_tenant("a"):
        assert cache.get_many("kl") == {"l": "secret"}


def test_invalidation_after_a_load_in_the_same_transaction_prevents_its_store(cache_pair: str) -> None:
    """The transaction itself loads again."""
    with transaction.atomic():
        assert load_value("before") == "before"
        invalidate("k", **at(HERE))
        assert load_value("after", wait=5) == "after"
    assert stored() is None


@pytest.mark.parametrize("face", ["sync", "async"])
def test_load_by_a_task_inside_of_a_transaction_is_not_stored(cache_pair: str, face: str) -> None:
    """[S6] async_to_sync() within atomic(): its synchronous code runs in this thread and sees uncommitted rows."""
    loader = Loader("uncommitted")
    aloader: Any = loader if face == "sync" else loader.asynchronously
    roll_back_after(lambda: async_to_sync(aget_or_load)("k", aloader, **at(HERE), ttl=60))
    assert load_value("right") == "right"


def test_store_that_is_down_at_the_commit_does_not_undo_it(proxy: Proxy, settings: Any, counted: Any) -> None:
    """There is one timeout, however many values were loaded."""
    settings.CACHES = {"default": {"BACKEND": DUMMY}, **redis_caches(proxy.url)}
    with transaction.atomic():
        for key in "klm":
            get_or_load(key, lambda: 1, cache=HERE, ttl=60)
        proxy.down()
    assert not connection.in_atomic_block
    assert counted()["down"] == 1
    proxy.up()
    caches.close_all()


class InsideATestCase(TestCase):
    """The transaction of ``TestCase``, which is never committed, is ignored."""

    def test_load_is_stored_at_once(self) -> None:
        with override_settings(CACHES={"default": {"BACKEND": LOCMEM, "LOCATION": "inside a test case"}}):
            get_or_load("k", lambda: "value", ttl=60)
            assert caches["default"].get("k") == "value"
            invalidate("k")
            assert caches["default"].get("k") is None

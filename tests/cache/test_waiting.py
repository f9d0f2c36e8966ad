"""Waiting for another's load: how long, and what a caller gets whose wait is over."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.cache import caches

from django_redis_locks.cache import LoadTimeout
from tests.cache.backends import HERE, THERE, at
from tests.cache.callers import PROXIED, STALE, Callers, Loader
from tests.contract.matrix import PATIENCE, eventually
from tests.probes.cache import waiters_in_store
from tests.proxy import Proxy


def test_short_wait_lets_one_more_caller_load(callers: Callers, counted: Any) -> None:
    """[S12] [V14] One for each lease, in addition to the first, and not stored; the others go on waiting."""
    loading, extra = callers.begin("slow"), Loader("extra", gate=True)
    others = [callers.start("k", extra, wait=0.1, default="default") for _ in range(4)]
    extra.wait()
    eventually(lambda: counted()["timeouts"] == 4)
    loading.loader.gate.set()
    extra.gate.set()
    values = [future.result(PATIENCE).value for future in others]
    assert loading.finish() == "slow"
    assert values.count("extra") == extra.calls == 1
    assert caches[HERE].get("k") == "slow"


def test_wait_that_ends_raises_or_gives_the_default_by_on_conflict(callers: Callers) -> None:
    """[S12]"""
    loading = callers.begin("slow")
    with pytest.raises(LoadTimeout, match="stale="):
        callers.load("k", "mine", wait=0.05, on_conflict="raise")
    found = callers.load("k", "mine", wait=0.05, on_conflict="default", default=[])
    assert (found.value, found.source) == ([], "default")
    loading.finish()


def test_wait_stale_waits_for_a_fresh_value(callers: Callers) -> None:
    callers.make_stale()
    loading = callers.begin("new", **STALE)
    waiting = [callers.start("k", Loader("x"), cache=cache, wait_stale=PATIENCE, **STALE) for cache in (HERE, THERE)]
    assert callers.value("k", "x", wait_stale=0.05, **STALE) == "old"
    eventually(lambda: callers.followers() == 1 and waiters_in_store(**at(THERE)))
    assert loading.finish() == "new"
    assert [future.result(PATIENCE).value for future in waiting] == ["new", "new"]


@PROXIED
def test_waiter_has_no_question_open(callers: Callers, proxy: Proxy) -> None:
    """[S25] It sleeps in the process, not in a reply: no timeout of a socket ends it, and it holds no connection."""
    loading = callers.begin("value")
    waiting = callers.wait_for()
    eventually(lambda: proxy.fates("load/claim")[1:] and proxy.unanswered == 0)
    assert not waiting.future.done()
    assert loading.finish() == waiting.finish() == "value"

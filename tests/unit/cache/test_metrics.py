"""The counters of loads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from django_redis_locks.cache import metrics


def test_counters_count_each_call_of_all_threads_and_reading_does_not_change_them() -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: metrics.count("unit", metrics.HITS), range(500)))
    for _ in range(3):
        assert metrics.counters()["unit", metrics.HITS] == 500

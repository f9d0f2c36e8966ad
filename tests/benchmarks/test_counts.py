"""What carries no noise: how many calls, requests and connections an uncontended pair costs, in a process of its own."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from benchmarks.jobs import Job
from tools.redis_server import RedisServer

pytestmark = pytest.mark.exact("counts calls and requests")

MOST_CALLS = 94
"""Python and C calls, as cProfile counts them. redis-py's Lock makes 356."""


@pytest.mark.parametrize("adapter", ["ours", "ours-renewed", "ours-fair", "ours-semaphore", "ours-read"])
def test_uncontended_pair_takes_two_requests_on_one_connection(
    adapter: str, make_server: Callable[..., RedisServer]
) -> None:
    with Job(adapter, "uncontended", make_server().url(), None, {}) as job:
        job.ready()
        figures = job.measure()
    assert (figures["requests"], figures["connections"]) == (2, 1)
    assert figures["calls"] <= MOST_CALLS

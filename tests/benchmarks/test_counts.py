"""What carries no noise: how many calls, requests and connections an uncontended pair costs. In a process of its own, where
nobody traces and nobody else has connections.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from benchmarks.jobs import Job
from tools.redis_server import RedisServer

pytestmark = pytest.mark.exact("counts calls and requests")

CALLS = {"ours": 120, "ours-renewed": 120}


@pytest.fixture(params=CALLS)
def figures(request: pytest.FixtureRequest, make_server: Callable[..., RedisServer]) -> dict[str, float]:
    with Job(request.param, "uncontended", make_server().url(), None, {}) as job:
        job.ready()
        return job.measure()


def test_uncontended_pair_takes_two_requests_on_one_connection(figures: dict[str, float]) -> None:
    assert (figures["requests"], figures["connections"]) == (2, 1)


def test_uncontended_pair_takes_at_most_120_calls(figures: dict[str, float], request: pytest.FixtureRequest) -> None:
    """Python and C calls, as cProfile counts them. redis-py's Lock makes 356."""
    assert figures["calls"] <= CALLS[request.node.callspec.params["figures"]]

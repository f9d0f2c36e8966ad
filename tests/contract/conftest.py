"""Fixtures for the matrix in ``matrix.py``."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from django_redis_locks import InvalidLockBackend
from django_redis_locks.testing import ManualClock
from tests.contract.matrix import (
    BACKENDS,
    FACES,
    NOT_ON_ZOOKEEPER,
    ON_SENTINEL,
    Caller,
    Face,
    redlock,
    sentinel,
    zookeeper,
)
from tests.contract.network_faults import FaultSchedule
from tests.probes.engine import Event, record_events, supported_features
from tests.probes.load import LoadCalls
from tests.probes.tuning import Tune
from tests.proxy import Proxy
from tools.redis_server import RedisServer


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the rows ``sentinel`` and ``zookeeper`` only in the suites that they are for; ``sentinel`` in all of them if the
    variable ``ON_SENTINEL`` is "all"."""
    everywhere = os.environ.get("ON_SENTINEL") == "all"
    unneeded = [
        item
        for item in items
        if (_backend_of(item) is sentinel and item.path.stem not in ON_SENTINEL and not everywhere)
        or (_backend_of(item) is zookeeper and item.path.stem in NOT_ON_ZOOKEEPER)
    ]
    if unneeded:
        config.hook.pytest_deselected(items=unneeded)
        dropped = set(unneeded)
        items[:] = [item for item in items if item not in dropped]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Skip what needs an object that the backend refuses to make, or a longer lease than it has."""
    try:
        yield
    except ValueError as refused:
        if _backend_of(item) is not zookeeper or "a lease is at most EXPIRE" not in str(refused):
            raise
        pytest.skip(str(refused))
    except InvalidLockBackend as refused:
        if _backend_of(item) not in (redlock, zookeeper):
            raise
        pytest.skip(str(refused))


def _backend_of(item: pytest.Item) -> object:
    callspec = getattr(item, "callspec", None)
    return callspec.params.get("backend") if callspec is not None else None


@pytest.fixture
def direct(redis_url: str) -> Iterator[redis.Redis]:
    """A plain client of the server."""
    with redis.Redis.from_url(redis_url) as client:
        yield client


@pytest.fixture(scope="session")
def proxy(redis_server: RedisServer) -> Iterator[Proxy]:
    with Proxy(redis_server.port) as proxy:
        yield proxy


@pytest.fixture
def bad_network(
    request: pytest.FixtureRequest, proxy: Proxy, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """The shared server behind a network with the faults of this test."""
    faults = FaultSchedule(request.node.name, shared="async" in re.split(r"[][-]", request.node.name))
    faults.watch(monkeypatch)
    proxy.policy = faults
    yield proxy.url
    for call in proxy.calls:  # pytest shows them if the test fails
        print(call)  # noqa: T201
    proxy.reset()


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> dict[str, Any]:
    """The entry of the backend in ``REDIS_LOCKS``."""
    entry: dict[str, Any] = request.param(request)
    needed = {feature for marker in request.node.iter_markers("needs") for feature in marker.args}
    if missing := needed - supported_features(entry):
        pytest.skip(f"the backend doesn't support {', '.join(missing)}")
    if request.param is redlock and request.node.get_closest_marker("one_server"):
        pytest.skip("each server has a counter of its own")
    return entry


@pytest.fixture
def kind(request: pytest.FixtureRequest) -> str:
    """The method of ``locks`` that makes what ``face.lock`` returns."""
    return getattr(request, "param", "lock")


@pytest.fixture(params=FACES)
def face(
    request: pytest.FixtureRequest, backend: dict[str, Any], settings: Any, loop: asyncio.AbstractEventLoop, kind: str
) -> Iterator[Face]:
    face = Face(backend, settings, request.param, loop, kind)
    yield face
    face.close()


@pytest.fixture
def alice(face: Face) -> Caller:
    return face.caller()


@pytest.fixture
def bob(face: Face) -> Caller:
    return face.caller()


@pytest.fixture
def manual_clock(face: Face) -> Iterator[ManualClock]:
    """A clock that the test advances, for locks in memory."""
    with ManualClock() as clock:
        yield clock


@pytest.fixture
def frequent_renewal(tune: Tune) -> None:
    """Renew a hold after a hundredth of its lease: soon, while the lease is long enough for a machine that pauses."""
    tune(renewal_share=1 / 100)


@pytest.fixture
def no_polling(backend: dict[str, Any], tune: Tune) -> None:
    """Poll once a minute, so that a waiter that gets the lock earlier was notified."""
    if "wakes" not in supported_features(backend):
        pytest.skip("the backend wakes no waiters")
    tune(max_poll_interval=60.0)


@pytest.fixture
def events(face: Face, monkeypatch: pytest.MonkeyPatch) -> list[Event]:
    """The events of this test's own locks, in order. A loss of another test's lock may be detected only now."""
    return record_events(monkeypatch, lambda event: event.key.startswith(face.key))


@pytest.fixture
def load(face: Face) -> LoadCalls:
    """The load of a value that is on the server of the leases."""
    return LoadCalls(face.key)


@pytest.fixture(params=[True, False], ids=["same_server", "separate_server"])
def any_load(request: pytest.FixtureRequest, face: Face) -> LoadCalls:
    """The load of a value, on the server of the leases or on another one."""
    return LoadCalls(face.key, same_server=request.param)

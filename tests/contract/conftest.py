"""The fixtures behind the table in ``matrix.py``."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from typing import Any

import pytest

from django_redis_locks.core import events
from tests.contract.desk import Desk
from tests.contract.matrix import BACKENDS, FACES, Caller, Face
from tests.contract.network_faults import Weather
from tests.probes.tuning import Tune
from tests.proxy import Proxy
from tools.redis_server import RedisServer


@pytest.fixture(scope="session")
def proxy(redis_server: RedisServer) -> Iterator[Proxy]:
    with Proxy(redis_server.port) as proxy:
        yield proxy


@pytest.fixture
def bad_network(
    request: pytest.FixtureRequest, proxy: Proxy, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """The way to the shared server, through a network on which each test meets the faults of its own."""
    weather = Weather(request.node.name, shared="async" in re.split(r"[][-]", request.node.name))
    weather.watch(monkeypatch)
    proxy.policy = weather
    yield proxy.url
    for call in proxy.calls:  # for who looks into a failure
        print(call)  # noqa: T201
    proxy.reset()


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> dict[str, Any]:
    """What ``REDIS_LOCKS`` says of the backend."""
    entry: dict[str, Any] = request.param(request)
    return entry


@pytest.fixture(params=FACES)
def face(
    request: pytest.FixtureRequest, backend: dict[str, Any], settings: Any, loop: asyncio.AbstractEventLoop
) -> Iterator[Face]:
    face = Face(backend, settings, request.param, loop)
    yield face
    face.close()


@pytest.fixture
def alice(face: Face) -> Caller:
    return face.caller()


@pytest.fixture
def bob(face: Face) -> Caller:
    return face.caller()


@pytest.fixture
def no_polling(tune: Tune) -> None:
    """Who gets something within a minute was told."""
    tune(max_poll_interval=60.0)


@pytest.fixture
def happened(face: Face, monkeypatch: pytest.MonkeyPatch) -> list[events.Event]:
    """The events of this test's own locks, in their order. One that another test lost may be found to be so only now."""
    log: list[events.Event] = []

    def note(event: events.Event) -> None:
        if event.key.startswith(face.key):
            log.append(event)

    monkeypatch.setattr(events, "_listeners", [*events._listeners, note])
    return log


@pytest.fixture
def desk(face: Face) -> Desk:
    """The load of one value, which is on the store of the leases."""
    return Desk(face.key)


@pytest.fixture(params=[True, False], ids=["fused", "beside"])
def either(request: pytest.FixtureRequest, face: Face) -> Desk:
    """The same, and the load of a value that is elsewhere."""
    return Desk(face.key, fused=request.param)

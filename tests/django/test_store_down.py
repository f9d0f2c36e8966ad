"""An unreachable store: 503 in views, LockBackendError elsewhere, and `on_backend_error="open"`."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any

import pytest
from django.http import HttpRequest, HttpResponse
from django.test import Client
from django.urls import path

from django_redis_locks import LockBackendError, clock, locks, redis_lock
from tests.django.helpers import AT_ONCE, MEMORY, Events, in_thread
from tests.django.test_answers import KEY, aview, view, work
from tests.probes.django import events
from tools.redis_server import RedisServer

DOWN = b"This is not available for the moment. Try again later.\n"


@redis_lock(KEY, name="patient", on_backend_error="open")
def open_view(request: HttpRequest) -> HttpResponse:
    return HttpResponse("done")


urlpatterns = [path("view/", view), path("async-view/", aview), path("open-view/", open_view)]


@pytest.mark.parametrize(("path", "accept"), [("/view/", "text/plain"), ("/async-view/", "application/json")])
def test_view_responds_503_at_once_while_the_store_is_down(
    path: str, accept: str, store_down: str, received: Events
) -> None:
    begin = clock.now()
    response = Client().get(path, headers={"accept": accept})
    assert clock.now() - begin < AT_ONCE
    assert (response.status_code, response["Retry-After"], response["Cache-Control"]) == (503, "5", "no-store")
    if accept == "text/plain":
        assert response.content == DOWN
    else:
        assert json.loads(response.content)["title"] == "Service Unavailable"
        assert json.loads(response.content)["status"] == 503
    shown = f"{response.serialize()!r}"
    for secret in ("hunter2", "operator", "127.0.0.1", "redis", KEY, "patient"):
        assert secret not in shown
    (event,) = received.of(events.BackendFailed)
    assert (event.key, event.name, event.alias) == (KEY, "patient", "default")
    assert event.doing == "acquire, answered with 503"
    assert "hunter2" not in event.problem


def test_call_or_lock_raises_LockBackendError_within_its_timeout(settings: Any, store_down: str) -> None:
    """The message has name, alias, address and a hint, but neither password nor key. Other aliases work."""
    begin = clock.now()
    with pytest.raises(LockBackendError) as raised:
        in_thread(lambda: work(5))
    error = raised.value
    assert (error.key, error.name, error.alias) == ("order:5", "order:{pk}", "default")
    message = str(error)
    assert message.startswith("lock 'order:{pk}', alias 'default': can't reach redis://operator:***@127.0.0.1:")
    assert "Start that server, or correct LOCATION in REDIS_LOCKS" in message
    assert "hunter2" not in f"{error!r} {message}"
    assert "order:5" not in message
    for ask in (
        lambda: locks.lock("order:5").acquire(timeout=0.1),
        lambda: locks.lock("order:5").acquire(blocking=False),
        lambda: locks.lock("order:5").locked(),
        lambda: locks.lock("order:5").force_release(),
    ):
        with pytest.raises(LockBackendError, match="lock 'order', alias 'default': can't reach"):
            in_thread(ask)
    assert clock.now() - begin < AT_ONCE
    settings.REDIS_LOCKS = {"default": {"BACKEND": MEMORY}, "down": {"LOCATION": store_down}}
    with pytest.raises(LockBackendError, match="alias 'down'"):
        redis_lock("order", using="down")(lambda: None)()
    assert redis_lock("order")(lambda: "done")() == "done"


def test_view_that_may_run_without_a_lock_does_so_while_the_store_is_down(
    store_down: str, received: Events, caplog: pytest.LogCaptureFixture
) -> None:
    """[F14] A signal is sent, and an ERROR logged."""
    with caplog.at_level(logging.ERROR, "django_redis_locks"):
        assert Client().get("/open-view/").content == b"done"
    (event,) = received.of(events.BackendFailed)
    assert event.doing == "acquire, going on unlocked"
    (record,) = [record for record in caplog.records if record.name == "django_redis_locks.backend"]
    assert record.levelname == "ERROR"
    assert "hunter2" not in record.getMessage()


def test_result_is_returned_when_the_store_goes_down_during_the_call(
    settings: Any, make_server: Callable[..., RedisServer], received: Events
) -> None:
    """[F12] The release is retried in the background."""
    server = make_server()
    settings.REDIS_LOCKS = {"default": {"LOCATION": server.url()}}

    @redis_lock("order", expire=20)
    def kills() -> str:
        server.kill()
        return "done"

    assert in_thread(kills) == "done"
    (event,) = received.of(events.BackendFailed)
    assert (event.doing, event.name) == ("release", "order")

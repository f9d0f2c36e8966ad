"""`hold="response"`: the lock lasts until the response of any kind is closed."""

from __future__ import annotations

import asyncio
import gc
import pickle
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from django.core.signals import request_finished
from django.db import close_old_connections, connections, transaction
from django.http import FileResponse, HttpRequest, HttpResponse, HttpResponseBase, StreamingHttpResponse
from django.template import engines
from django.template.response import TemplateResponse
from django.test import AsyncClient, Client, RequestFactory
from django.urls import path
from django.utils.deprecation import MiddlewareMixin

from django_redis_locks import current_grant, locks, redis_lock
from tests.django.helpers import PATIENCE, Events, in_thread, wait_until
from tests.django.transaction_log import TransactionLog, record_log
from tests.probes.django import events
from tests.probes.engine import report_losses

pytestmark = [pytest.mark.usefixtures("redis_locks"), pytest.mark.databases("sqlite")]


def is_free() -> bool:
    return in_thread(lambda: not locks.lock("response").locked())


def chunks() -> Iterator[bytes]:
    for _ in range(3):
        yield b"free" if is_free() else b"busy"


async def achunks() -> AsyncIterator[bytes]:
    for _ in range(3):
        yield b"free" if await asyncio.to_thread(is_free) else b"busy"


until_closed = redis_lock("response", hold="response")


def done(request: HttpRequest) -> HttpResponse:
    return HttpResponse("done")


def stream(request: HttpRequest) -> StreamingHttpResponse:
    return StreamingHttpResponse(chunks())


whole, streamed = until_closed(done), until_closed(stream)
stacked = redis_lock("outer", hold="response")(until_closed(done))


@until_closed
async def astreamed(request: HttpRequest) -> StreamingHttpResponse:
    return StreamingHttpResponse(achunks())


@until_closed
async def awhole(request: HttpRequest) -> HttpResponse:
    return HttpResponse("done")


@until_closed
def template(request: HttpRequest) -> TemplateResponse:
    source = engines["django"].from_string("{{ state }}")
    return TemplateResponse(request, source, {"state": lambda: "free" if is_free() else "busy"})


@until_closed
def unrenderable(request: HttpRequest) -> TemplateResponse:
    return TemplateResponse(request, "there is no such template")


@until_closed
def fails(request: HttpRequest) -> HttpResponse:
    raise LookupError


VIEWS = {
    "whole": whole,
    "streamed": streamed,
    "streamed_by_default": redis_lock("response")(stream),
    "astreamed": astreamed,
    "awhole": awhole,
    "template": template,
    "unrenderable": unrenderable,
    "unprocessed": whole,
    "fails": fails,
}

urlpatterns = [path(f"{name}/", view) for name, view in VIEWS.items()]


class ReplacingMiddleware(MiddlewareMixin):
    """Replaces the response without closing it, as `ConditionalGetMiddleware` may."""

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponse:
        return HttpResponse("free" if is_free() else "busy")


class KeepingMiddleware(MiddlewareMixin):
    """Keeps references to responses, and raises for some."""

    kept: ClassVar[list[HttpResponseBase]] = []

    def process_template_response(self, request: HttpRequest, response: TemplateResponse) -> TemplateResponse:
        self.kept.append(response)
        return response

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        self.kept.append(response)
        if request.path == "/unprocessed/":
            raise LookupError
        return response


@pytest.fixture(autouse=True)
def no_database(settings: Any) -> Iterator[None]:
    """Without databases, the end of a request closes no connections."""
    settings.TEMPLATES = [{"BACKEND": "django.template.backends.django.DjangoTemplates"}]
    request_finished.disconnect(close_old_connections)
    yield
    request_finished.connect(close_old_connections)


def test_lock_is_held_until_the_response_is_closed(tmp_path: Path) -> None:
    """[D8] [D17] [D18] [D19] Servers close a response when it was sent, or when the client has disconnected. File
    responses can still use sendfile. Neither the end of another request nor the copy of a cache middleware releases the
    lock."""
    (tmp_path / "file").write_bytes(b"done")
    file = until_closed(lambda request: FileResponse((tmp_path / "file").open("rb")))

    def outlives_others(response: HttpResponse) -> bool:
        request_finished.send(sender=None)
        copy = pickle.loads(pickle.dumps(response))
        copy.close()
        return current_grant() is None and bool(copy.content == b"done")

    for name, view, holds in (
        ("whole", whole, outlives_others),
        ("file", file, lambda response: response.file_to_stream is not None),
        ("stream", streamed, lambda response: type(response._iterator) is type(chunks())),
        ("stacked", stacked, lambda response: locks.lock("outer").locked()),
    ):
        response = view(RequestFactory().get("/"))
        assert holds(response), name
        assert not is_free(), name
        response.close()
        assert is_free(), name
        assert not locks.lock("outer").locked()


def test_lock_is_free_after_the_request() -> None:
    """[D17] [D19] [D38] After the view has returned, a stream is read, and a template rendered, under the lock. A
    response may be closed in another thread."""
    for name, content in (("whole", b"done"), ("streamed", b"busybusybusy"), ("template", b"busy")):
        for _ in range(2):
            assert Client().get(f"/{name}/").getvalue() == content, name
            assert is_free(), name
    assert Client().get("/streamed_by_default/").getvalue() == b"freefreefree"
    with pytest.raises(LookupError):
        Client().get("/fails/")
    assert is_free()
    assert until_closed(lambda: "done")() == "done"
    assert is_free()
    assert asyncio.run(AsyncClient().get("/whole/")).content == b"done"
    wait_until(is_free)


def test_second_request_during_a_stream_is_refused() -> None:
    """[D17] Also in the same thread."""
    first = Client().get("/streamed/")
    assert Client().get("/streamed/").status_code == 409
    assert not is_free()
    assert first.getvalue() == b"busybusybusy"
    assert Client().get("/streamed/").getvalue() == b"busybusybusy"


def test_lock_of_a_response_that_is_never_closed_is_released(settings: Any) -> None:
    """[D17] [D28] When it is garbage-collected, or replaced by middleware. Middleware runs under the lock with
    hold="response" only."""
    gc.disable()
    try:
        response = whole(RequestFactory().get("/"))
        assert not is_free()
        del response
        wait_until(is_free)
    finally:
        gc.enable()
    settings.MIDDLEWARE = [f"{__name__}.ReplacingMiddleware"]
    for url, state in (("/whole/", "busy"), ("/streamed_by_default/", "free")):
        assert Client().get(url).text == state
        gc.collect()
        wait_until(is_free)


def test_lock_is_released_when_the_request_ends_with_another_response(settings: Any) -> None:
    """[D1] After an error of the template or of middleware, or a response of middleware; the view's response is still
    referenced."""
    settings.MIDDLEWARE = [f"{__name__}.ReplacingMiddleware", f"{__name__}.KeepingMiddleware"]
    for name in ("unrenderable", "unprocessed", "whole"):
        Client(raise_request_exception=False).get(f"/{name}/")
        assert KeepingMiddleware.kept.pop(), name
        assert is_free(), name


def test_close_of_a_response_after_a_loss_raises_nothing(received: Events) -> None:
    """[D30]"""
    response = whole(RequestFactory().get("/"))
    locks.lock("response").force_release()
    response.close()
    report_losses()
    assert [len(received.of(kind)) for kind in (events.Lost, events.Released)] == [1, 0]


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize(("name", "content"), [("awhole", b"done"), ("astreamed", b"busybusybusy")])
def test_lock_of_an_async_response_is_released_at_its_end(name: str, content: bytes, received: Events) -> None:
    """[D17] Whether it is closed in the loop, as by the test client, or in a thread, as by servers."""

    async def scenario() -> bytes:
        response = await AsyncClient().get(f"/{name}/")
        if not response.streaming:
            return response.content
        assert not await asyncio.to_thread(is_free)
        return b"".join([chunk async for chunk in response.streaming_content])

    for _ in range(2):
        assert asyncio.run(asyncio.wait_for(scenario(), PATIENCE)) == content
        wait_until(is_free)
    wait_until(lambda: [event.confirmed for event in received.of(events.Released)] == [True, True])


class TestTransactions:
    @pytest.fixture(autouse=True)
    def log(self, two_databases: object) -> Iterator[TransactionLog]:
        connections.settings["default"]["ATOMIC_REQUESTS"] = True
        with record_log("default", "other") as found:
            yield found

    def test_transaction_is_committed_before_the_response_is_sent(self, log: TransactionLog) -> None:
        """[D1]"""
        response = Client().get("/streamed/")
        log.assert_equals("acquire response", "BEGIN default", "COMMIT default")
        response.close()
        assert log[3:] == ["release response"]

    def test_response_inside_a_transaction_releases_after_commit_and_close(self, log: TransactionLog) -> None:
        """[D2] After the COMMIT the thread can't re-enter."""
        with transaction.atomic():
            Client().get("/whole/")
            assert not is_free()
        log.assert_equals("BEGIN default", "acquire response", "COMMIT default", "release response")
        with transaction.atomic():
            response = whole(RequestFactory().get("/"))
        assert not locks.lock("response").owned()
        request_finished.send(sender=None)
        assert not is_free()
        response.close()
        assert log[-2:] == ["COMMIT default", "release response"]

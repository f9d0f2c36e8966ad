"""`hold="response"`: the lock lasts until the response is closed, whatever kind it is."""

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
from tests.django.helpers import PATIENCE, Events, in_thread, until
from tests.django.transaction_log import TransactionLog, recorded
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


class Replaces(MiddlewareMixin):
    """Answers with another response and forgets the first, as `ConditionalGetMiddleware` may."""

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponse:
        return HttpResponse("free" if is_free() else "busy")


class Keeps(MiddlewareMixin):
    """Knows the responses of views, and fails over some."""

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
    """As in the test client: the end of a request has no connections to close."""
    settings.TEMPLATES = [{"BACKEND": "django.template.backends.django.DjangoTemplates"}]
    request_finished.disconnect(close_old_connections)
    yield
    request_finished.connect(close_old_connections)


def test_lock_is_held_until_the_response_is_closed(tmp_path: Path) -> None:
    """[D8] [D17] [D18] [D19] Servers close it when it was sent, or unread for a client that has gone. A server may
    still send a file by itself, no wrapper around a stream's iterator has a `close` that could be missed, and neither the
    end of another request nor the copy of a cache middleware closes it."""
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
    """[D17] [D19] [D38] A stream is read, and a template rendered, under the lock, after the view has returned. Closing a
    response in another thread than it was made in releases, too."""
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
    until(is_free)


def test_second_request_during_a_stream_is_refused() -> None:
    """[D17] Also one in the same thread."""
    first = Client().get("/streamed/")
    assert Client().get("/streamed/").status_code == 409
    assert not is_free()
    assert first.getvalue() == b"busybusybusy"
    assert Client().get("/streamed/").getvalue() == b"busybusybusy"


def test_response_that_is_never_closed_frees_the_lock(settings: Any) -> None:
    """[D17] [D28] It is collected, or replaced by middleware, which runs under the lock, as the one that saves sessions
    does, with hold="response" only."""
    gc.disable()
    try:
        response = whole(RequestFactory().get("/"))
        assert not is_free()
        del response
        until(is_free)
    finally:
        gc.enable()
    settings.MIDDLEWARE = [f"{__name__}.Replaces"]
    for url, state in (("/whole/", "busy"), ("/streamed_by_default/", "free")):
        assert Client().get(url).text == state
        gc.collect()
        until(is_free)


def test_request_that_ends_in_another_response_frees_the_lock(settings: Any) -> None:
    """[D1] The template can't be rendered, middleware fails, or answers itself; the view's response stays in memory."""
    settings.MIDDLEWARE = [f"{__name__}.Replaces", f"{__name__}.Keeps"]
    for name in ("unrenderable", "unprocessed", "whole"):
        Client(raise_request_exception=False).get(f"/{name}/")
        assert Keeps.kept.pop(), name
        assert is_free(), name


def test_close_after_a_loss_raises_nothing(seen: Events) -> None:
    """[D30]"""
    response = whole(RequestFactory().get("/"))
    locks.lock("response").force_release()
    response.close()
    report_losses()
    assert [len(seen.of(kind)) for kind in (events.Lost, events.Released)] == [1, 0]


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize(("name", "content"), [("awhole", b"done"), ("astreamed", b"busybusybusy")])
def test_asynchronous_response_releases_at_its_end(name: str, content: bytes, seen: Events) -> None:
    """[D17] The test client closes a stream in the loop, servers close it in a thread: neither may block the other."""

    async def scenario() -> bytes:
        response = await AsyncClient().get(f"/{name}/")
        if not response.streaming:
            return response.content
        assert not await asyncio.to_thread(is_free)
        return b"".join([chunk async for chunk in response.streaming_content])

    for _ in range(2):
        assert asyncio.run(asyncio.wait_for(scenario(), PATIENCE)) == content
        until(is_free)
    until(lambda: [event.confirmed for event in seen.of(events.Released)] == [True, True])


class TestTransactions:
    @pytest.fixture(autouse=True)
    def log(self, two_databases: object) -> Iterator[TransactionLog]:
        connections.settings["default"]["ATOMIC_REQUESTS"] = True
        with recorded("default", "other") as found:
            yield found

    def test_commit_comes_before_the_body(self, log: TransactionLog) -> None:
        """[D1]"""
        response = Client().get("/streamed/")
        log.equals("acquire response", "BEGIN default", "COMMIT default")
        response.close()
        assert log[3:] == ["release response"]

    def test_response_inside_a_transaction_releases_after_commit_and_close(self, log: TransactionLog) -> None:
        """[D2] The COMMIT ends the thread's right to enter."""
        with transaction.atomic():
            Client().get("/whole/")
            assert not is_free()
        log.equals("BEGIN default", "acquire response", "COMMIT default", "release response")
        with transaction.atomic():
            response = whole(RequestFactory().get("/"))
        assert not locks.lock("response").owned()
        request_finished.send(sender=None)
        assert not is_free()
        response.close()
        assert log[-2:] == ["COMMIT default", "release response"]

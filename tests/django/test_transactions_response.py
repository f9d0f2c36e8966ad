"""`hold="response"`: the lock lasts until the response is closed, whatever kind it is."""

from __future__ import annotations

import asyncio
import gc
import pickle
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.contrib.sessions.backends import signed_cookies
from django.core.signals import request_finished
from django.db import close_old_connections, connections, transaction
from django.http import FileResponse, HttpRequest, HttpResponse, HttpResponseBase, StreamingHttpResponse
from django.template import engines
from django.template.response import TemplateResponse
from django.test import AsyncClient, Client, RequestFactory
from django.urls import path
from django.utils.deprecation import MiddlewareMixin

from django_redis_locks import current_grant, locks, redis_lock
from django_redis_locks.core import events
from tests.django.helpers import PATIENCE, Events, in_thread, until
from tests.django.ledger import Ledger, keeping

pytestmark = pytest.mark.usefixtures("store")


def is_free() -> bool:
    return in_thread(lambda: not locks.lock("response").locked())


def chunks() -> Iterator[bytes]:
    for _ in range(3):
        yield b"free" if is_free() else b"busy"


async def achunks() -> AsyncIterator[bytes]:
    for _ in range(3):
        yield b"free" if await asyncio.to_thread(is_free) else b"busy"


@redis_lock("response", hold="response")
def whole(request: HttpRequest) -> HttpResponse:
    return HttpResponse("done")


@redis_lock("response", hold="response")
def streamed(request: HttpRequest) -> StreamingHttpResponse:
    return StreamingHttpResponse(chunks())


@redis_lock("response")
def streamed_by_default(request: HttpRequest) -> StreamingHttpResponse:
    return StreamingHttpResponse(chunks())


@redis_lock("response", hold="response")
async def astreamed(request: HttpRequest) -> StreamingHttpResponse:
    return StreamingHttpResponse(achunks())


@redis_lock("response", hold="response")
async def awhole(request: HttpRequest) -> HttpResponse:
    return HttpResponse("done")


@redis_lock("response", hold="response")
def template(request: HttpRequest) -> TemplateResponse:
    source = engines["django"].from_string("{{ state }}")
    return TemplateResponse(request, source, {"state": lambda: "free" if is_free() else "busy"})


@redis_lock("response", hold="response")
def fails(request: HttpRequest) -> HttpResponse:
    raise LookupError


@redis_lock("response", hold="response")
def no_response() -> str:
    return "done"


@redis_lock("outer", hold="response")
@redis_lock("response", hold="response")
def stacked(request: HttpRequest) -> HttpResponse:
    return HttpResponse("done")


@redis_lock("response", hold="response")
def shopping(request: HttpRequest) -> HttpResponse:
    request.session["cart"] = [1]
    return HttpResponse("done")


@redis_lock("response")
def shopping_by_default(request: HttpRequest) -> HttpResponse:
    request.session["cart"] = [1]
    return HttpResponse("done")


VIEWS = (
    shopping,
    shopping_by_default,
    whole,
    streamed,
    streamed_by_default,
    astreamed,
    awhole,
    template,
    fails,
    stacked,
)

urlpatterns = [path(f"{view.__name__}/", view) for view in VIEWS]


class Replaced(MiddlewareMixin):
    """Answers with another response and forgets the first, as `ConditionalGetMiddleware` may."""

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponse:
        return HttpResponse(status=304)


@pytest.fixture(autouse=True)
def no_database() -> Iterator[None]:
    """As in the test client: the end of a request has no connections to close."""
    request_finished.disconnect(close_old_connections)
    yield
    request_finished.connect(close_old_connections)


@pytest.fixture(autouse=True)
def templates(settings: Any) -> None:
    settings.TEMPLATES = [{"BACKEND": "django.template.backends.django.DjangoTemplates"}]


def test_a_response() -> None:
    """[D19] Held until it is closed, which servers do when it was sent."""
    response = whole(RequestFactory().get("/"))
    assert current_grant() is None
    assert not is_free()
    response.close()
    assert is_free()


def test_closed_by_the_client() -> None:
    """[D19] A whole request."""
    for _ in range(2):
        assert Client().get("/whole/").content == b"done"
        assert is_free()


@pytest.mark.parametrize(("view", "free"), [("shopping", False), ("shopping_by_default", True)])
def test_a_session(view: str, free: bool, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """[D28] Middleware saves it after the view has returned: under the lock only if that waits for the response."""
    settings.SESSION_ENGINE = "django.contrib.sessions.backends.signed_cookies"
    settings.MIDDLEWARE = ["django.contrib.sessions.middleware.SessionMiddleware"]
    saved: list[bool] = []
    save = signed_cookies.SessionStore.save

    def saving(self: Any, must_create: bool = False) -> None:
        saved.append(is_free())
        save(self, must_create)

    monkeypatch.setattr(signed_cookies.SessionStore, "save", saving)
    assert Client().get(f"/{view}/").content == b"done"
    assert saved == [free]
    assert is_free()


def test_a_stream() -> None:
    """[D17] Its body is made after the view has returned."""
    assert Client().get("/streamed/").getvalue() == b"busybusybusy"
    assert is_free()


def test_a_stream_without_it() -> None:
    """[D17] Without `hold="response"` it is made without the lock."""
    assert Client().get("/streamed_by_default/").getvalue() == b"freefreefree"


def test_two_streams() -> None:
    """[D17] A second request during the first one's body is refused, also one in the same thread."""
    first = Client().get("/streamed/")
    assert Client().get("/streamed/").status_code == 409
    assert not is_free()
    assert first.getvalue() == b"busybusybusy"
    assert Client().get("/streamed/").getvalue() == b"busybusybusy"


def test_a_stream_that_nobody_reads() -> None:
    """[D17] Closed before its first chunk, as for a client that has gone."""
    response = Client().get("/streamed/")
    assert not is_free()
    response.close()
    assert is_free()


def test_its_iterator_isnt_touched() -> None:
    """[D17] No wrapper whose `close` could be missed."""
    own = chunks()
    response = streamed(RequestFactory().get("/"))
    assert type(response._iterator) is type(own)  # type: ignore[attr-defined]
    response.close()


def test_a_file(tmp_path: Path) -> None:
    """[D18] The server may still send it by itself: it looks for `file_to_stream`."""
    file = tmp_path / "file"
    file.write_bytes(b"done")

    @redis_lock("response", hold="response")
    def view() -> FileResponse:
        return FileResponse(file.open("rb"))

    response = view()
    assert response.file_to_stream is not None
    assert not is_free()
    response.close()
    assert is_free()


def test_a_template() -> None:
    """[D19] It is rendered after the view has returned."""
    assert Client().get("/template/").content == b"busy"
    assert is_free()


def test_an_exception() -> None:
    """There is no response to wait for."""
    with pytest.raises(LookupError):
        Client().get("/fails/")
    assert is_free()


def test_no_response() -> None:
    """What isn't a response has no end."""
    assert no_response() == "done"
    assert is_free()


def test_stacked() -> None:
    """[D8] Each lock waits for it."""
    response = stacked(RequestFactory().get("/"))
    assert locks.lock("outer").locked()
    assert not is_free()
    response.close()
    assert is_free()
    assert not locks.lock("outer").locked()


def test_never_closed() -> None:
    """[D17] What nobody closes is collected, and the janitor frees the lock."""
    response = whole(RequestFactory().get("/"))
    assert not is_free()
    del response
    gc.collect()
    until(is_free)


def test_replaced(settings: Any) -> None:
    """[D17] A middleware forgot it."""
    settings.MIDDLEWARE = [f"{__name__}.Replaced"]
    assert Client().get("/whole/").status_code == 304
    gc.collect()
    until(is_free)


def test_other_requests_in_the_same_thread() -> None:
    """The end of another request isn't its end: a test may make several before it reads a stream."""
    response = whole(RequestFactory().get("/"))
    request_finished.send(sender=None)
    assert not is_free()
    response.close()


def test_kept_in_a_cache() -> None:
    """A cache middleware pickles responses; the copy has no lock."""
    response = whole(RequestFactory().get("/"))
    copy = pickle.loads(pickle.dumps(response))
    copy.close()
    assert copy.content == b"done"
    assert not is_free()
    response.close()


def test_lost_before_it_is_closed(seen: Events) -> None:
    """[D30] Lost before it was closed: told, and close() raises nothing."""
    response = whole(RequestFactory().get("/"))
    locks.lock("response").force_release()
    response.close()
    assert len(seen.of(events.Lost)) == 1
    assert seen.of(events.Released) == []


@pytest.mark.parametrize(("name", "content"), [("awhole", b"done"), ("astreamed", b"busybusybusy")])
def test_asynchronous(name: str, content: bytes, seen: Events) -> None:
    """[D17] The test client closes a stream in the loop, servers close it in a thread: neither may block the other."""

    async def story() -> bytes:
        response = await AsyncClient().get(f"/{name}/")
        if not response.streaming:
            return response.content
        assert not await asyncio.to_thread(is_free)
        return b"".join([chunk async for chunk in response.streaming_content])

    for _ in range(2):
        assert asyncio.run(asyncio.wait_for(story(), PATIENCE)) == content
        until(is_free)
    until(lambda: [event.confirmed for event in seen.of(events.Released)] == [True, True])


def test_synchronous_under_asgi() -> None:
    """[D38] Acquired in one thread, and closed in another."""
    assert asyncio.run(AsyncClient().get("/whole/")).content == b"done"
    until(is_free)


class TestTransactions:
    @pytest.fixture(autouse=True)
    def ledger(self, two_databases: object) -> Iterator[Ledger]:
        connections.settings["default"]["ATOMIC_REQUESTS"] = True
        with keeping("default", "other") as found:
            yield found

    def test_atomic_requests(self, ledger: Ledger) -> None:
        """[D1] COMMIT comes first, then the body."""
        response = Client().get("/streamed/")
        ledger.reads("acquire response", "BEGIN default", "COMMIT default")
        response.close()
        ledger.reads("acquire response", "BEGIN default", "COMMIT default", "release response")

    def test_a_transaction_around(self, ledger: Ledger) -> None:
        """[D2] Closed before COMMIT: it waits for both."""
        with transaction.atomic():
            Client().get("/whole/")
            assert not is_free()
        ledger.reads("BEGIN default", "acquire response", "COMMIT default", "release response")

    def test_a_transaction_that_ends_first(self, ledger: Ledger) -> None:
        """[D2] COMMIT before it is closed: from then on the thread has no right to enter it again."""
        with transaction.atomic():
            response = whole(RequestFactory().get("/"))
        assert not is_free()
        assert not locks.lock("response").owned()
        request_finished.send(sender=None)
        assert not is_free()
        response.close()
        assert ledger[-2:] == ["COMMIT default", "release response"]

"""`cached_page` and kinds of views: templates, classes, the REST framework, asynchronous ones, and what isn't a view."""

from __future__ import annotations

import asyncio
import gc
from time import monotonic
from typing import Any

import pytest
from django.http import HttpRequest, HttpResponse
from django.utils.decorators import method_decorator
from django.views import View
from rest_framework.response import Response
from rest_framework.views import APIView

from django_redis_locks.cache import cached_page
from tests.cache.site import Boom, Site, ask, get, happens, is_waiting, template_response, text, waiting
from tests.django.helpers import PATIENCE


def test_template_is_rendered_before_others_go_on(pages: None) -> None:
    """Django renders it, above the decorator; the others wait for that."""
    site = Site(template_response)
    view = site.view()
    first = view(get())
    assert not first.is_rendered
    found = ask(view)
    assert is_waiting(found)
    assert text(first.render()) == "page 1"
    assert text(found) == text(view(get())) == "page 1"
    assert site.rendered == 1


def test_template_that_fails_is_not_waited_for(pages: None) -> None:
    view = Site(template_response).view()
    first = view(get())
    first.context_data["boom"] = Boom()
    found = ask(view)
    assert is_waiting(found)
    with pytest.raises(ZeroDivisionError):
        first.render()
    assert text(found.result(PATIENCE).render()) == "page 2"


def test_template_that_is_never_rendered_frees_the_lease(pages: None) -> None:
    """A decorator outside answers something else."""
    view = Site(template_response).view()
    view(get())
    gc.collect()
    begin = monotonic()
    assert text(view(get()).render()) == "page 2"
    assert monotonic() - begin < 8


def test_view_of_the_rest_framework_is_cached_when_it_is_rendered(redis_cache: None) -> None:
    """How its answers are rendered is known when they have left the view."""
    rendered: list[int] = []

    class Orders(APIView):
        @method_decorator(cached_page(300))
        def get(self, request: Any) -> Response:
            rendered.append(1)
            return Response({"orders": len(rendered)})

    view = Orders.as_view()
    assert text(view(get()).render()) == text(view(get()).render()) == '{"orders":1}'
    assert rendered == [1]


def test_wrong_option_or_target_raises(redis_cache: None) -> None:
    for options in ({"stale": -1}, {"wait": -5}):
        with pytest.raises(ValueError, match=next(iter(options))):
            cached_page(300, **options)(Site())

    class Shop(View):
        @cached_page(300)
        def get(self, request: HttpRequest) -> HttpResponse:
            return HttpResponse()

    with pytest.raises(TypeError, match="method_decorator"):
        Shop.as_view()(get())

    async def answers(request: HttpRequest) -> HttpResponse:
        return HttpResponse()

    def dispatches(request: HttpRequest) -> Any:
        return answers(request)

    with pytest.raises(TypeError, match="decorate the async handler"):
        cached_page(300, key_prefix="mistakes")(dispatches)(get())


def test_cancelled_request_is_not_waited_for(pages: None) -> None:
    """[S21] The client of the request that renders hangs up: the next one renders."""
    site = Site(closed=True)
    view = site.aview()

    async def story() -> str:
        first = asyncio.create_task(view(get()))
        await happens(lambda: site.rendered)
        second = asyncio.create_task(view(get()))
        await happens(waiting)
        third = asyncio.create_task(view(get()))
        await asyncio.sleep(0)
        third.cancel()
        first.cancel()
        site.go.set()
        return text(await asyncio.wait_for(second, PATIENCE))

    assert asyncio.run(story()) == "page 2"


def test_template_of_an_asynchronous_view_is_rendered_before_others_go_on(pages: None) -> None:
    """Django renders it in a thread, where the lease ends."""
    view = Site(template_response).aview()

    async def story() -> list[str]:
        first = await view(get())
        second = asyncio.create_task(view(get()))
        await happens(lambda: waiting() or second.done())
        assert not second.done()
        await asyncio.to_thread(first.render)
        return [text(first), text(await asyncio.wait_for(second, PATIENCE))]

    assert asyncio.run(story()) == ["page 1"] * 2

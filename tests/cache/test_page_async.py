"""`cached_page` of asynchronous views."""

from __future__ import annotations

import asyncio

from tests.cache.site import Site, get, happens, template_response, text, waiting
from tests.django.helpers import PATIENCE


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

"""What the examples of the quickstart take for granted, and what must hold after them."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

from django.test import Client

from django_redis_locks import locks
from tests.docs.examples import Names, after, given, hold_elsewhere, is_one_lock, problems_of
from tests.docs.pages import BLOCKS


@given("quickstart:mysite")
def _() -> Names:
    return {"INSTALLED_APPS": []}


@after("quickstart:mysite")
def _(names: Names) -> None:
    assert names["settings"].INSTALLED_APPS == ["django_redis_locks"]
    assert problems_of(REDIS_LOCKS=names["settings"].REDIS_LOCKS) == []
    client = Client()
    is_one_lock(lambda: client.get("/checkout/1/"), "checkout:1")
    with hold_elsewhere("checkout:1"):
        refused = client.get("/checkout/1/")
        assert client.get("/checkout/2/").status_code == 200
    shown = next(block.code for block in BLOCKS if block.page.name == "quickstart.md" and "curl" in block.code)
    assert f"HTTP/1.1 409 {refused.reason_phrase}\n" in shown
    for header in ("Content-Type", "Retry-After", "Cache-Control"):
        assert f"{header}: {refused[header]}\n" in shown
    assert shown.endswith(f"\n\n{refused.text}")


@after("quickstart:shell")
def _(names: Names) -> None:
    assert names["grant"].key == "checkout:1"
    assert not locks.lock("checkout:1").locked()


@after("quickstart:function")
def _(names: Names) -> None:
    charged: list[int] = []

    def charge(fence: int) -> None:
        charged.append(fence)

    names["settle"](SimpleNamespace(pk=1, charge=charge))
    assert charged[0] > 10**15


@after("quickstart:coroutine")
def _(names: Names) -> None:
    owned: list[bool] = []

    async def charge() -> None:
        owned.append(locks.lock("order:1").owned())

    asyncio.run(names["settle"](SimpleNamespace(pk=1, acharge=charge)))
    assert owned == [True]

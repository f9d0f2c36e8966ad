"""`cached_page`: Django's `cache_page`, with one request to render each page."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
import redis
from django.core.cache import caches
from django.core.cache.backends.locmem import LocMemCache
from django.http import HttpRequest, HttpResponse
from django.test import RequestFactory
from django.utils.cache import get_max_age
from django.views.decorators.cache import cache_page

from django_redis_locks.cache import cached_page
from tests.cache.backends import FILES, LOCMEM
from tests.cache.site import Site, ask, get, is_waiting, text
from tests.contract.matrix import eventually
from tests.django.helpers import PATIENCE
from tests.probes.cache import run_before_last_page_lookup, shift_clock

ROOT = Path(__file__).parents[2]


def test_concurrent_requests_render_one_page(pages: None) -> None:
    """[S41] The others go on when both of Django's keys are there, and find it."""
    site = Site(lambda _, number: HttpResponse(f"page {number}", headers={"Vary": "Accept-Encoding"}), closed=True)
    view = site.view()
    found = [ask(view) for _ in range(8)]
    site.has_begun()
    assert is_waiting(found[0])
    site.go.set()
    assert [text(each) for each in found] == ["page 1"] * 8
    assert text(view(get())) == "page 1"
    assert site.rendered == 1


PROGRAM = """
import sys, threading, time
import django
from django.conf import settings
url = sys.argv[1]
settings.configure(
    ALLOWED_HOSTS=["*"], USE_TZ=True,
    CACHES={"default": {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": url}},
    REDIS_LOCKS={"default": {"LOCATION": url}},
)
django.setup()
import redis
from django.http import HttpResponse
from django.test import RequestFactory
from django_redis_locks.cache import cached_page
counts = redis.Redis.from_url(url)
@cached_page(300, wait=120)
def view(request):
    counts.incr("rendered")
    while int(counts.get("came")) < 10:
        time.sleep(0.01)
    return HttpResponse("page")
def visit():
    counts.incr("came")
    assert view(RequestFactory().get("/page/")).content == b"page"
threads = [threading.Thread(target=visit) for _ in range(5)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
"""


def test_two_processes_render_one_page(redis_url: str, direct: redis.Redis) -> None:
    """[S41] With 5 requests each; the one that renders waits until all have come."""
    command = [sys.executable, "-c", PROGRAM, redis_url]
    running = [subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE) for _ in range(2)]
    for process in running:
        assert process.communicate(timeout=6 * PATIENCE)[1] == b""
    assert direct.get("rendered") == b"1"


def test_requests_of_other_addresses_methods_or_prefixes_do_not_wait(redis_cache: None, settings: Any) -> None:
    """[S41]"""
    settings.ALLOWED_HOSTS = ["*"]
    site = Site(closed=True)
    view, prefixed = site.view(), site.view(key_prefix="other")
    first = ask(view)
    site.has_begun()
    ask(view, get("/page/?q=1"))
    ask(view, get(method="HEAD"))
    ask(view, RequestFactory().get("/page/", headers={"Host": "other.example"}))
    ask(prefixed)
    site.has_begun(4)
    again = ask(view)
    assert is_waiting(again)
    site.go.set()
    assert text(again) == text(first) == "page 1"
    assert site.rendered == 5


def test_post_is_rendered_each_time(pages: None) -> None:
    view = Site().view()
    assert [text(view(get(method="POST"))) for _ in range(2)] == ["page 1", "page 2"]


def test_head_takes_the_page_of_get(pages: None) -> None:
    view = Site().view()
    view(get())
    assert text(view(get(method="HEAD"))) == "page 1"
    assert text(view(get("/other/", "HEAD"))) == "page 2"
    assert text(view(get("/other/"))) == "page 3"


def test_request_whose_wait_is_over_renders(pages: None) -> None:
    """[S12]"""
    site = Site(closed=True)
    view = site.view(wait=0.05)
    found = [ask(view), ask(view)]
    site.has_begun(2)
    site.go.set()
    assert {text(each) for each in found} == {"page 1", "page 2"}


def test_request_whose_wait_is_over_looks_once_more(pages: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """[S41] The page was stored, and the news of it was lost."""
    site = Site(closed=True)
    view = site.view(wait=0.1)
    first = ask(view)
    site.has_begun()
    store = cache_page(300)(lambda request: HttpResponse("meanwhile"))
    run_before_last_page_lookup(monkeypatch, lambda: store(get()))
    assert text(ask(view)) == "meanwhile"
    site.go.set()
    assert text(first) == "page 1"
    assert site.rendered == 1


def test_wait_begins_after_the_lookup(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """[S22] Of a crowd of tasks each looks after the other one. The time which that takes isn't part of their wait."""
    settings.CACHES = {"default": {"BACKEND": LOCMEM, "LOCATION": "late"}}
    look, shift = LocMemCache.get, shift_clock(monkeypatch)
    site = Site(closed=True)
    view = site.view(wait=20)
    first = ask(view)
    site.has_begun()

    def look_for_long(*args: Any, **kwargs: Any) -> Any:
        shift(25.0)
        return look(*args, **kwargs)

    monkeypatch.setattr(LocMemCache, "get", look_for_long)
    second = ask(view)
    assert is_waiting(second)
    site.go.set()
    assert (text(first), text(second)) == ("page 1", "page 1")


def test_page_is_stored_before_the_headers_it_varies_on(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """[S41] Between the two a request would find no page, and its renderer has begun under another key."""
    settings.CACHES = {"default": {"BACKEND": LOCMEM, "LOCATION": "order"}}
    store, stored = LocMemCache.set, []

    def set_(cache: Any, key: str, value: Any, *args: Any, **kwargs: Any) -> None:
        stored.append(type(value))
        store(cache, key, value, *args, **kwargs)

    monkeypatch.setattr(LocMemCache, "set", set_)
    assert text(Site().view()(get())) == "page 1"
    assert stored == [HttpResponse, list]


def test_page_is_shared_with_djangos_cache_page(redis_cache: None, direct: redis.Redis) -> None:
    site = Site()
    ours, theirs = site.view(key_prefix="p", cache="other"), cache_page(300, key_prefix="p", cache="other")(site)
    assert text(ours(get("/a/"))) == text(theirs(get("/a/"))) == "page 1"
    assert text(theirs(get("/b/"))) == text(ours(get("/b/"))) == "page 2"
    assert get_max_age(ours(get("/a/"))) == 300
    assert 0 <= int(ours(get("/a/"))["Age"]) < 10
    assert direct.dbsize() == 4


def test_lease_is_gone_when_the_page_is_stored(redis_cache: None, direct: redis.Redis) -> None:
    Site().view()(get())
    eventually(lambda: direct.dbsize() == 2)
    assert not direct.keys("*turn*")


def test_page_that_was_cleared_during_its_rendering_is_not_stored(pages: None, settings: Any) -> None:
    """[S1] [S31] It is older than that."""
    wrapper = {"BACKEND": "django_redis_locks.cache.StampedeCache", "LOCATION": "default"}
    settings.CACHES = {**settings.CACHES, "wrapped": wrapper}
    site = Site()
    view = site.view(cache="wrapped")
    for number in (1, 3):
        site.go.clear()
        first = ask(view)
        site.has_begun()
        caches["wrapped"].clear()
        site.go.set()
        assert text(first) == f"page {number}"
        assert text(view(get())) == text(view(get())) == f"page {number + 1}"
        site.has_begun()
        caches["wrapped"].clear()


def test_view_that_calls_a_view_of_its_address_does_not_wait_for_itself(pages: None) -> None:
    """[S19]"""

    @cached_page(300, wait=30)
    def inner(request: HttpRequest) -> HttpResponse:
        return HttpResponse("page")

    @cached_page(300, wait=30)
    def outer(request: HttpRequest) -> Any:
        return inner(request)

    begin = monotonic()
    assert text(outer(get())) == "page"
    assert monotonic() - begin < 8


def test_each_process_renders_once_without_the_store_of_leases(settings: Any, tmp_path: Path) -> None:
    """[S45] A cache of files, whose locks can't be reached."""
    settings.REDIS_LOCKS = {"default": {"LOCATION": "redis://127.0.0.1:1/0"}}
    settings.CACHES = {"default": {"BACKEND": FILES, "LOCATION": str(tmp_path)}}
    site = Site()
    assert text(site.view(wait=0.5)(get("/first/"))) == "page 1"  # and it is known that they can't
    site.has_begun()
    site.go.clear()
    found = [ask(site.view(), get()) for _ in range(4)]
    site.has_begun()
    assert is_waiting(found[0])
    site.go.set()
    assert [text(each) for each in found] == ["page 2"] * 4

"""`cached_page` with `stale`: old pages are served while one request renders."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
import redis
from django.http import HttpRequest, HttpResponse
from django.utils.cache import get_max_age
from django.utils.http import parse_http_date

from django_redis_locks.cache import cached_page
from tests.cache.site import Site, ask, get, text
from tests.django.helpers import in_thread


def test_old_page_is_served_while_one_request_renders(pages: None, wall_clock: Callable[[float], None]) -> None:
    site = Site()
    view = site.view(stale=600)
    view(get())
    wall_clock(301)
    site.go.clear()
    renders = ask(view)
    site.has_begun(2)
    assert [text(in_thread(lambda: view(get()))) for _ in range(3)] == ["page 1"] * 3
    site.go.set()
    assert text(renders) == text(view(get())) == "page 2"


def test_old_page_is_kept_for_stale_beyond_its_timeout(redis_cache: None, direct: redis.Redis) -> None:
    def left(word: str, stale: int) -> float:
        (key,) = (key for key in direct.keys(f"*{word}*") if f".{stale}.".encode() in key)
        return direct.pttl(key) / 1000

    for stale in (0, 600):
        Site().view(stale=stale, key_prefix=str(stale))(get())
        assert 290 + stale < left("cache_page", stale) <= 300 + stale
        assert left("cache_header", stale) > left("cache_page", stale) + 3600  # [S42] what it varies on


def test_failure_leaves_the_old_page(pages: None, wall_clock: Callable[[float], None]) -> None:
    """One request tries, and the next one again; no other one sees it."""
    site = Site()
    view = site.view(stale=600)
    view(get())
    wall_clock(301)

    def fails(_: HttpRequest, number: int) -> HttpResponse:
        raise ZeroDivisionError

    site.answer = fails
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            view(get())
    site.answer = lambda _, number: HttpResponse(f"page {number}")
    assert text(view(get())) == "page 4"


def test_pages_end_at_different_times_and_none_is_older_than_it_says(
    redis_cache: None, wall_clock: Callable[[float], None]
) -> None:
    """[S33] Pages that are rendered together don't end together."""
    site = Site()
    view = site.view(stale=600)
    for number in range(20):
        page = view(get(f"/{number}/"))
        assert get_max_age(page) == 300
        assert abs(parse_http_date(page["Expires"]) - time.time() - 300) < 20

    def rendered_after(seconds: float) -> int:
        wall_clock(seconds)
        for number in range(20):
            view(get(f"/{number}/"))
        return site.rendered

    assert rendered_after(0) == rendered_after(255) == 20
    assert 20 < rendered_after(285) < 40
    assert rendered_after(301) >= 40


def test_fresh_answer_to_head_counts_while_that_to_get_is_stale(
    pages: None, wall_clock: Callable[[float], None]
) -> None:
    methods: list[Any] = []

    @cached_page(60, stale=600)
    def view(request: HttpRequest) -> HttpResponse:
        methods.append(request.method)
        return HttpResponse("page")

    view(get())
    wall_clock(61)
    for _ in range(3):
        view(get(method="HEAD"))
    assert methods == ["GET", "HEAD"]

"""Pages whose answer nobody renders, and HEAD when a page is stale."""

from __future__ import annotations

import gc
from typing import Any

import pytest
from django.core.cache import caches
from django.http import HttpRequest, HttpResponse
from django.template import engines
from django.template.response import TemplateResponse
from django.test import RequestFactory

from django_redis_locks.cache import cached_page
from django_redis_locks.core import clock


def test_a_template_that_nobody_renders_frees_the_turn(pages: None) -> None:
    """A decorator outside answers something else."""
    views: list[int] = []

    @cached_page(60, wait=30)
    def view(request: HttpRequest) -> Any:
        views.append(1)
        return TemplateResponse(request, engines["django"].from_string("page"))

    view(RequestFactory().get("/x"))
    gc.collect()
    begin = clock.now()
    assert view(RequestFactory().get("/x")).render().content == b"page"
    assert clock.now() - begin < 8


def test_a_fresh_answer_to_head_counts_while_that_to_get_is_stale(pages: None, monkeypatch: pytest.MonkeyPatch) -> None:
    methods: list[Any] = []

    @cached_page(60, stale=600)
    def view(request: HttpRequest) -> HttpResponse:
        methods.append(request.method)
        return HttpResponse("page")

    view(RequestFactory().get("/x"))
    wall = clock.wall
    monkeypatch.setattr(clock, "wall", lambda: wall() + 61)
    for _ in range(3):
        view(RequestFactory().head("/x"))
    assert methods == ["GET", "HEAD"]
    caches["default"].clear()

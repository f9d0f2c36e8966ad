"""Latches, on the command line and in the admin: found by their key, never listed or released."""

from __future__ import annotations

import re

import pytest

from django_redis_locks import Latch, locks
from tests.django.admin_site import RELEASE, VIEW, client_with_permissions, lock_url, urlpatterns, visible_text
from tests.django.test_console import call

__all__ = ["urlpatterns"]

pytestmark = pytest.mark.django_db


@pytest.fixture
def latch(redis_locks: str) -> Latch:
    latch = locks.latch("import")
    latch.try_set(3)
    latch.count_down()
    return latch


def test_show_prints_what_is_left_of_a_latch(latch: Latch) -> None:
    lines = [" ".join(line.split()) for line in call("show", "import").out.splitlines()]
    assert {"kind latch", "state closed", "left to count down 2"} <= set(lines)
    document = call("show", "import", "--json").document
    assert (document["kind"], document["state"], document["left"]) == ("latch", "closed", 2)
    assert call("list").out.splitlines()[0] == "0 locks"


def test_release_of_a_latch_is_refused(latch: Latch) -> None:
    ended = call("release", "import", "--yes")
    assert (ended.code, "That is a latch" in ended.out) == (1, True)
    assert latch.count() == 2


def test_page_of_a_latch_shows_what_is_left(latch: Latch) -> None:
    """It has no release button."""
    page = client_with_permissions(VIEW, RELEASE).get(lock_url("import"))
    assert page.status_code == 200
    assert "force_release_url" not in page.context
    assert 'data-state="closed"' in visible_text(page)
    assert re.search(r'field-left.*?<div class="readonly">2</div>', visible_text(page), re.DOTALL)

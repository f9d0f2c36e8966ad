"""`{% cached %}`: Django's `{% cache %}`, rendered once for concurrent requests."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import redis
from django.core.cache import caches
from django.core.cache.utils import make_template_fragment_key
from django.template import Context, Engine, TemplateSyntaxError
from django.utils.safestring import SafeString

from tests.django.helpers import PATIENCE

ENGINE = Engine(
    libraries={"redis_locks": "django_redis_locks.templatetags.redis_locks"}, builtins=["django.templatetags.cache"]
)


pytestmark = pytest.mark.usefixtures("redis_cache")


class Part:
    """A template variable that counts its renderings and waits for the test."""

    def __init__(self) -> None:
        self.rendered = 0
        self.begun = threading.Event()
        self.go_on = threading.Event()
        self.go_on.set()
        self.text: Any = "<b>text</b>"

    def __call__(self) -> Any:
        self.rendered += 1
        self.begun.set()
        assert self.go_on.wait(PATIENCE)
        if isinstance(self.text, Exception):
            raise self.text
        return SafeString(f"{self.text}{self.rendered}")


def render(arguments: str, part: Part | None = None, **context: Any) -> str:
    text = "{% load redis_locks %}{% cached " + arguments + " %}{{ part }}{% endcached %}"
    return ENGINE.from_string(text).render(Context({"part": part or Part(), **context}))


def key(*vary_on: Any) -> str:
    return make_template_fragment_key("sidebar", list(vary_on))


def test_key_of_a_fragment_is_that_of_djangos_tag() -> None:
    """So that existing invalidations work, and both tags read each other's fragments."""
    part = Part()
    render('300 "sidebar" user.pk lang', part, user={"pk": 5}, lang="en")
    assert caches["default"].get(key(5, "en")) == "<b>text</b>1"
    django = "{% cache 300 sidebar user.pk lang %}{{ part }}{% endcache %}"
    context = Context({"part": part, "user": {"pk": 5}, "lang": "en"})
    assert ENGINE.from_string(django).render(context) == "<b>text</b>1"
    caches["default"].delete(key(5, "en"))
    assert render("300 sidebar user.pk lang", part, user={"pk": 5}, lang="en") == "<b>text</b>2"
    assert render("300 sidebar user.pk lang", part, user={"pk": 6}, lang="en") == "<b>text</b>3"


def test_concurrent_requests_render_a_fragment_once() -> None:
    part = Part()
    part.go_on.clear()
    with ThreadPoolExecutor(8) as pool:
        found = [pool.submit(render, "300 sidebar", part) for _ in range(8)]
        assert part.begun.wait(PATIENCE)
        part.go_on.set()
        assert [each.result(PATIENCE) for each in found] == ["<b>text</b>1"] * 8
    assert part.rendered == 1


def test_cached_fragment_is_not_escaped_again() -> None:
    part = Part()
    text = "{% load redis_locks %}{% cached 300 sidebar %}{{ part }}{{ i }}{% endcached %}{{ i }}"
    for _ in range(2):
        assert ENGINE.from_string(text).render(Context({"part": part, "i": "<i>"})) == "<b>text</b>1&lt;i&gt;&lt;i&gt;"


def test_stale_fragment_is_served_when_rendering_fails() -> None:
    """[S14]"""
    part = Part()
    render("300 sidebar stale=60", part)
    caches["default"].touch(key(), 30)  # less than `stale` is left: it is stale
    part.text = ZeroDivisionError()
    assert render("300 sidebar stale=60", part) == "<b>text</b>1"
    assert part.rendered == 2
    with pytest.raises(ZeroDivisionError):
        render("300 sidebar other stale=60", part)


def test_fragment_is_not_stored_with_timeout_zero_and_never_expires_with_none(redis_client: redis.Redis) -> None:
    """[S47] As in Django's tag. An undefined variable is None."""
    for timeout in ("0", "-1"):
        part = Part()
        assert [render(f"{timeout} sidebar", part) for _ in range(2)] == ["<b>text</b>1", "<b>text</b>2"], timeout
        assert caches["default"].get(key()) is None, timeout
    render("None sidebar")
    assert redis_client.pttl(caches["default"].make_key(key())) == -1


def test_option_may_be_a_variable() -> None:
    part = Part()
    options = 'stale=grace early="xfetch" wait=2 wait_stale=0 on_timeout="raise" max_hold=10 jitter=0 using="default"'
    for arguments in (f"ttl sidebar {options}", f"ttl sidebar {options}", "300 sidebar early=0.8"):
        assert render(arguments, part, ttl="300", grace=60) == "<b>text</b>1"


def test_fragments_are_in_the_cache_of_the_argument_or_in_template_fragments(settings: Any) -> None:
    render('300 sidebar cache="other"')
    assert caches["other"].get(key()) == "<b>text</b>1"
    assert caches["default"].get(key()) is None
    settings.CACHES = {**settings.CACHES, "template_fragments": {**settings.CACHES["default"], "KEY_PREFIX": "parts"}}
    render("300 sidebar")
    assert caches["template_fragments"].get(key()) == "<b>text</b>1"
    assert caches["default"].get(key()) is None
    render("300 sidebar cache=alias", alias="default")
    assert caches["default"].get(key()) == "<b>text</b>1"


WRONG = [
    ("300 stale=60", "'cached' tag requires at least 2 arguments"),
    ("300 sidebar colour=5", "'cached' tag has no option 'colour'; there are cache, using, "),
    ("300 sidebar refresh='thread'", "'cached' tag has no option 'refresh'"),
    ("300 sidebar stale=60 user", "Could not parse the remainder: '=60'"),
    ("missing|upper sidebar", '"cached" tag got an unknown variable|non-integer'),
    ("missing other", "non-integer ttl"),
    ("soon sidebar", '"cached" tag got a non-integer ttl'),
    ("300 sidebar cache='nowhere'", "Invalid cache name specified for cached tag: 'nowhere'"),
    ("300 sidebar using='other'", "using='other' isn't in REDIS_LOCKS; to name the cache write cache='other'"),
    ("300 sidebar stale='soon'", '"cached" tag: .*stale'),
    ("300 sidebar on_timeout='wait'", '"cached" tag: on_timeout is '),
]


def test_wrong_arguments_raise_as_in_djangos_tag() -> None:
    for arguments, message in WRONG:
        with pytest.raises(TemplateSyntaxError, match=message):
            render(arguments, soon="soon")

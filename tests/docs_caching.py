"""What the blocks of howto/caching.md take for granted, and what must hold after them; `tests/test_docs.py` runs them, each
with an empty cache."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from django.core.cache import cache, caches
from django.db import transaction
from django.test import RequestFactory, override_settings
from django.utils.module_loading import import_string

from django_redis_locks.cache import StampedeCache, get_or_load, metrics, wrapping
from django_redis_locks.cache.options import LoadOptions

PAGE = "howto/caching"

Names = dict[str, Any]

GIVEN: dict[str, Callable[[], Names]] = {}
AFTER: dict[str, Callable[[Names], object]] = {}

DATABASE = (f"{PAGE}:invalidate",)


def after(story: str) -> Callable[[Callable[[Names], object]], Callable[[Names], object]]:
    return lambda function: AFTER.setdefault(f"{PAGE}:{story}", function)


def empty() -> Names:
    cache.clear()
    return {}


for _story in ("usual", "stale", "invalidate", "many", "async", "context", "pages", "counters"):
    GIVEN[f"{PAGE}:{_story}"] = empty


GIVEN["README:cache"] = lambda: {**empty(), "make_report": lambda: {"coffee": 40}}


@after("usual")
def _(names: Names) -> None:
    assert names["report"] == cache.get("sales") == {"coffee": 40}


@after("stale")
def _(names: Names) -> None:
    assert names["result"].source == "hit"
    assert 30 <= names["result"].fresh_for <= 60


@after("invalidate")
def _(names: Names) -> None:
    assert get_or_load("sales", lambda: "old") == "old"
    order = SimpleNamespace(save=lambda: None)
    with transaction.atomic():
        names["place_order"](order)
        assert cache.get("sales") == "old"
    assert cache.get("sales") is None


@after("async")
def _(names: Names) -> None:
    assert names["report"] == {"coffee": 40}
    assert cache.get("sales") is None


class User:
    pk = 3

    def __str__(self) -> str:
        return "Ada"


GIVEN[f"{PAGE}:cached"] = lambda: {**empty(), "user": User()}


@after("cached")
def _(names: Names) -> None:
    profile, user = names["profile"], names["user"]
    assert profile(user) == profile.uncached(user) == "Ada in en"
    assert profile.key(user, "zh") in cache
    assert profile.get_many([user, (user, "zh")]) == ["Ada in en", "Ada in zh"]
    profile.invalidate(user, "zh")
    assert profile.key(user, "zh") not in cache


@after("backend")
def _(names: Names) -> None:
    guard = names["CACHES"]["default"]
    with override_settings(CACHES=names["CACHES"]):
        assert [*wrapping.problems("default", guard, names["CACHES"])] == []
        assert type(caches["default"]) is StampedeCache


@after("site")
def _(names: Names) -> None:
    pair = [name for name in names["MIDDLEWARE"] if "redis_locks" in name]
    assert [import_string(name).__name__ for name in pair] == ["StampedeUpdateMiddleware", "StampedeFetchMiddleware"]


@after("pages")
def _(names: Names) -> None:
    assert names["sales"](RequestFactory().get("/sales/")).text == "40 sold"


@after("context")
def _(names: Names) -> None:
    assert names["euro"] == 1.08


def options_of_the_table() -> dict[str, str]:
    """The options, and their defaults, as the page has them."""
    text = (Path(__file__).parent.parent / "docs" / f"{PAGE}.md").read_text()
    table = text.partition("\n| option | default | meaning |\n")[2].partition("\n\n")[0]
    return dict(re.findall(r"^\| `(\w+)` \| (.+?) \|", table, re.MULTILINE))


def test_options_of_a_load_are_all_in_the_table() -> None:
    shown = options_of_the_table()
    defaults = LoadOptions()
    assert list(shown) == list(defaults.__dataclass_fields__)
    eyes = {"ttl": "the cache's `TIMEOUT`", "max_hold": "`None`", "expire": "`30`"}
    for name, cell in shown.items():
        value = getattr(defaults, name)
        usual = f'"{value}"' if isinstance(value, str) else f"{value:g}" if type(value) is float else str(value)
        assert cell == eyes.get(name, f"`{usual}`"), name


def test_counters_are_all_in_the_table() -> None:
    text = (Path(__file__).parent.parent / "docs" / f"{PAGE}.md").read_text()
    table = text.partition("\n| counter | counts |\n")[2].partition("\n\n")[0]
    names = [name for cell in re.findall(r"^\| (.+?) \|", table, re.MULTILINE) for name in re.findall(r"`(\w+)`", cell)]
    known = [value for name, value in vars(metrics).items() if name.isupper() and isinstance(value, str)]
    assert sorted(names) == sorted(known)

"""The names that the examples of howto/caching.md need, and the checks after them; each begins with an empty cache."""

from __future__ import annotations

from types import SimpleNamespace

from django.core.cache import cache, caches
from django.db import transaction
from django.test import RequestFactory, override_settings
from django.utils.module_loading import import_string

from django_redis_locks.cache import StampedeCache, get_or_load
from tests.docs.examples import Names, after, after_each, given, problems_of

EMPTY = ("usual", "invalidate", "many", "async", "context", "by-value", "limits", "pages", "counters")


@given(*(f"howto/caching:{name}" for name in EMPTY))
def empty() -> Names:
    cache.clear()
    return {}


@given("README:cache")
def _() -> Names:
    return {**empty(), "make_report": lambda: {"coffee": 40}}


@after("howto/caching:usual")
def _(names: Names) -> None:
    assert names["report"] == names["result"].value == {"coffee": 40}
    assert names["result"].source == "hit"
    assert 30 <= names["result"].fresh_for <= 60


@after("howto/caching:invalidate")
def _(names: Names) -> None:
    assert get_or_load("sales", lambda: "old") == "old"
    order = SimpleNamespace(save=lambda: None)
    with transaction.atomic():
        names["place_order"](order)
        assert cache.get("sales") == "old"
    assert cache.get("sales") is None


@after("howto/caching:async")
def _(names: Names) -> None:
    assert names["report"] == {"coffee": 40}
    assert cache.get("sales") is None


class User:
    pk = 3
    name = "Ada"

    def __str__(self) -> str:
        return self.name

    def save(self) -> None:
        self.name = "Eve"


@given("howto/caching:cached")
def _() -> Names:
    return {**empty(), "user": User()}


@after("howto/caching:cached")
def _(names: Names) -> None:
    profile, user = names["profile"], names["user"]
    assert profile(user) == profile.uncached(user) == "Ada in en"
    assert profile.key(user, "zh") in cache
    assert profile.get_many([user, (user, "zh")]) == ["Ada in en", "Ada in zh"]
    profile.invalidate(user, "zh")
    assert profile.key(user, "zh") not in cache


@given("howto/caching:groups")
def _() -> Names:
    return empty()


@after("howto/caching:groups")
def _(names: Names) -> None:
    user = User()
    values = lambda: (names["mails"](user), names["greeting"](user))  # noqa: E731
    assert values() == (["inbox of Ada"], "Hello Ada!")
    user.name = "Bob"
    assert values() == (["inbox of Ada"], "Hello Ada!")
    names["rename"](user)
    assert values() == (["inbox of Eve"], "Hello Eve!")


@after("howto/caching:backend")
def _(names: Names) -> None:
    assert problems_of(CACHES=names["CACHES"]) == []
    with override_settings(CACHES=names["CACHES"]):
        assert type(caches["default"]) is StampedeCache


@after("howto/caching:site")
def _(names: Names) -> None:
    pair = [name for name in names["MIDDLEWARE"] if "redis_locks" in name]
    assert [import_string(name).__name__ for name in pair] == ["StampedeUpdateMiddleware", "StampedeFetchMiddleware"]


after_each(
    {
        "howto/caching:pages": lambda names: names["sales"](RequestFactory().get("/sales/")).text == "40 sold",
        "howto/caching:context": lambda names: names["euro"] == 1.08,
        "howto/caching:by-value": lambda names: names["quote"]("eur")["final"] and names["quote"].key("eur") in cache,
    }
)

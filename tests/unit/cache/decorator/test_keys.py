"""The keys of `@cached`: no two calls share one by accident."""

from __future__ import annotations

import enum
import re
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from itertools import combinations
from typing import Any
from uuid import UUID

import pytest
from django.contrib.auth.models import AnonymousUser, User
from django.db import models
from django.utils.functional import SimpleLazyObject
from django.utils.translation import gettext_lazy, override

from django_redis_locks import LockKeyError
from django_redis_locks.cache.decorator.keys import key_maker


def takes(a: Any = 0, b: Any = 0, *rest: Any, **more: Any) -> None: ...


def key(template: str | None, *args: Any, **kwargs: Any) -> str:
    return key_maker(template, takes, "shop.takes")(args, kwargs)


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Size(models.TextChoices):
    SMALL = "s"


class Level(enum.IntEnum):
    LOW = 1


DIFFERENT: list[Any] = [
    *(1, "1", 1.0, "1.0", True, "True", "~True", "'1", "''1", None, "None", "~None", "", "'", "-1", -1, Decimal(1)),
    *(b"1", "bytes.31", "~bytes.31", UUID(int=1), str(UUID(int=1)), timedelta(1), Colour.RED, Colour.BLUE, int, Colour),
    *(date(2031, 1, 1), datetime(2031, 1, 1), datetime(2031, 1, 1, tzinfo=UTC), "2031-01-01"),  # noqa: DTZ001 - naive
    *([], (), {}, set(), [1], ["1"], (1,), {1}, [1, 2], ["1,2"], ["1", "2"], [[1], 2], [[1, 2]], ["[1", "2]"]),
    *({"a": 1}, {"a": "1"}, {"a": {"b": 1}}, {"a": 1, "b": 1}, ["a=1"], ["%2C"], [","]),
    *("a:b", "a%3Ab", "A:b", "a b", "a%20b", "é", "e", User(pk=1), User(pk=2), "~auth.user.1", "auth.user.1"),
]


def test_key_differs_for_values_that_differ() -> None:
    for template in ("it:{a}", None):
        for one, other in combinations(DIFFERENT, 2):
            assert key(template, one) != key(template, other), (template, one, other)


def test_key_of_two_arguments_differs_with_any_separator() -> None:
    """[S 5.3] A separator can't stand in a value."""
    between = [":", "-", "_", ".", " and ", " ", "%", "%3A"]
    texts = ["", "x", "1", *between, *(f"x{each}x" for each in between), *(f"x{each}" for each in between)]
    values: list[Any] = [*texts, 1, -1, 1.5]
    for template in ("it:{a}:{b}", "it-{a}-{b}", "it_{a}_{b}", "{a}.{b}", "{a} and {b}", None):
        keys = [key(template, one, other) for one in values for other in values]
        assert len(set(keys)) == len(values) ** 2, template


def test_key_is_readable_unless_the_template_hashes_it() -> None:
    """[S49] The language is a part of the key with `vary_on_language`."""
    assert key("user:{a}:{b}", 42, "en-gb") == "user:42:en-gb"
    assert key("user:{a.pk}", User(pk=-42)) == "user:-42"
    assert key(None, 42, "en-gb").startswith("shop.takes:42:en-gb:")
    assert re.fullmatch("it:[0-9a-f]{32}", key("it:{a:hash}", "secret"))
    assert key("it:{a:hash}", "1") != key("it:{a:hash}", 1)
    assert key("it:{a:lower}", "ÄB") == key("it:{a:lower}", "äb") != key("it:{a}", "ÄB")
    make = key_maker("it:{a}", takes, "shop.takes", vary_on_language=True)
    found = {key("it:{a}", 1)}
    for language in ("de", "en", None):
        with override(language):
            found.add(make((1,), {}))
    assert len(found) == 4


def test_key_is_the_same_for_two_spellings_of_a_value() -> None:
    for one, other in (
        (Size.SMALL, "s"),
        (Level.LOW, 1),
        (SimpleLazyObject(lambda: User(pk=7)), User(pk=7)),
        (SimpleLazyObject(lambda: "text"), "text"),
        (SimpleLazyObject(lambda: 5), 5),
        (gettext_lazy("Monday"), "Monday"),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ({1, 2}, frozenset({2, 1})),
        (datetime(2031, 1, 1, 12, tzinfo=UTC), datetime(2031, 1, 1, 13, tzinfo=timezone(timedelta(hours=1)))),
    ):
        assert key("it:{a}", one) == key("it:{a}", other), (one, other)


def test_key_is_the_same_for_defaults_names_and_positions() -> None:
    for template in ("it:{a}:{b}", None):
        assert key(template, 0) == key(template) == key(template, a=0) == key(template, b=0, a=0) == key(template, 0, 0)
    assert key(None, 0, 0, x=1, y=2) == key(None, 0, 0, y=2, x=1) != key(None, 0, 0, x=2, y=1)
    assert key(None, 0, 0, 1, 2) != key(None, 0, 0, (1, 2))


def test_key_is_taken_by_every_cache() -> None:
    """memcached takes no white space, no control characters, and at most 250 bytes with prefix and version."""
    for text in ("x" * 500, "é" * 300, "tab\tnewline\n", "\x00\x7f", "日本 語", "{}", "\u2028"):
        for template in ("it:{a}", "a literal with blanks\n: {a}", None):
            made = key(template, text)
            assert len(made.encode()) <= 200, (template, text)
            assert not re.search(r"[\x00-\x20\x7f]", made), (template, text)
            assert made != key(template, text + "x"), (template, text)


def test_anonymous_user_or_unsaved_row_is_refused() -> None:
    """A common key for all anonymous users, or for all unsaved rows, would give one's value to another."""
    for template in ("it:{a}", "it:{a.pk}", None):
        for value in (AnonymousUser(), SimpleLazyObject(AnonymousUser), User()):
            with pytest.raises(LockKeyError, match=r"anonymous user|isn't saved"):
                key(template, value)
    assert key("it:{a.pk!n}", AnonymousUser()) == "it:~None"
    assert key("it:{a.is_staff}", AnonymousUser()) == "it:~False"
    assert key("it:{a[x]}", {"x": None}) == "it:~None"


def test_value_without_a_text_is_refused() -> None:
    for value in (object(), takes, [object()]):
        with pytest.raises(LockKeyError, match="has no __str__"):
            key("it:{a}", value)
        with pytest.raises(LockKeyError, match=r"the argument a of shop\.takes"):
            key(None, value)


def only(pk: int) -> None: ...


def test_template_that_is_wrong_is_refused_at_decoration() -> None:
    for template, message in (
        ("it:{a}{b}", "nothing between"),
        ("it:{a}and{b}", "not only by 'and'"),
        ("it:{a}%{b}", "not only by '%'"),
        ("", "empty"),
        ("it:{", "a key template"),
        ("it:{0}", "names an argument"),
        ("it:{a!r}", "not !r"),
        ("it:{a:upper}", "not :upper"),
        ("it:{user.pk}", "takes no argument 'user'; it takes pk"),
    ):
        with pytest.raises(TypeError, match=message):
            key_maker(template, only if "user" in template else takes, "shop.takes")

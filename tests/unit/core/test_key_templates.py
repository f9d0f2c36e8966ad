"""[D 2.3] Key templates: syntax, binding of arguments, texts of values; different calls have different keys."""

from __future__ import annotations

import functools
import random
import re
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from ipaddress import ip_address
from pathlib import PurePosixPath
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from django_redis_locks.core.errors import LockKeyError
from django_redis_locks.core.key_templates import compile_template, parse
from django_redis_locks.core.keys import KeyLayout


def fill(template: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> str:
    return compile_template(template, function)(args, kwargs)


def value_in_key(value: Any) -> str:
    return fill("{x}", lambda x: None, value)


class Colour(Enum):
    RED = "red:dark"
    NOTHING = None


class Level(IntEnum):
    HIGH = 3


class Word(StrEnum):
    HELLO = "hello"


@dataclass
class Point:
    x: int


class Named:
    def __str__(self) -> str:
        return "named"


class Repr:
    def __repr__(self) -> str:
        return f"<Repr at {id(self):x}>"


class Blank:
    def __str__(self) -> str:
        return ""


FIELDS = {
    "order": "order",
    "order:{pk}": "order:5",
    "{pk}": "5",
    "{pk}{kind}": "5retail",
    "a:{pk}:b:{kind}:c": "a:5:b:retail:c",
    "{{{pk}}}": "{5}",
    "{{pk}}": "{pk}",
    "{{": "{",
    "50%:{pk}": "50%:5",
    "{box.width}": "3",
    "{box.inner.depth}": "7",
    "{box.tags[0]}": "old",
    "{box.prices[eur]}": "9",
    "{box.prices[two words]}": "8",
    "{kind:lower}:{pk}": "retail:5",
}
MALFORMED = {
    "every {} of a key template names an argument": ["{}", "{0}", "{0.pk}", "{ pk}", "{.pk}", "{[0]}"],
    "isn't a key template": ["{pk", "pk}", "{pk[0}", "{pk.}", "{pk..x}", "{pk[]}", "{pk[a]b}"],
    "allows {pk:hash} and {pk:lower}, not :d": ["{pk:d}"],
    "allows {pk:hash} and {pk:lower}, not :>5": ["{pk:>5}"],
    "allows {pk:hash} and {pk:lower}, not :{pk}": ["{pk:{pk}}"],
    "allows {pk:hash} and {pk:lower}": ["{pk:HASH}"],
    "allows {pk!n}, not !r": ["{pk!r}"],
    "allows {pk!n}, not !s": ["{pk!s}"],
    "the key of a lock is empty": [""],
}
TEXTS: list[tuple[object, str]] = [
    *(("retail", "retail"), (5, "5"), (0, "0"), (-5, "-5"), (True, "True"), (False, "False"), (1.5, "1.5")),
    *((1e300, "1e+300"), (0.1 + 0.2, "0.30000000000000004"), (Decimal("1.10"), "1.10"), (Colour.RED, "red%3Adark")),
    *((UUID(int=5), "00000000-0000-0000-0000-000000000005"), (Level.HIGH, "3"), (Word.HELLO, "hello")),
    *((date(2026, 5, 1), "2026-05-01"), (time(12, 30), "12%3A30%3A00"), (timedelta(days=1), "1%20day,%200%3A00%3A00")),
    (datetime(2026, 5, 1, 12, tzinfo=UTC), "2026-05-01T12%3A00%3A00+00%3A00"),
    (datetime(2026, 5, 1, 12), "2026-05-01T12%3A00%3A00"),  # noqa: DTZ001 - naive on purpose
    *((ip_address("::1"), "%3A%3A1"), (PurePosixPath("/a b"), "/a%20b"), (Named(), "named"), ("ÄÖ€😀", "ÄÖ€😀")),
]
CONTAINERS = [
    *(b"x", bytearray(b"x"), memoryview(b"x"), {}, {"a": 1}, OrderedDict(), set(), {1}, frozenset(), [], [1], (), (1,))
]
WITHOUT_TEXT = [
    *(object(), Repr(), Point(1), len, lambda: None, Named, SimpleNamespace(), iter([]), {}.keys(), range(3), 5j)
]
NOTHING: list[tuple[object, str]] = [
    (None, "it is None"),
    ("", "it is an empty text"),
    (SimpleNamespace(is_anonymous=True), "it is an anonymous user"),
    (Blank(), "it is "),
    (Colour.NOTHING, "it is "),
]


# Syntax


def test_template_has_the_syntax_of_str_format() -> None:
    """Fields, attributes, items; `{{` is an escaped brace."""
    box = SimpleNamespace(width=3, inner=SimpleNamespace(depth=7), tags=["old"], prices={"eur": 9, "two words": 8})

    def order(pk: int, kind: str, box: object) -> None: ...

    assert {template: fill(template, order, 5, "retail", box) for template in FIELDS} == FIELDS


def test_malformed_template_raises_TypeError_when_it_is_read() -> None:
    for message, templates in MALFORMED.items():
        for template in templates:
            with pytest.raises(TypeError, match=re.escape(message)):
                parse(template)
            with pytest.raises(TypeError, match=re.escape(message)):
                compile_template(template, lambda pk: None)


def test_template_that_names_no_argument_raises_TypeError_listing_them() -> None:
    def work(pk: int, *, kind: str = "retail") -> None: ...

    for root in ("order", "pks", "self", "request"):
        with pytest.raises(TypeError, match=rf"work takes no argument '{root}'; it takes pk, kind"):
            compile_template(f"order:{{{root}.pk}}", work)
    with pytest.raises(TypeError, match="it takes none"):
        compile_template("{x}", lambda: None)


# Binding


def test_key_is_one_for_every_spelling_of_a_call_and_differs_for_other_arguments() -> None:
    """[D47] f(1), f(x=1) and f(1, y=<its default>) have the same key."""

    def work(x: int, y: int = 2) -> None: ...

    make = compile_template("{x}:{y}", work)
    calls: list[tuple[tuple[int, ...], dict[str, int]]] = [
        ((1,), {}),
        ((), {"x": 1}),
        ((1, 2), {}),
        ((1,), {"y": 2}),
        ((), {"y": 2, "x": 1}),
    ]
    assert {make(args, kwargs) for args, kwargs in calls} == {"1:2"}
    assert len({make((x,), {"y": y}) for x in range(3) for y in range(3)}) == 9


def test_arguments_of_every_kind_have_names() -> None:
    """Keyword-only, positional-only and starred ones, and names in `**kwargs`, as for Django's URL arguments."""

    def work(a: int, /, b: int, *rest: int, c: int, **more: int) -> None: ...

    assert fill("{a}:{b}:{rest[0]}:{c}:{d}", work, 1, 2, 3, c=4, d=5) == "1:2:3:4:5"

    def view(request: object, **kwargs: int) -> None: ...

    assert fill("{pk}", view, None, pk=5) == "5"
    assert fill("{kwargs[pk]}", view, None, pk=5) == "5"
    with pytest.raises(LockKeyError, match=r"the key's \{pk\} can't be found"):
        fill("{pk}", view, None)


def test_double_starred_name_never_replaces_an_argument_or_self() -> None:
    """[D48] A keyword of the call can't replace a bound name."""

    def work(pk: int, /, **more: int) -> None: ...

    assert fill("{pk}:{more[pk]}", work, 1, pk=2) == "1:2"
    make = compile_template("{self.pk}:{x}", lambda **more: None, {"self": SimpleNamespace(pk=3)})
    assert make((), {"self": SimpleNamespace(pk=4), "x": 1}) == "3:1"


@pytest.mark.parametrize("template", ["{a}:{b}:{c}", "{a}:{b!n}:{c:lower}"])
def test_arguments_of_a_partial_are_named_like_those_of_the_call(template: str) -> None:
    """Keywords of the call replace those of the partial."""

    def work(a: int, b: int, c: int = 0) -> None: ...

    assert fill(template, functools.partial(work, 1), 2, c=3) == "1:2:3"
    assert fill(template, functools.partial(functools.partial(work, 1), 2, c=3)) == "1:2:3"
    assert fill(template, functools.partial(functools.partial(work, 1, c=9), c=8), 2, c=3) == "1:2:3"
    inner: Any = functools.partial(work, 1, c=9)
    inner.mark = "kept"  # so that Python doesn't make one of the two
    assert fill(template, functools.partial(inner, 2, c=3)) == "1:2:3"
    with pytest.raises(TypeError, match="work takes no argument 'd'; it takes a, b, c"):
        compile_template("{d}", functools.partial(work, 1))


def test_arguments_are_those_of_the_function_called_and_not_of_the_one_it_wraps() -> None:
    """[D45] Also of a partial of a bound method that wraps one with names, as method_decorator stacks them."""

    def inner(self: object, x: int) -> None: ...

    assert fill("{x}", functools.wraps(inner)(functools.partial(inner, object())), 5) == "5"

    class Box:
        def get(self, x: int) -> None: ...

        @functools.wraps(get)
        def wrapper(self, *args: Any) -> None: ...

    assert fill("{x}", functools.wraps(Box.wrapper)(functools.partial(Box().wrapper)), 5) == "5"


def test_call_with_wrong_arguments_raises_the_functions_TypeError() -> None:
    def work(x: int) -> None: ...

    with pytest.raises(TypeError, match="missing a required argument: 'x'"):
        fill("{x}", work)
    with pytest.raises(TypeError, match="unexpected keyword argument 'y'"):
        fill("{x}", work, 1, y=2)


# Values


def test_value_has_the_same_text_in_every_process() -> None:
    """A point in time has one key in all time zones."""
    for value, expected in TEXTS:
        assert value_in_key(value) == expected
    paris = datetime(2026, 5, 1, 14, tzinfo=timezone(timedelta(hours=2)))
    assert value_in_key(paris) == value_in_key(paris.astimezone(UTC))


def test_value_without_a_stable_text_raises_LockKeyError() -> None:
    """Containers and bytes have no unique text; the text of a plain object differs in each process."""
    for value in CONTAINERS:
        with pytest.raises(LockKeyError, match=rf"a {type(value).__name__} can't be a part of a lock's key"):
            value_in_key(value)
    for value in WITHOUT_TEXT:
        with pytest.raises(LockKeyError, match=f"{type(value).__name__} has no __str__ method"):
            value_in_key(value)


def test_empty_value_raises_LockKeyError_unless_marked() -> None:
    """[D22] All calls without a value would share one key; the message says how to allow that."""
    for value, what in NOTHING:
        with pytest.raises(LockKeyError, match=rf"\{{x\}} is empty: {what}.*Write \{{x!n\}} if"):
            value_in_key(value)
        assert fill("a:{x!n}:b", lambda x: None, value) == "a::b"
    for spec in ("hash", "lower"):
        with pytest.raises(LockKeyError, match="is empty"):
            fill(f"{{x:{spec}}}", lambda x: None, None)
        assert fill(f"{{x!n:{spec}}}", lambda x: None, None) == ""
    assert fill("{x!n}", lambda x: None, "a:b") == fill("{x}", lambda x: None, "a:b") == "a%3Ab"


def test_missing_attribute_or_item_raises_LockKeyError_also_if_marked() -> None:
    """Only a value that exists can be empty."""
    for template in ("{x.pk}", "{x[pk]}", "{x[0]}", "{x.pk!n}", "{x[pk]!n}", "{x.pk:hash}"):
        for value in (None, 5, "", SimpleNamespace(), {}, []):
            with pytest.raises(LockKeyError, match="can't be found"):
                fill(template, lambda x: None, value)


def test_error_names_the_field_and_not_its_value() -> None:
    """A value may be personal data. The exception of the lookup is the cause."""
    for value in ({"jane": 1}, ["jane"], SimpleNamespace(jane=1)):
        with pytest.raises(LockKeyError) as raised:
            value_in_key(value)
        assert "jane" not in str(raised.value)
    with pytest.raises(LockKeyError) as raised:
        fill("{x.pk}", lambda x: None, 5)
    assert isinstance(raised.value.__cause__, AttributeError)


# Specs


def test_specs_hash_a_value_or_convert_it_to_lower_case() -> None:
    assert fill("{x:lower}:{x!n:lower}", lambda x: None, "Jane@Example") == "jane@example:jane@example"
    assert fill("{x:hash}", lambda x: None, "jane@example.org") == "96f616bb0cb2a3a0bdb20aab89fbd357"
    hashed = {fill("{x:hash}", lambda x: None, value) for value in ("a", "b", "A", 1, 2.5)}
    assert len(hashed) == 5
    assert all(re.fullmatch("[0-9a-f]{32}", text) for text in hashed)


# Collisions

LETTERS = ":{}% \t\n\x00\x7f\u00a0\u3000%3A%25ab:"
CONFUSED = [("a:b", "c"), ("a", "b:c"), ("a%3Ab", "c"), ("a", "b%3Ac"), ("{a}", "b"), ("%7Ba%7D", "b"), ("a ", "b")]


def test_different_values_have_different_keys() -> None:
    """[D48] With separators, braces, percent signs and white space, and pairs that naive templates confuse."""
    make = compile_template("lock:{a}:{b}", lambda a, b: None)
    for letter in ":{}% \t\r\n\x00\x1f\x7f":
        assert value_in_key(f"a{letter}b") == f"a%{ord(letter):02X}b"
    key_layout = KeyLayout("lock")
    dice = random.Random(8)
    pairs = {*CONFUSED}
    while len(pairs) < 2400:
        a, b = ("".join(dice.choices(LETTERS, k=dice.randint(1, 5))) for _ in "ab")
        pairs.add((a, b))
    keys = {make(pair, {}) for pair in pairs}
    assert len(keys) == len(pairs)
    assert len({key_layout.keys_of(key).lock for key in keys}) == len(pairs)

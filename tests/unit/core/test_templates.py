"""Key templates: what can stand in one, and that two calls share a key only when they mean to. [D 2.3]"""

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
from django_redis_locks.core.keys import Spelling
from django_redis_locks.core.templates import compile_template, parse


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


class TestSyntax:
    @pytest.mark.parametrize(
        ("template", "expected"),
        [
            ("order", "order"),
            ("order:{pk}", "order:5"),
            ("{pk}", "5"),
            ("{pk}{kind}", "5retail"),
            ("a:{pk}:b:{kind}:c", "a:5:b:retail:c"),
            ("{{{pk}}}", "{5}"),
            ("{{pk}}", "{pk}"),
            ("{{", "{"),
            ("50%:{pk}", "50%:5"),
            ("{box.width}", "3"),
            ("{box.inner.depth}", "7"),
            ("{box.tags[0]}", "old"),
            ("{box.prices[eur]}", "9"),
            ("{box.prices[two words]}", "8"),
            ("{kind:lower}:{pk}", "retail:5"),
        ],
    )
    def test_fields(self, template: str, expected: str) -> None:
        """The syntax is `str.format`'s: fields, attributes, items; `{{` is a brace."""
        box = SimpleNamespace(width=3, inner=SimpleNamespace(depth=7), tags=["old"], prices={"eur": 9, "two words": 8})

        def order(pk: int, kind: str, box: object) -> None: ...

        assert fill(template, order, 5, "retail", box) == expected

    @pytest.mark.parametrize(
        ("template", "message"),
        [
            ("{}", "every {} of a key template names an argument"),
            ("{0}", "every {} of a key template names an argument"),
            ("{0.pk}", "every {} of a key template names an argument"),
            ("{ pk}", "every {} of a key template names an argument"),
            ("{.pk}", "every {} of a key template names an argument"),
            ("{[0]}", "every {} of a key template names an argument"),
            ("{pk", "is no key template"),
            ("pk}", "is no key template"),
            ("{pk[0}", "is no key template"),
            ("{pk.}", "is no key template"),
            ("{pk..x}", "is no key template"),
            ("{pk[]}", "is no key template"),
            ("{pk[a]b}", "is no key template"),
            ("{pk:d}", "knows {pk:hash} and {pk:lower}, not :d"),
            ("{pk:>5}", "knows {pk:hash} and {pk:lower}, not :>5"),
            ("{pk:{pk}}", "knows {pk:hash} and {pk:lower}, not :{pk}"),
            ("{pk:HASH}", "knows {pk:hash} and {pk:lower}"),
            ("{pk!r}", "knows {pk!n}, not !r"),
            ("{pk!s}", "knows {pk!n}, not !s"),
            ("", "the key of a lock is empty"),
        ],
    )
    def test_no_template(self, template: str, message: str) -> None:
        """What isn't one is a TypeError when it is read, not when it is first used."""
        with pytest.raises(TypeError, match=re.escape(message)):
            parse(template)
        with pytest.raises(TypeError, match=re.escape(message)):
            compile_template(template, lambda pk: None)

    @pytest.mark.parametrize("root", ["order", "pks", "self", "request"])
    def test_no_such_argument(self, root: str) -> None:
        """A template that names no argument is a TypeError that lists those there are."""

        def work(pk: int, *, kind: str = "retail") -> None: ...

        with pytest.raises(TypeError, match=rf"work takes no argument '{root}'; it takes pk, kind"):
            compile_template(f"order:{{{root}.pk}}", work)
        with pytest.raises(TypeError, match="it takes none"):
            compile_template("{x}", lambda: None)

    def test_arguments_by_any_spelling(self) -> None:
        """Keyword-only, positional-only, starred and `**` names are arguments too."""

        def work(a: int, /, b: int, *rest: int, c: int, **more: int) -> None: ...

        assert fill("{a}:{b}:{rest[0]}:{c}:{d}", work, 1, 2, 3, c=4, d=5) == "1:2:3:4:5"


class TestBinding:
    @pytest.mark.parametrize(
        ("args", "kwargs"), [((1,), {}), ((), {"x": 1}), ((1, 2), {}), ((1,), {"y": 2}), ((), {"y": 2, "x": 1})]
    )
    def test_every_spelling_of_a_call_is_one_key(self, args: tuple[int, ...], kwargs: dict[str, int]) -> None:
        """[D47] f(1), f(x=1) and f(1, y=<its default>) have the same key."""

        def work(x: int, y: int = 2) -> None: ...

        assert fill("{x}:{y}", work, *args, **kwargs) == "1:2"

    def test_other_arguments_are_other_keys(self) -> None:
        """[D47] Another value is another key."""

        def work(x: int, y: int = 2) -> None: ...

        make = compile_template("{x}:{y}", work)
        assert len({make((x,), {"y": y}) for x in range(3) for y in range(3)}) == 9

    def test_double_starred_names_are_merged(self) -> None:
        """What comes by `**kwargs`, as Django's URL arguments do, is named like an argument."""

        def view(request: object, **kwargs: int) -> None: ...

        assert fill("{pk}", view, None, pk=5) == "5"
        assert fill("{kwargs[pk]}", view, None, pk=5) == "5"
        with pytest.raises(LockKeyError, match=r"the key's \{pk\} can't be found"):
            fill("{pk}", view, None)

    def test_an_argument_isnt_taken_for_another(self) -> None:
        """[D48] What comes by `**kwargs`, from whoever calls, never takes the place of an argument or of `self`."""

        def work(pk: int, /, **more: int) -> None: ...

        assert fill("{pk}:{more[pk]}", work, 1, pk=2) == "1:2"
        make = compile_template("{self.pk}:{x}", lambda **more: None, {"self": SimpleNamespace(pk=3)})
        assert make((), {"self": SimpleNamespace(pk=4), "x": 1}) == "3:1"

    @pytest.mark.parametrize("template", ["{a}:{b}:{c}", "{a}:{b!n}:{c:lower}"])
    def test_what_a_partial_fills_in(self, template: str) -> None:
        """Its arguments are named like those of the call, which win over its keywords."""

        def work(a: int, b: int, c: int = 0) -> None: ...

        assert fill(template, functools.partial(work, 1), 2, c=3) == "1:2:3"
        assert fill(template, functools.partial(functools.partial(work, 1), 2, c=3)) == "1:2:3"
        assert fill(template, functools.partial(functools.partial(work, 1, c=9), c=8), 2, c=3) == "1:2:3"
        inner: Any = functools.partial(work, 1, c=9)
        inner.mark = "kept"  # so that Python doesn't make one of the two
        assert fill(template, functools.partial(inner, 2, c=3)) == "1:2:3"
        with pytest.raises(TypeError, match="work takes no argument 'd'; it takes a, b, c"):
            compile_template("{d}", functools.partial(work, 1))

    def test_a_partial_of_a_method_behind_a_wrapper(self) -> None:
        """[D45] As method_decorator stacks them: a partial of a bound method that wraps one with names."""

        class Box:
            def get(self, x: int) -> None: ...

            @functools.wraps(get)
            def wrapper(self, *args: Any) -> None: ...

        box = Box()
        outer = functools.wraps(Box.wrapper)(functools.partial(box.wrapper))
        assert fill("{x}", outer, 5) == "5"

    def test_a_wrong_call_is_the_callers_typeerror(self) -> None:
        """A call that the function itself wouldn't take says which argument is wrong."""

        def work(x: int) -> None: ...

        with pytest.raises(TypeError, match="missing a required argument: 'x'"):
            fill("{x}", work)
        with pytest.raises(TypeError, match="unexpected keyword argument 'y'"):
            fill("{x}", work, 1, y=2)

    def test_names_known_beforehand(self) -> None:
        """A bound method doesn't take `self`, but its template may name it."""
        owner = SimpleNamespace(pk=3)

        def work(x: int) -> None: ...

        make = compile_template("{self.pk}:{x}", work, {"self": owner})
        assert make((1,), {}) == "3:1"

    def test_the_wrapped_function_doesnt_count(self) -> None:
        """[D45] The arguments are those of the function that is called, not of the one it wraps."""

        def inner(self: object, x: int) -> None: ...

        outer = functools.wraps(inner)(functools.partial(inner, object()))
        assert fill("{x}", outer, 5) == "5"

    def test_a_key_without_fields_asks_for_nothing(self) -> None:
        """A constant key works for any call, and isn't filled."""
        assert compile_template("order", lambda x: None)((), {}) == "order"


class TestValues:
    @pytest.mark.parametrize(
        ("value", "expected"),
        [
            ("retail", "retail"),
            (5, "5"),
            (0, "0"),
            (-5, "-5"),
            (True, "True"),
            (False, "False"),
            (1.5, "1.5"),
            (1e300, "1e+300"),
            (0.1 + 0.2, "0.30000000000000004"),
            (Decimal("1.10"), "1.10"),
            (UUID(int=5), "00000000-0000-0000-0000-000000000005"),
            (date(2026, 5, 1), "2026-05-01"),
            (datetime(2026, 5, 1, 12, tzinfo=UTC), "2026-05-01T12%3A00%3A00+00%3A00"),
            (datetime(2026, 5, 1, 12), "2026-05-01T12%3A00%3A00"),  # noqa: DTZ001 - naive on purpose
            (time(12, 30), "12%3A30%3A00"),
            (timedelta(days=1), "1%20day,%200%3A00%3A00"),
            (Colour.RED, "red%3Adark"),
            (Level.HIGH, "3"),
            (Word.HELLO, "hello"),
            (ip_address("::1"), "%3A%3A1"),
            (PurePosixPath("/a b"), "/a%20b"),
            (Named(), "named"),
            ("ÄÖ€😀", "ÄÖ€😀"),
        ],
    )
    def test_text(self, value: object, expected: str) -> None:
        """A value has the same text in every process."""
        assert value_in_key(value) == expected

    def test_one_moment_is_one_key(self) -> None:
        """A moment has one key, whatever its time zone."""
        paris = datetime(2026, 5, 1, 14, tzinfo=timezone(timedelta(hours=2)))
        assert value_in_key(paris) == value_in_key(paris.astimezone(UTC))

    @pytest.mark.parametrize(
        "value",
        [
            b"x",
            bytearray(b"x"),
            memoryview(b"x"),
            {},
            {"a": 1},
            OrderedDict(),
            set(),
            {1},
            frozenset(),
            [],
            [1],
            (),
            (1,),
        ],
        ids=lambda value: type(value).__name__,
    )
    def test_containers_are_refused(self, value: object) -> None:
        """A container, or bytes, has no one text: name what is in it."""
        with pytest.raises(LockKeyError, match=rf"a {type(value).__name__} can't be a part of a lock's key"):
            value_in_key(value)

    @pytest.mark.parametrize(
        "value",
        [object(), Repr(), Point(1), len, lambda: None, Named, SimpleNamespace(), iter([]), {}.keys(), range(3), 5j],
        ids=lambda value: type(value).__name__,
    )
    def test_what_has_only_an_address_is_refused(self, value: object) -> None:
        """An object without a text of its own would be another key in every process."""
        with pytest.raises(LockKeyError, match=f"{type(value).__name__} has no text of its own"):
            value_in_key(value)

    @pytest.mark.parametrize(
        ("value", "what"),
        [(None, "None"), ("", "an empty text"), (SimpleNamespace(is_anonymous=True), "an anonymous user")],
    )
    def test_nothing_is_refused(self, value: object, what: str) -> None:
        """[D22] What names nothing would be one key for everybody; the message says how to have that."""
        with pytest.raises(LockKeyError, match=rf"\{{x\}} names nothing: it is {what}\. Write \{{x!n\}} if"):
            value_in_key(value)
        assert fill("a:{x!n}:b", lambda x: None, value) == "a::b"

    @pytest.mark.parametrize("value", [Blank(), Colour.NOTHING])
    def test_other_empty_texts_are_refused(self, value: object) -> None:
        """Nor does an object whose text is empty."""
        with pytest.raises(LockKeyError, match="names nothing"):
            value_in_key(value)
        assert fill("{x!n}", lambda x: None, value) == ""

    @pytest.mark.parametrize("template", ["{x.pk}", "{x[pk]}", "{x[0]}", "{x.pk!n}", "{x[pk]!n}", "{x.pk:hash}"])
    @pytest.mark.parametrize("value", [None, 5, "", SimpleNamespace(), {}, []], ids=repr)
    def test_what_is_missing_is_refused(self, template: str, value: object) -> None:
        """A missing attribute or item is an error, with `!n` too: only what is there can name nothing."""
        with pytest.raises(LockKeyError, match="can't be found"):
            fill(template, lambda x: None, value)

    def test_optional_values_that_are_there(self) -> None:
        """`!n` changes nothing for a value that names something."""
        assert fill("{x!n}", lambda x: None, "a:b") == fill("{x}", lambda x: None, "a:b") == "a%3Ab"
        assert fill("{x!n:lower}", lambda x: None, "AB") == "ab"


class TestSpecs:
    def test_hash(self) -> None:
        """`{x:hash}` hides a value, the same way in every process, and another value differently."""
        assert fill("{x:hash}", lambda x: None, "jane@example.org") == "96f616bb0cb2a3a0bdb20aab89fbd357"
        hashed = {fill("{x:hash}", lambda x: None, value) for value in ("a", "b", "A", 1, 2.5)}
        assert len(hashed) == 5
        assert all(re.fullmatch("[0-9a-f]{32}", text) for text in hashed)

    def test_lower(self) -> None:
        """`{x:lower}` makes one key of all spellings of an address."""
        assert fill("{x:lower}", lambda x: None, "Jane@Example.org") == "jane@example.org"

    @pytest.mark.parametrize("spec", ["hash", "lower"])
    def test_nothing_is_refused_with_a_spec(self, spec: str) -> None:
        """[D22] A spec doesn't make something out of nothing."""
        with pytest.raises(LockKeyError, match="names nothing"):
            fill(f"{{x:{spec}}}", lambda x: None, None)
        assert fill(f"{{x!n:{spec}}}", lambda x: None, None) == ""


class TestCollisions:
    """[D48]"""

    LETTERS = ":{}% \t\n\x00\x7f\u00a0\u3000%3A%25ab:"

    @pytest.mark.parametrize("seed", range(8))
    def test_no_two_pairs_share_a_key(self, seed: int) -> None:
        """[D48] Values with separators, braces, per cent and white space never make two pairs one key."""
        make = compile_template("lock:{a}:{b}", lambda a, b: None)
        spelled = Spelling("lock")
        dice = random.Random(seed)
        pairs: set[tuple[str, str]] = set()
        while len(pairs) < 300:
            a, b = ("".join(dice.choices(self.LETTERS, k=dice.randint(1, 5))) for _ in "ab")
            pairs.add((a, b))
        keys = {make(pair, {}) for pair in pairs}
        assert len(keys) == 300
        assert len({spelled.of(key).lock for key in keys}) == 300

    def test_near_misses(self) -> None:
        """[D48] The pairs that naive templates confuse."""
        make = compile_template("{a}:{b}", lambda a, b: None)
        pairs = [
            ("a:b", "c"),
            ("a", "b:c"),
            ("a%3Ab", "c"),
            ("a", "b%3Ac"),
            ("{a}", "b"),
            ("%7Ba%7D", "b"),
            ("a ", "b"),
        ]
        assert len({make(pair, {}) for pair in pairs}) == len(pairs)

    @pytest.mark.parametrize("letter", [*":{}% \t\r\n\x00\x1f\x7f"])
    def test_separators_are_escaped(self, letter: str) -> None:
        """[D48] None of them stands in a filled value."""
        assert value_in_key(f"a{letter}b") == f"a%{ord(letter):02X}b"


class TestMessages:
    def test_the_value_is_not_shown(self) -> None:
        """A value is personal data: the message names the field, never what it holds."""
        for value in ({"jane": 1}, ["jane"], SimpleNamespace(jane=1)):
            with pytest.raises(LockKeyError) as raised:
                value_in_key(value)
            assert "jane" not in str(raised.value)

    def test_the_cause_is_kept(self) -> None:
        """What the lookup itself said is the cause."""
        with pytest.raises(LockKeyError) as raised:
            fill("{x.pk}", lambda x: None, 5)
        assert isinstance(raised.value.__cause__, AttributeError)

"""The keys of ``@cached``: templates as ``@redis_lock`` has them, filled so that no two calls share one by accident.

A lock may mistake 1 for "1": somebody waits. A cache may not: somebody gets another one's value. So every value says its
type where it could be taken for one of another: 1 is ``1``, "1" is ``'1``, True is ``~True``, "True" is ``True``. What
separates two values in the template can't stand in one. None and an empty text are values like others; an anonymous
user, or a row that isn't saved, names nobody and is refused.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from hashlib import blake2b
from types import NoneType
from typing import Any
from uuid import UUID

from django.utils.functional import Promise
from django.utils.translation import get_language

from ...core import key_templates as templates
from ...core.errors import LockKeyError
from ...core.key_templates import Field, KeyMaker
from ...core.keys import escape

_mistakable = re.compile(r"-?[0-9]+\Z|[~']|\Z").match
"""Texts that look like something else."""

_inner = re.compile(r"[%,=()\[\]{}]")
"""What structures are made of."""


def key_maker(
    template: str | None, function: Callable[..., Any], label: str, *, vary_on_language: bool = False
) -> KeyMaker:
    """What makes the key of a call out of its arguments, ready for any cache.

    Without a template that is ``label`` and all arguments.

    Raises:
        TypeError: no template, or it names an argument that the function doesn't take, or two of its values have nothing
            between them.
    """
    if template is None:
        make = _by_all(function, label)
    else:
        if not template:
            raise TypeError("the template of @cached is empty")
        separators = _separators(template)

        def fill(field: Field, names: Mapping[str, Any]) -> str:
            return separators(_percent, _part(field, names))

        make = templates.compile_template(template, function, fill=fill)

    def key(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        made = make(args, kwargs)
        return escape(f"{made}:~{get_language()}" if vary_on_language else made)

    return key


def _by_all(function: Callable[..., Any], label: str) -> KeyMaker:
    signature = inspect.signature(function, follow_wrapped=False)
    first = next(iter(signature.parameters), None)

    def make(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        call = signature.bind(*args, **kwargs)
        call.apply_defaults()
        parts = [label]
        for name, value in call.arguments.items():
            if name == first == "self" and not _is_row(value):
                raise LockKeyError(
                    f"{label} is a method, and its {type(value).__name__} doesn't say which one it is: give @cached a "
                    'template that names what of it counts, such as "report:{self.year}:{month}"'
                )
            try:
                parts.append(_colons(_percent, token(value)))
            except LockKeyError as mistake:
                raise LockKeyError(f"the argument {name} of {label}: {mistake}") from None
        return ":".join(parts)

    return make


def _part(field: Field, names: Mapping[str, Any]) -> str:
    value = field.value(names)
    if value is None and not field.optional:
        _refuse_nobody(field, names)
    try:
        if field.spec == "lower" and isinstance(value, str):
            return token(str(value).lower())
        text = token(value)
    except LockKeyError as mistake:
        raise LockKeyError(f"the key's {{{field.path}}}: {mistake}") from None
    if field.spec == "hash":
        return blake2b(text.encode(errors="surrogatepass"), digest_size=16).hexdigest()
    return text.lower() if field.spec == "lower" else text


def _refuse_nobody(field: Field, names: Mapping[str, Any]) -> None:
    """``{user.pk}`` is None for everybody who isn't logged in, and for every row that isn't saved."""
    for end in re.finditer(r"[.\[]", field.path):
        owner = Field(field.path[: end.start()], field.root, "", optional=False).value(names)
        if _nobody(owner) or (_is_row(owner) and owner.pk is None):
            raise LockKeyError(
                f"the key's {{{field.path}}} names nothing: it is of {_kind_of_nobody(owner)}. Call .uncached() for these, or "
                f"write {{{field.path}!n}} if all of them share one value"
            )


@lru_cache(maxsize=1024)
def _separators(template: str) -> Callable[..., str]:
    """``re.sub`` of what no value may hold: the characters that tell where one ends."""
    found = {":", "%"}
    parts = templates.parse(template)
    for at in range(1, len(parts)):
        if isinstance(parts[at - 1], Field) and isinstance(parts[at], Field):
            raise TypeError(f"{template!r}: two values with nothing between them can't be told apart: write a colon")
    for literal in parts[1:-1]:
        if isinstance(literal, str):
            telling = [letter for letter in literal if not letter.isalnum() and letter != "%"]
            if not telling:
                raise TypeError(
                    f"{template!r}: what separates two values needs a colon or the like, not only {literal!r}"
                )
            if ":" not in telling:
                found.add(telling[0])
    return re.compile("[" + re.escape("".join(sorted(found))) + "]").sub


_colons = _separators(":")


def _percent(match: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in match[0].encode())


def token(value: Any) -> str:
    """A value as text that no other value has, the same in every process.

    Raises:
        LockKeyError: there is none.
    """
    kind: Any = value.__class__  # of a lazy object, the class of what it stands for
    if isinstance(value, Enum):
        if isinstance(value, str | int):
            return token(value.value)
        return f"~enum.{_name(kind)}.{value.name or token(value.value)}"
    if isinstance(value, Promise):
        return token(str(value))
    if isinstance(value, str):
        text = str(value)
        return f"'{text}" if _mistakable(text) else text
    if isinstance(value, bool | NoneType):
        return f"~{value}"
    if isinstance(value, int):
        return int.__repr__(value.__index__())
    if _nobody(value) or (_is_row(value) and value.pk is None):
        raise LockKeyError(f"{_kind_of_nobody(value)} names nobody")
    if _is_row(value):
        return f"~{kind._meta.label_lower}.{token(value.pk)}"
    return f"~{_tagged(value, kind)}"


def _tagged(value: Any, kind: Any) -> str:
    for kinds, write in _WRITTEN:
        if isinstance(value, kinds):
            return write(value, kind)
    if kind.__str__ is object.__str__ or inspect.isroutine(value):
        raise LockKeyError(f"{kind.__name__} has no text of its own: name one of its attributes in the template")
    return f"{_name(kind)}.{value}"


def _items(values: Iterable[Any]) -> str:
    return ",".join(map(_item, values))


_WRITTEN: tuple[tuple[Any, Callable[[Any, Any], str]], ...] = (
    (datetime, lambda value, _: f"datetime.{(value.astimezone(UTC) if value.tzinfo else value).isoformat()}"),
    (float, lambda value, _: f"float.{float(value)!r}"),
    ((Decimal, UUID, date, time, timedelta), lambda value, kind: f"{kind.__name__.lower()}.{value}"),
    ((bytes, bytearray, memoryview), lambda value, _: f"bytes.{bytes(value).hex()}"),
    (list, lambda value, _: f"[{_items(value)}]"),
    (tuple, lambda value, _: f"({_items(value)})"),
    ((set, frozenset), lambda value, _: f"set({','.join(sorted(map(_item, value)))})"),
    (dict, lambda value, _: f"{{{','.join(sorted(f'{_item(key)}={_item(one)}' for key, one in value.items()))}}}"),
    (type, lambda value, _: f"type.{_name(value)}"),
)
"""What is written differently from its ``str()``; of two that fit, the first."""


def _item(value: Any) -> str:
    """A value inside of another one."""
    text = token(value)
    return text if isinstance(value, list | tuple | set | frozenset | dict) else _inner.sub(_percent, text)


def _name(kind: Any) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _is_row(value: Any) -> bool:
    """Of a model, also through a lazy object; not the model itself."""
    return not isinstance(value, type) and hasattr(value.__class__, "_meta") and hasattr(value, "pk")


def _nobody(value: Any) -> bool:
    return getattr(value, "is_anonymous", False) is True


def _kind_of_nobody(value: Any) -> str:
    return "an anonymous user" if _nobody(value) else f"a {value.__class__.__name__} that isn't saved"

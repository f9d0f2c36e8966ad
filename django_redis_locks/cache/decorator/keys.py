"""The keys of ``@cached``: templates of ``@redis_lock``, filled so that different arguments never share a key.

A lock that takes 1 for "1" makes a caller wait; a cache that does so returns a wrong value. So a value is written with
its type wherever it could be taken for a value of another type: 1 is ``1``, "1" is ``'1``, True is ``~True``, "True" is
``True``. Separators of the template are escaped in values. None and "" are values like others. An anonymous user and an
unsaved model instance are refused, since they identify nothing.
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

_looks_like_token = re.compile(r"-?[0-9]+\Z|[~']|\Z").match
"""Matches a str that looks like the token of another type."""

_structure_characters = re.compile(r"[%,=()\[\]{}]")
"""The characters that delimit the items of a structure."""


def key_maker(
    template: str | None, function: Callable[..., Any], label: str, *, vary_on_language: bool = False
) -> KeyMaker:
    """Return a function that makes the key of a call from its arguments, valid in any cache.

    Without a template the key is ``label`` and all arguments.

    Raises:
        TypeError: no template, or it names an argument that the function doesn't take, or two of its values have
            nothing between them.
    """
    if template is None:
        make = _key_of_all_arguments(function, label)
    else:
        if not template:
            raise TypeError("the template of @cached is empty")
        separators = _separators(template)

        def fill(field: Field, names: Mapping[str, Any]) -> str:
            return separators(_percent_encode, _part(field, names))

        make = templates.compile_template(template, function, fill=fill)

    def key(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        made = make(args, kwargs)
        return escape(f"{made}:~{get_language()}" if vary_on_language else made)

    return key


def _key_of_all_arguments(function: Callable[..., Any], label: str) -> KeyMaker:
    signature = inspect.signature(function, follow_wrapped=False)
    first = next(iter(signature.parameters), None)

    def make(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        call = signature.bind(*args, **kwargs)
        call.apply_defaults()
        parts = [label]
        for name, value in call.arguments.items():
            if name == first == "self" and not _is_model_instance(value):
                raise LockKeyError(
                    f"{label} is a method, and a {type(value).__name__} has no key of its own: give @cached a template "
                    'with the attributes that identify it, such as "report:{self.year}:{month}"'
                )
            try:
                parts.append(_escape_colons(_percent_encode, token(value)))
            except LockKeyError as error:
                raise LockKeyError(f"the argument {name} of {label}: {error}") from None
        return ":".join(parts)

    return make


def _part(field: Field, names: Mapping[str, Any]) -> str:
    value = field.value(names)
    if value is None and not field.optional:
        _check_identified(field, names)
    try:
        if field.spec == "lower" and isinstance(value, str):
            return token(str(value).lower())
        text = token(value)
    except LockKeyError as error:
        raise LockKeyError(f"the key's {{{field.path}}}: {error}") from None
    if field.spec == "hash":
        return blake2b(text.encode(errors="surrogatepass"), digest_size=16).hexdigest()
    return text.lower() if field.spec == "lower" else text


def _check_identified(field: Field, names: Mapping[str, Any]) -> None:
    """Refuse None if it comes from an anonymous user or an unsaved instance: all of these would share one key."""
    for end in re.finditer(r"[.\[]", field.path):
        owner = Field(field.path[: end.start()], field.root, "", optional=False).value(names)
        if _is_anonymous(owner) or (_is_model_instance(owner) and owner.pk is None):
            raise LockKeyError(
                f"the key's {{{field.path}}} is empty: it belongs to {_describe_unidentified(owner)}. Call .uncached() for these, or "
                f"write {{{field.path}!n}} if all of them share one value"
            )


@lru_cache(maxsize=1024)
def _separators(template: str) -> Callable[..., str]:
    """Return ``re.sub`` for the characters that separate values in this template; values have them escaped."""
    found = {":", "%"}
    parts = templates.parse(template)
    for at in range(1, len(parts)):
        if isinstance(parts[at - 1], Field) and isinstance(parts[at], Field):
            raise TypeError(f"{template!r}: two values with nothing between them are ambiguous: write a colon")
    for literal in parts[1:-1]:
        if isinstance(literal, str):
            punctuation = [char for char in literal if not char.isalnum() and char != "%"]
            if not punctuation:
                raise TypeError(f"{template!r}: separate two values by a colon or the like, not only by {literal!r}")
            if ":" not in punctuation:
                found.add(punctuation[0])
    return re.compile("[" + re.escape("".join(sorted(found))) + "]").sub


_escape_colons = _separators(":")


def _percent_encode(match: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in match[0].encode())


def token(value: Any) -> str:
    """Return a str that is different for different values, and the same in every process.

    Raises:
        LockKeyError: the value has no such str.
    """
    kind: Any = value.__class__  # for a lazy object, the class of the wrapped one
    if isinstance(value, Enum):
        if isinstance(value, str | int):
            return token(value.value)
        return f"~enum.{_name(kind)}.{value.name or token(value.value)}"
    if isinstance(value, Promise):
        return token(str(value))
    if isinstance(value, str):
        text = str(value)
        return f"'{text}" if _looks_like_token(text) else text
    if isinstance(value, bool | NoneType):
        return f"~{value}"
    if isinstance(value, int):
        return int.__repr__(value.__index__())
    if _is_anonymous(value) or (_is_model_instance(value) and value.pk is None):
        raise LockKeyError(f"{_describe_unidentified(value)} identifies nothing")
    if _is_model_instance(value):
        return f"~{kind._meta.label_lower}.{token(value.pk)}"
    return f"~{_tagged(value, kind)}"


def _tagged(value: Any, kind: Any) -> str:
    for kinds, write in _WRITERS:
        if isinstance(value, kinds):
            return write(value, kind)
    if kind.__str__ is object.__str__ or inspect.isroutine(value):
        raise LockKeyError(f"{kind.__name__} has no __str__: name one of its attributes in the template")
    return f"{_name(kind)}.{value}"


def _items(values: Iterable[Any]) -> str:
    return ",".join(map(_item, values))


_WRITERS: tuple[tuple[Any, Callable[[Any, Any], str]], ...] = (
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
"""Types that are written differently from their ``str()``. The first match wins."""


def _item(value: Any) -> str:
    """Return the token of a value inside a structure."""
    text = token(value)
    return (
        text
        if isinstance(value, list | tuple | set | frozenset | dict)
        else _structure_characters.sub(_percent_encode, text)
    )


def _name(kind: Any) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _is_model_instance(value: Any) -> bool:
    """Whether a value is an instance of a model, also a lazy one; not the model class."""
    return not isinstance(value, type) and hasattr(value.__class__, "_meta") and hasattr(value, "pk")


def _is_anonymous(value: Any) -> bool:
    return getattr(value, "is_anonymous", False) is True


def _describe_unidentified(value: Any) -> str:
    return "an anonymous user" if _is_anonymous(value) else f"a {value.__class__.__name__} that isn't saved"

"""Key templates: ``"order:{order_id}"`` filled from the arguments of a call.

The syntax is ``str.format``'s, with attributes and items (``{request.user.pk}``, ``{self.kwargs[pk]}``). A value is
percent-encoded, so that ``a:b`` in it can't be taken for two parts. ``{x:hash}`` puts BLAKE2b in its place,
``{x:lower}`` lower case. A value that names nothing (None, an empty text, an anonymous user, an unsaved row) is a
``LockKeyError``: one key for all of them would lock everybody out; ``{x!n}`` lets it through as an empty text. ``{{``
    is a brace.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import lru_cache, partial
from hashlib import blake2b
from string import Formatter
from types import NoneType
from typing import Any, TypeAlias
from uuid import UUID

from .errors import LockKeyError

SPECS = ("", "hash", "lower")
CONVERSIONS = (None, "n")

_path = re.compile(r"\w+(?:\.[^\W\d]\w*|\[[^\[\]]+\])*")
_separating = re.compile(r"[\x00-\x20:%{}\x7f]")
_formatter = Formatter()

KeyMaker: TypeAlias = Callable[[tuple[Any, ...], dict[str, Any]], str]


@dataclass(frozen=True, slots=True)
class Field:
    """A replacement field: the path to its value, and what is done with it."""

    path: str
    root: str
    spec: str
    optional: bool

    def value(self, names: Mapping[str, Any]) -> Any:
        """What the path leads to."""
        try:
            value, _ = _formatter.get_field(self.path, (), names)
        except (AttributeError, KeyError, IndexError, TypeError) as error:
            raise LockKeyError(f"the key's {{{self.path}}} can't be found: {error!r}") from error
        return value

    def fill(self, names: Mapping[str, Any]) -> str:
        """The part of a lock's key."""
        try:
            return self._filled(names)
        except LockKeyError as mistake:
            source = (
                getattr(names.get("self"), "request", None)
                if self.path.startswith("self.request.")
                else names.get(self.root)
            )
            missing = mistake.__cause__
            if not (isinstance(missing, AttributeError) and missing.obj is source):
                mistake.source = source
            raise

    def _filled(self, names: Mapping[str, Any]) -> str:
        value = self.value(names)
        text = text_of(value)
        if not text:
            if self.optional:
                return ""
            login = "Is the user logged in? Put @login_required above @redis_lock. " if "user" in self.path else ""
            raise LockKeyError(
                f"the key's {{{self.path}}} names nothing: it is {_kind_of_nothing(value)}. {login}"
                f"Write {{{self.path}!n}} if one lock for all of these is meant"
            )
        if self.spec == "hash":
            return blake2b(text.encode(errors="surrogatepass"), digest_size=16).hexdigest()
        if not text.isascii():
            _refuse_unspelled(text)
        return escape(text.lower() if self.spec == "lower" else text)


def _refuse_unspelled(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise LockKeyError("the key of a lock holds characters that UTF-8 can't encode") from error


@lru_cache(maxsize=1024)
def parse(template: str) -> tuple[str | Field, ...]:
    """The parts of a template.

    Raises:
        TypeError: it isn't one.
    """
    parts: list[str | Field] = []
    try:
        for literal, path, spec, conversion in _formatter.parse(template):
            if literal:
                parts.append(literal)
            if path is not None:
                parts.append(_field(template, path, spec or "", conversion))
    except ValueError as error:
        raise TypeError(f"{template!r} is no key template: {error}") from None
    if not parts:
        raise TypeError("the key of a lock is empty")
    return tuple(parts)


def _field(template: str, path: str, spec: str, conversion: str | None) -> Field:
    root = re.split(r"[.\[]", path, maxsplit=1)[0]
    if not root.isidentifier():
        raise TypeError(f"{template!r}: every {{}} of a key template names an argument, such as {{order_id}}")
    if not _path.fullmatch(path):
        raise TypeError(f"{template!r} is no key template: {{{path}}} names no attribute or item")
    if spec not in SPECS:
        raise TypeError(f"{template!r}: the key knows {{{path}:hash}} and {{{path}:lower}}, not :{spec}")
    if conversion not in CONVERSIONS:
        raise TypeError(f"{template!r}: the key knows {{{path}!n}}, not !{conversion}")
    return Field(path, root, spec, conversion == "n")


def compile_template(
    template: str,
    function: Callable[..., Any],
    bound: Mapping[str, Any] | None = None,
    fill: Callable[[Field, Mapping[str, Any]], str] = Field.fill,
) -> KeyMaker:
    """What makes a key out of a call's arguments. ``bound`` are names known beforehand, such as ``self``; ``fill``
    makes a part of the key out of a field and all names.

    Raises:
        TypeError: no template, or it names an argument that the function doesn't take.
    """
    parts = parse(template)
    if all(isinstance(part, str) for part in parts):
        constant = "".join(part for part in parts if isinstance(part, str))
        return lambda _args, _kwargs: constant
    roots = {part.root for part in parts if isinstance(part, Field)}
    bound = bound or {}
    signature = inspect.signature(function, follow_wrapped=False)
    first: tuple[Any, ...] = ()
    preset: dict[str, Any] = {}
    if not roots <= {*signature.parameters, *bound}:
        # A partial hides what it fills in. What `method_decorator` hands over is one, too, which wraps a method.
        while isinstance(function, partial):
            first, preset = function.args + first, {**function.keywords, **preset}
            function = function.func
        # A wrapper that takes anything may hide a function that has names for it. Not so what `as_view` makes: it wraps
        # a method, which takes one argument more.
        signature = inspect.signature(function, follow_wrapped=not hasattr(function, "view_class"))
    known = {**signature.parameters, **bound}
    catch_all = next((name for name, p in signature.parameters.items() if p.kind is p.VAR_KEYWORD), None)
    for part in parts:
        if isinstance(part, Field) and part.root not in known and catch_all is None:
            raise TypeError(
                f"{template!r}: {getattr(function, '__qualname__', function)} takes no argument {part.root!r}; "
                f"it takes {', '.join(signature.parameters) or 'none'}"
            )

    def make(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        call = signature.bind(*first, *args, **{**preset, **kwargs})
        call.apply_defaults()
        more = {} if catch_all is None else call.arguments[catch_all]
        names = {**more, **bound, **call.arguments}
        return "".join(part if isinstance(part, str) else fill(part, names) for part in parts)

    return make


def escape(text: str) -> str:
    """A value as a part of a key: whatever could end the part is percent-encoded."""
    return _separating.sub(lambda match: f"%{ord(match[0]):02X}", text)


def text_of(value: Any) -> str:
    """A value as text, the same in every process; empty if it names nothing.

    Raises:
        LockKeyError: its text isn't the same everywhere: a set, a dict, an object that only has an address.
    """
    if isinstance(value, str):
        return value
    kind: Any = value.__class__  # of a lazy object, the class of what it stands for
    if kind is NoneType or getattr(value, "is_anonymous", False) is True:
        return ""
    if isinstance(value, Enum):
        return text_of(value.value)
    if isinstance(value, datetime):
        return (value.astimezone(UTC) if value.tzinfo else value).isoformat()
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, int | Decimal | UUID | date | time | timedelta):
        return str(value)
    model = getattr(kind, "_meta", None)
    if model is not None and hasattr(value, "pk"):
        return "" if value.pk is None else f"{model.label_lower}.{text_of(value.pk)}"
    if isinstance(value, bytes | bytearray | memoryview | dict | set | frozenset | list | tuple):
        raise LockKeyError(f"a {kind.__name__} can't be a part of a lock's key: name what is in it")
    if kind.__str__ is object.__str__:
        raise LockKeyError(f"{kind.__name__} has no text of its own: name one of its attributes in the key")
    return str(value)


def _kind_of_nothing(value: Any) -> str:
    if isinstance(value, NoneType):
        return "None"
    if isinstance(value, str):
        return "an empty text"
    if getattr(value, "is_anonymous", False) is True:
        return "an anonymous user"
    return f"a {value.__class__.__name__} that isn't saved"

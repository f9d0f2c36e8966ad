"""Key templates: fill ``"order:{order_id}"`` from the arguments of a call.

The syntax is that of ``str.format``, with attributes and items: ``{request.user.pk}``, ``{self.kwargs[pk]}``. Values
are percent-encoded, so that a value ``a:b`` isn't confused with two values.

- ``{x:hash}`` inserts the BLAKE2b hash of a value, ``{x:lower}`` the value in lower case. ``{{`` is a brace.
- An empty value (None, an empty text, an anonymous user, an unsaved row) raises ``LockKeyError``, because all callers
  without a value would share one lock. ``{x!n}`` allows it and inserts an empty text.
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
_escaped_in_values = re.compile(r"[\x00-\x20:%{}\x7f]")
_formatter = Formatter()

KeyMaker: TypeAlias = Callable[[tuple[Any, ...], dict[str, Any]], str]
"""Returns the key for the positional and the keyword arguments of a call."""


@dataclass(frozen=True, slots=True)
class Field:
    """A replacement field of a template.

    Attributes:
        path: the path to the value, such as ``request.user.pk``.
        root: the first name of the path, an argument.
        spec: "", "hash" or "lower".
        optional: the value may be empty (``!n``).
    """

    path: str
    root: str
    spec: str
    optional: bool

    def value(self, names: Mapping[str, Any]) -> Any:
        """Return the value at the path.

        Raises:
            LockKeyError: there is none.
        """
        try:
            value, _ = _formatter.get_field(self.path, (), names)
        except (AttributeError, KeyError, IndexError, TypeError) as error:
            raise LockKeyError(f"the key's {{{self.path}}} can't be found: {error!r}") from error
        return value

    def fill(self, names: Mapping[str, Any]) -> str:
        """Return the field's part of a lock's key.

        Raises:
            LockKeyError: the value is missing, empty, or can't be a part of a key.
        """
        try:
            return self._filled(names)
        except LockKeyError as error:
            source = (
                getattr(names.get("self"), "request", None)
                if self.path.startswith("self.request.")
                else names.get(self.root)
            )
            missing = error.__cause__
            if not (isinstance(missing, AttributeError) and missing.obj is source):
                error.source = source
            raise

    def _filled(self, names: Mapping[str, Any]) -> str:
        value = self.value(names)
        text = text_of(value)
        if not text:
            if self.optional:
                return ""
            login = "Is the user logged in? Put @login_required above @redis_lock. " if "user" in self.path else ""
            raise LockKeyError(
                f"the key's {{{self.path}}} is empty: it is {_describe_empty(value)}. {login}"
                f"Write {{{self.path}!n}} if all calls with an empty value should share one lock"
            )
        if self.spec == "hash":
            return blake2b(text.encode(errors="surrogatepass"), digest_size=16).hexdigest()
        if not text.isascii():
            _check_encodable(text)
        return escape(text.lower() if self.spec == "lower" else text)


def _check_encodable(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise LockKeyError("the key of a lock has characters that UTF-8 can't encode") from error


@lru_cache(maxsize=1024)
def parse(template: str) -> tuple[str | Field, ...]:
    """Return the literal parts and the fields of a template, in their order.

    Raises:
        TypeError: not a template.
    """
    parts: list[str | Field] = []
    try:
        for literal, path, spec, conversion in _formatter.parse(template):
            if literal:
                parts.append(literal)
            if path is not None:
                parts.append(_field(template, path, spec or "", conversion))
    except ValueError as error:
        raise TypeError(f"{template!r} isn't a key template: {error}") from None
    if not parts:
        raise TypeError("the key of a lock is empty")
    return tuple(parts)


def _field(template: str, path: str, spec: str, conversion: str | None) -> Field:
    root = re.split(r"[.\[]", path, maxsplit=1)[0]
    if not root.isidentifier():
        raise TypeError(f"{template!r}: every {{}} of a key template names an argument, such as {{order_id}}")
    if not _path.fullmatch(path):
        raise TypeError(f"{template!r} isn't a key template: {{{path}}} isn't a path of attributes and items")
    if spec not in SPECS:
        raise TypeError(f"{template!r}: a key allows {{{path}:hash}} and {{{path}:lower}}, not :{spec}")
    if conversion not in CONVERSIONS:
        raise TypeError(f"{template!r}: a key allows {{{path}!n}}, not !{conversion}")
    return Field(path, root, spec, conversion == "n")


def compile_template(
    template: str,
    function: Callable[..., Any],
    bound: Mapping[str, Any] | None = None,
    fill: Callable[[Field, Mapping[str, Any]], str] = Field.fill,
) -> KeyMaker:
    """Compile a template for the calls of a function.

    Args:
        template: the key template.
        function: the function whose arguments fill the template.
        bound: further names with their values, such as ``self``.
        fill: returns the part of the key for a field, given all names with their values.

    Returns:
        A function that takes the positional and the keyword arguments of a call, as a tuple and a dict, and returns its
        key.

    Raises:
        TypeError: not a template, or it names an argument that the function doesn't take.
    """
    parts = parse(template)
    if all(isinstance(part, str) for part in parts):
        constant = "".join(part for part in parts if isinstance(part, str))
        return lambda _args, _kwargs: constant
    roots = {part.root for part in parts if isinstance(part, Field)}
    bound = bound or {}
    signature = inspect.signature(function, follow_wrapped=False)
    partial_args: tuple[Any, ...] = ()
    partial_kwargs: dict[str, Any] = {}
    if not roots <= {*signature.parameters, *bound}:
        # The arguments of a partial aren't in its signature. `method_decorator` passes a partial of a method, too
        while isinstance(function, partial):
            partial_args, partial_kwargs = function.args + partial_args, {**function.keywords, **partial_kwargs}
            function = function.func
        # A wrapper with *args and **kwargs takes the arguments of the wrapped function. A view of `as_view` is an
        # exception: it wraps a method, which has one more argument
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
        call = signature.bind(*partial_args, *args, **{**partial_kwargs, **kwargs})
        call.apply_defaults()
        extra_kwargs = {} if catch_all is None else call.arguments[catch_all]
        names = {**extra_kwargs, **bound, **call.arguments}
        return "".join(part if isinstance(part, str) else fill(part, names) for part in parts)

    return make


def escape(text: str) -> str:
    """Percent-encode the characters that have a meaning in a key, such as the colon between two values."""
    return _escaped_in_values.sub(lambda match: f"%{ord(match[0]):02X}", text)


def text_of(value: Any) -> str:
    """Return the text of a value, which is the same in every process. An empty value has an empty text.

    Raises:
        LockKeyError: the text may differ between processes: a set, a dict, an object without ``__str__``.
    """
    if isinstance(value, str):
        return value
    kind: Any = value.__class__  # unlike type(), the class of a lazy object's value
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
        raise LockKeyError(f"a {kind.__name__} can't be a part of a lock's key: use a value from it instead")
    if kind.__str__ is object.__str__:
        raise LockKeyError(f"{kind.__name__} has no __str__ method: use one of its attributes in the key instead")
    return str(value)


def _describe_empty(value: Any) -> str:
    if isinstance(value, NoneType):
        return "None"
    if isinstance(value, str):
        return "an empty text"
    if getattr(value, "is_anonymous", False) is True:
        return "an anonymous user"
    return f"a {value.__class__.__name__} that isn't saved"

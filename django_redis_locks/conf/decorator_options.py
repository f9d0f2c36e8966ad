"""The options that only ``@redis_lock`` has, given at a function or in ``LOCKS``, and their validation."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, Final, Literal, TypeAlias, get_args

from ..core.arguments import validate_choice
from ..core.errors import LockNotAcquired
from ..core.suggestions import closest, did_you_mean

LockKind: TypeAlias = Literal["lock", "fair", "read", "write", "semaphore"]

FEATURES_OF_KINDS: Final = {"fair": "fair", "read": "rwlocks", "write": "rwlocks", "semaphore": "semaphores"}
"""The words of the backends' ``FEATURES`` that kinds of locks need."""

HoldUntil: TypeAlias = Literal["call", "transaction", "response"]

Handler: TypeAlias = Callable[[Any, LockNotAcquired], Any]
"""Takes the request and the ``LockNotAcquired``, and returns the response."""

ANSWERS: Final = ("answer", "raise", "skip")

VERBS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")


@dataclass(frozen=True, slots=True)
class DecoratorOptions:
    """The options of one ``@redis_lock``, or of ``LOCKS[name]``. None means that an option isn't given."""

    kind: LockKind | None = None
    limit: int | None = None
    reentrant: bool | None = None
    auto_release: bool | None = None
    methods: frozenset[str] | None = None
    condition: Callable[..., object] | None = None
    status: int | None = None
    retry_after: bool | int | None = None
    hold: HoldUntil | None = None
    on_conflict: str | Handler | None = None
    """One of ``ANSWERS``, a handler, or its dotted path."""
    on_key_error: int | Literal["raise"] | None = None
    """The status of the response to a request that lacks a part of the key."""

    @property
    def keeps_lock(self) -> bool:
        """Whether the lock stays held after the call, until its lease ends."""
        return self.auto_release is False

    def merged_with(self, others: DecoratorOptions) -> DecoratorOptions:
        """Return these options, with ``others`` for those that aren't given."""
        if others is EMPTY_OPTIONS:
            return self
        return DecoratorOptions(*[_either(self, others, field.name) for field in fields(DecoratorOptions)])

    def set_response(self, refused: LockNotAcquired) -> None:
        """Set the status and ``Retry-After`` of the response to a request that didn't get the lock."""
        if self.keeps_lock:
            refused.rate_limited = True
            refused.status, refused.retry_header = 429, max(1, math.ceil(refused.retry_after))
        if self.status is not None:
            refused.status = self.status
        if self.retry_after is not None and self.retry_after is not True:
            refused.retry_header = self.retry_after or None


EMPTY_OPTIONS: Final = DecoratorOptions()


def _either(first: DecoratorOptions, second: DecoratorOptions, name: str) -> Any:
    value = getattr(first, name)
    return getattr(second, name) if value is None else value


def validate_kind(value: Any, what: str = "kind") -> LockKind:
    """Return the kind of the lock.

    Raises:
        ValueError: not one of ``LockKind``.
    """
    return validate_choice(value, what, get_args(LockKind))  # type: ignore[return-value]


def validate_status(value: object, what: str = "status") -> int:
    """Return the status of the response to a request that didn't get the lock.

    Raises:
        ValueError: not an int from 400 to 599.
    """
    if not isinstance(value, int) or not 400 <= value <= 599:
        raise ValueError(f"{what} is the status of a refusal, 400 to 599 such as 409, 423 or 429, not {value!r}")
    return int(value)


def validate_on_key_error(value: Any, what: str = "on_key_error") -> int | Literal["raise"]:
    """Return the status of the response to a request that lacks a part of the key, or "raise".

    Raises:
        ValueError: neither "raise" nor an int from 400 to 499.
    """
    if value == "raise" and isinstance(value, str):
        return "raise"
    if isinstance(value, bool) or not isinstance(value, int) or not 400 <= value <= 499:
        raise ValueError(f"{what} is 'raise' or a status from 400 to 499 such as 400 or 422, not {value!r}")
    return int(value)


def validate_retry_after(value: object, what: str = "retry_after") -> bool | int:
    """Return the ``Retry-After`` option: True for the remaining lease, False for no header, or seconds.

    Raises:
        ValueError: none of these.
    """
    if not isinstance(value, int) or (value < 1 and value is not False):
        raise ValueError(f"{what} is True, False or a whole number of seconds from 1 on, not {value!r}")
    return value


def validate_on_conflict(value: Any, what: str = "on_conflict", *, skip: bool = True) -> str | Handler:
    """Return the ``on_conflict`` option. A dotted path isn't imported yet, because its module may be in the middle of
    its own import.

    Args:
        value: one of ``ANSWERS``, a handler or its dotted path.
        what: the name of the option or setting, for the message.
        skip: whether "skip" is allowed.

    Raises:
        ValueError: none of these.
    """
    known = ANSWERS if skip else ANSWERS[:2]
    if callable(value) and not isinstance(value, type):
        return value  # type: ignore[no-any-return]
    if isinstance(value, str):
        if value in known or ("." in value and all(part.isidentifier() for part in value.split("."))):
            return value
        if value in ANSWERS:
            raise ValueError(
                f"{what} can't be {value!r} for all locks: write on_conflict={value!r} at a function, which then returns None"
            )
    words = ", ".join(map(repr, known))
    hint = did_you_mean(closest(value, known))
    raise ValueError(f"{what} is {words}, a handler(request, refused) or its dotted path, not {value!r}{hint}")


def validate_hold(value: Any, what: str = "hold") -> HoldUntil:
    """Return the ``hold`` option: the lock is held until the end of the call, transaction or response.

    Raises:
        ValueError: not one of ``HoldUntil``.
    """
    return validate_choice(value, what, get_args(HoldUntil))  # type: ignore[return-value]


def validate_methods(value: Any, what: str = "methods") -> frozenset[str]:
    """Return the HTTP verbs that need the lock, in capitals.

    Raises:
        ValueError: not a set of verbs, or one looks misspelled, so that it would never lock.
    """
    if (
        not isinstance(value, list | tuple | set | frozenset)
        or not value
        or not all(isinstance(verb, str) for verb in value)
    ):
        raise ValueError(f'{what} is a set of verbs such as {{"POST", "PUT"}}, not {value!r}')
    found = frozenset(verb.upper() for verb in value)
    for verb in found.difference(VERBS):
        close = closest(verb, VERBS, similarity=0.7)
        if close or not verb.isascii() or not verb.replace("-", "").isalpha():
            raise ValueError(f"{what}: {verb!r} isn't an HTTP verb{did_you_mean(close)}")
    return found

"""``LOCKS[name]``: the options for all locks with one name, which override those of the alias."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.utils.module_loading import import_string

from ..core import durations
from ..core.arguments import validate_limit
from ..core.holder import FIELDS
from . import decorator_options
from .decorator_options import EMPTY_OPTIONS, DecoratorOptions

DECORATOR_KEYS = (
    "KIND",
    "LIMIT",
    "REENTRANT",
    "AUTO_RELEASE",
    "METHODS",
    "CONDITION",
    "STATUS",
    "RETRY_AFTER",
    "HOLD",
    "ON_CONFLICT",
    "ON_KEY_ERROR",
)
"""The keys that only ``@redis_lock`` uses."""

PER_NAME = ("EXPIRE", "WAIT", "BACKEND_WAIT", "RENEW", "MAX_HOLD", "ON_BACKEND_ERROR", "METADATA", *DECORATOR_KEYS)


@dataclass(frozen=True, slots=True)
class Overrides:
    """The validated options for one name; None for an option that isn't given. The lease is in milliseconds, other
    times are in seconds."""

    lease: int | None = None
    wait: float | None = None
    backend_wait: float | None = None
    renew: bool | None = None
    max_hold: float | None = None
    fail_open: bool | None = None
    metadata: tuple[str, ...] | None = None
    decorator_options: DecoratorOptions = EMPTY_OPTIONS


EMPTY_OVERRIDES = Overrides()


def read(entry: Mapping[str, Any]) -> Overrides:
    """Read the validated entry of a name, or the common keys of an alias."""

    def converted(key: str, convert: Any) -> Any:
        return convert(entry[key]) if key in entry else None

    return Overrides(
        lease=converted("EXPIRE", durations.lease_ms),
        wait=converted("WAIT", durations.wait_seconds),
        backend_wait=converted("BACKEND_WAIT", durations.wait_seconds),
        renew=converted("RENEW", bool),
        max_hold=converted("MAX_HOLD", durations.hold_seconds),
        fail_open=converted("ON_BACKEND_ERROR", lambda value: value == "open"),
        metadata=converted("METADATA", lambda value: tuple(name for name in FIELDS if name in value)),
        decorator_options=DecoratorOptions(
            kind=converted("KIND", decorator_options.validate_kind),
            limit=converted("LIMIT", validate_limit),
            reentrant=converted("REENTRANT", bool),
            auto_release=converted("AUTO_RELEASE", bool),
            methods=converted("METHODS", decorator_options.validate_methods),
            condition=converted("CONDITION", import_callable),
            status=converted("STATUS", decorator_options.validate_status),
            retry_after=converted("RETRY_AFTER", decorator_options.validate_retry_after),
            hold=converted("HOLD", decorator_options.validate_hold),
            on_conflict=converted("ON_CONFLICT", decorator_options.validate_on_conflict),
            on_key_error=converted("ON_KEY_ERROR", decorator_options.validate_on_key_error),
        )
        if not entry.keys().isdisjoint(DECORATOR_KEYS)
        else EMPTY_OPTIONS,
    )


def import_handler(value: Any, what: str = "ON_CONFLICT") -> Any:
    """Return a handler, imported if it is a dotted path. One of ``ANSWERS`` is returned as it is.

    Raises:
        ValueError: it can't be imported, or isn't callable.
    """
    return value if value in decorator_options.ANSWERS else import_callable(value, what)


def import_callable(value: object, what: str = "CONDITION") -> Any:
    """Return a callable, imported if it is a dotted path.

    Raises:
        ValueError: it can't be imported, or isn't callable.
    """
    try:
        found = import_string(value) if isinstance(value, str) else value
    except ImportError as error:
        raise ValueError(f"{what} can't be imported: {error}") from None
    if not callable(found):
        raise ValueError(f"{what} is a callable or the dotted path to one, not {value!r}")
    return found

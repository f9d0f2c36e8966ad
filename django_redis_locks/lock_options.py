"""The options of a lock that its call site gives: their checks, and how they change the options of the settings."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from django.db import DEFAULT_DB_ALIAS, connections

from .conf import ON_BACKEND_ERROR
from .core import durations
from .core.arguments import validate_choice, validate_flag

if TYPE_CHECKING:
    from .core.durations import Duration
    from .core.grant import OnLost
    from .primitives.shared.lock_spec import LockSpec
    from .primitives.shared.requests import LockOptions

T = TypeVar("T")

FIXED_LEASE = "max_hold limits the renewal of the lease, and this one is fixed: add renew=True, or leave max_hold out"
"""The error of a call site that gives both."""


def with_on_lost(spec: LockSpec, on_lost: OnLost) -> LockSpec:
    """Return the spec with the callback of a call site.

    Raises:
        ValueError: neither None nor "cancel" nor a callable.
        TypeError: the lock has ``auto_release=False``.
    """
    if on_lost is None:
        return spec
    if not spec.options.auto_release:
        raise TypeError(
            "a lock with auto_release=False always ends with its lease, so on_lost is never called: leave it out"
        )
    return replace(spec, options=replace(spec.options, on_lost=validate_on_lost(on_lost)))


def check_kept(expire: object, renew: object, hold: object) -> None:
    """
    Raises:
        TypeError: the options contradict ``auto_release=False``.
    """
    if expire is None or renew or hold is not None:
        raise TypeError(
            "a lock with auto_release=False stays until its lease ends: give it an expire=, and neither renew=True nor hold="
        )


def limited(options: LockOptions, max_hold: float, *, renewable: bool) -> LockOptions:
    """Return the options of a lock with a limit of its own for the renewal.

    Args:
        options: the other options.
        max_hold: seconds; infinity for ever.
        renewable: False if the settings say that locks of this name aren't renewed. Then the limit has no effect.

    Raises:
        TypeError: the call site gives a lease that isn't renewed.
        ValueError: the limit is shorter than the lease.
    """
    if not options.renew_for:
        if renewable:
            raise TypeError(FIXED_LEASE)
        return options
    if max_hold < options.lease / 1000:
        raise ValueError(f"max_hold is shorter than the lease: {max_hold:g} against {options.lease / 1000:g} seconds")
    return replace(options, renew_for=max_hold, max_hold=max_hold)


def validate_on_lost(value: OnLost) -> OnLost:
    """Return the value of ``on_lost``.

    Raises:
        ValueError: neither None nor "cancel" nor a callable.
    """
    if value is not None and value != "cancel" and not callable(value):
        raise ValueError(f'on_lost is None, "cancel" or a callable, not {value!r}')
    return value


def validate_on_backend_error(on_backend_error: object) -> bool:
    """Return whether a section continues without its lock while the store is down.

    Raises:
        ValueError: neither "closed" nor "open".
    """
    return validate_choice(on_backend_error, "on_backend_error", ON_BACKEND_ERROR) == "open"


def wait_options(wait: Duration | None, on_backend_error: object, wait_for_parent: object) -> dict[str, Any]:
    """Return the options that say how a caller waits.

    Raises:
        ValueError: one of them is out of its range.
    """
    given: dict[str, Any] = {}
    if wait is not None:
        given["wait"] = durations.wait_seconds(wait)
    if on_backend_error is not None:
        given["fail_open"] = validate_on_backend_error(on_backend_error)
    if validate_flag(wait_for_parent, "wait_for_parent"):
        given["wait_for_parent"] = True
    return given


def release_options(hold: object, using: object) -> dict[str, Any]:
    """Return the options that say when a lock is released.

    Raises:
        ValueError: ``hold`` or the database is unknown.
    """
    if hold is None and using is None:
        return {}
    if hold == "block" and using is None:
        return {"after_release": None}
    if hold in (None, "block"):
        raise ValueError('hold_using names the database of hold="transaction", and needs it')
    if hold != "transaction":
        raise ValueError(f"hold of a lock object is 'block' or 'transaction', not {hold!r}")
    if using is not None and (not isinstance(using, str) or using not in connections.settings):
        raise ValueError(f"hold_using is one of {', '.join(map(repr, connections.settings))}, not {using!r}")
    return {"database": using or DEFAULT_DB_ALIAS}


def first_given(override: T | None, default: T) -> T:
    """Return the override, or the default if that is None."""
    return default if override is None else override

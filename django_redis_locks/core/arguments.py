"""Validation of arguments and settings: flags, choices, and unknown names, with those that other libraries use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from .suggestions import closest, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

LARGEST_LIMIT: Final = 1_000_000_000
"""More permits than that are a mistake."""

SYNONYMS: Final = {
    "timeout": "expire",
    "ttl": "expire",
    "lease": "expire",
    "blocking_timeout": "wait",
    "auto_renewal": "renew",
    "auto_renew": "renew",
    "on_failure": "on_conflict",
    "failure_handler": "on_conflict",
    "failure_status": "status",
    "wait": "timeout",
}
"""Names of arguments and settings of locks in other libraries. ``wait`` is called ``timeout`` in ``acquire()``, as in
``threading``."""

_ADVICE: Final = {
    "blocking": "write acquire(blocking=False), or wait=0",
    "expire": "it is an argument of the lock: locks.lock(key, expire=...)",
    "reentrant": "locks.rlock(key) may be entered again by its owner",
    "using": 'locks["alias"] has the locks of another alias',
    "sleep": "waiters are woken, and don't poll",
    "token": "each grant has a secret token of its own",
    "id": "each grant has a secret token of its own",
    "thread_local": "a lock belongs to the thread or task that acquired it, and another one releases it by grant.release()",
}
"""What to do instead of using an argument that doesn't exist here."""


def validate_flag(value: object, what: str) -> bool:
    """Return True or False.

    Raises:
        ValueError: neither.
    """
    if not isinstance(value, bool):
        raise ValueError(f"{what} is True or False, not {value!r}")
    return value


def validate_choice(value: Any, what: str, known: Collection[str]) -> str:
    """Return one of the known texts.

    Raises:
        ValueError: it is none of them.
    """
    if not isinstance(value, str) or value not in known:
        raise ValueError(f"{what} is one of {', '.join(map(repr, known))}, not {value!r}")
    return value


def validate_limit(limit: object, what: str = "limit") -> int:
    """Return the limit of a semaphore.

    Raises:
        ValueError: no whole number, less than 1, or absurdly large.
    """
    if type(limit) is not int or not 1 <= limit <= LARGEST_LIMIT:
        raise ValueError(f"{what} is a whole number from 1 to {LARGEST_LIMIT}, not {limit!r}")
    return limit


def refuse_unknown(arguments: Mapping[str, object], of: str, known: Sequence[str]) -> None:
    """Raise for an unknown argument, with the name that is probably meant.

    Raises:
        TypeError: there is an unknown argument.
    """
    for name in arguments:
        suggestion = did_you_mean(closest(name, known, SYNONYMS), f"; there are {', '.join(known)}")
        advice = f"; {_ADVICE[name]}" if name in _ADVICE else suggestion
        raise TypeError(f"{of} has no argument {name!r}{advice}")

"""Errors for unknown arguments, with hints for the names that other libraries use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from .suggestions import closest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_SYNONYMS: Final = {
    "timeout": ("expire",),
    "ttl": ("expire",),
    "lease": ("expire",),
    "wait": ("timeout",),
    "blocking_timeout": ("wait", "timeout"),
    "auto_renewal": ("renew",),
    "auto_renew": ("renew",),
    "on_failure": ("on_conflict",),
    "failure_handler": ("on_conflict",),
}
"""Arguments of other libraries, with the names that they may have here."""

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


def refuse_unknown(arguments: Mapping[str, object], of: str, known: Sequence[str]) -> None:
    """Raise for an unknown argument, with the name that is probably meant.

    Raises:
        TypeError: there is an unknown argument.
    """
    for name in arguments:
        raise TypeError(f"{of} has no argument {name!r}; {_hint(name, known)}")


def _hint(name: str, known: Sequence[str]) -> str:
    synonyms = [synonym for synonym in _SYNONYMS.get(name, ()) if synonym in known]
    if not synonyms and name in _ADVICE:
        return _ADVICE[name]
    suggestion = synonyms[0] if synonyms else closest(name, known)
    return f"did you mean {suggestion}=?" if suggestion else f"there are {', '.join(known)}"

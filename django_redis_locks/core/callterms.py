"""What ``@redis_lock`` has beside the terms of a lock: which calls need it, whether it is given back, and how a refusal
is answered. What is right is settled here, for the call site and for ``LOCKS``."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, Final, Literal, TypeAlias, get_args

Until: TypeAlias = Literal["call", "transaction", "response"]

VERBS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")


@dataclass(frozen=True, slots=True)
class CallTerms:
    """None where nothing is said."""

    reentrant: bool | None = None
    auto_release: bool | None = None
    methods: frozenset[str] | None = None
    condition: Callable[..., object] | None = None
    status: int | None = None
    retry_after: bool | int | None = None
    hold: Until | None = None

    @property
    def cools(self) -> bool:
        """The lock stays when the call is over, until its lease ends."""
        return self.auto_release is False

    def over(self, others: CallTerms) -> CallTerms:
        """These, and the others' where these say nothing."""
        if others is UNSAID:
            return self
        return CallTerms(*[_either(self, others, field.name) for field in fields(CallTerms)])


UNSAID: Final = CallTerms()


def _either(first: CallTerms, second: CallTerms, name: str) -> Any:
    said = getattr(first, name)
    return getattr(second, name) if said is None else said


def flag(value: object, what: str) -> bool:
    """True or False.

    Raises:
        ValueError: neither.
    """
    if not isinstance(value, bool):
        raise ValueError(f"{what} is True or False, not {value!r}")
    return value


def status_of(value: object, what: str = "status") -> int:
    """The status of an answer that refuses.

    Raises:
        ValueError: no int from 400 to 599.
    """
    if not isinstance(value, int) or not 400 <= value <= 599:
        raise ValueError(f"{what} is the status of a refusal, 400 to 599 such as 409, 423 or 429, not {value!r}")
    return int(value)


def retry_of(value: object, what: str = "retry_after") -> bool | int:
    """``Retry-After``: True for what is left of the lease, False for none, or seconds.

    Raises:
        ValueError: none of these.
    """
    if not isinstance(value, int) or (value < 1 and value is not False):
        raise ValueError(f"{what} is True, False or a whole number of seconds from 1 on, not {value!r}")
    return value


def hold_of(value: Any, what: str = "hold") -> Until:
    """Until when the lock is held.

    Raises:
        ValueError: nothing that can be meant.
    """
    if not isinstance(value, str) or value not in get_args(Until):
        raise ValueError(f"{what} is 'call', 'transaction' or 'response', not {value!r}")
    return value  # type: ignore[return-value]


def verbs_of(value: Any, what: str = "methods") -> frozenset[str]:
    """The verbs of HTTP that need the lock, in capitals.

    Raises:
        ValueError: not a set of them, or one that looks like a typing error: it would never lock.
    """
    if (
        not isinstance(value, list | tuple | set | frozenset)
        or not value
        or not all(isinstance(verb, str) for verb in value)
    ):
        raise ValueError(f'{what} is a set of verbs such as {{"POST", "PUT"}}, not {value!r}')
    found = frozenset(verb.upper() for verb in value)
    for verb in found.difference(VERBS):
        close = difflib.get_close_matches(verb, VERBS, 1, 0.7)
        if close or not verb.isascii() or not verb.replace("-", "").isalpha():
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise ValueError(f"{what}: {verb!r} is no verb of HTTP{hint}")
    return found

"""Programs and the commands that they send to a store.

A program is a generator that yields effects and receives their replies. A command is the effect of one atomic step in
the store; the other effects are in ``effects``.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeAlias, TypeVar

from .errors import LockBackendError, LockError

R = TypeVar("R")


@dataclass(slots=True)
class Effect(Generic[R]):
    """One request of a program to its performer; the reply has type ``R``."""

    local: ClassVar[bool] = True

    def __iter__(self) -> Generator[Effect[Any], Any, R]:
        reply: R = yield self
        return reply


Program: TypeAlias = Generator[Effect[Any], Any, R]
"""A program that returns ``R``. In ``primitives`` its name ends in -ing, unlike that of the public method which runs
it:
``acquire`` runs ``acquiring``."""


PARSE_ERRORS = (ValueError, TypeError, LookupError, AttributeError, OverflowError)
"""The exceptions that a parser raises for a malformed reply. Other exceptions come from signal handlers."""


@dataclass(slots=True)
class Command(Effect[R]):
    """One atomic step in the store, sent exactly once. Without a reply it raises ``LockBackendError`` with
    ``outcome_unknown``.

    Attributes:
        name: the name of the step in ``STEPS``. For Redis it is the path of a script.
        keys: the keys in the store that it uses.
        args: its other arguments, a named tuple of the class that ``STEPS`` has for the name.
        parse: returns the value of a raw reply, or raises one of ``PARSE_ERRORS``.
        own_keys: the number of first keys that belong to one hold, if this renewal can be merged with others: they may
            differ in these keys and in the last argument, a tuple, and the reply is an array with a result for each. 0
            if it can't be merged.
        replicas: the number of replicas that shall have this step before the reply. The raw reply is then a list: that of
            the step, and the number of replicas that have it when enough have, or after the store's timeout.
    """

    local: ClassVar[bool] = False

    name: str
    keys: tuple[str, ...]
    args: Any
    parse: Callable[[Any], R]
    own_keys: int = 0
    replicas: int = 0

    def read(self, reply: Any) -> R:
        """Parse a reply.

        Raises:
            LockBackendError: the reply doesn't belong to this command.
        """
        try:
            return self.parse(reply)
        except LockError:
            raise
        except PARSE_ERRORS as error:
            raise LockBackendError(
                f"not a valid reply to {self.name}: {str(reply)[:80]}", outcome_unknown=True, transient=True
            ) from error

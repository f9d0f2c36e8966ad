"""Programs and the commands that they send to a store.

A program is a generator that yields effects and receives their replies. A command is the effect of one atomic step in the
store; the other effects are in ``effects``.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeAlias, TypeVar

from .errors import LockBackendError, LockError

R = TypeVar("R")


@dataclass(slots=True)
class Effect(Generic[R]):
    """One thing asked of the world; its reply has type ``R``."""

    local: ClassVar[bool] = True

    def __iter__(self) -> Generator[Effect[Any], Any, R]:
        reply: R = yield self
        return reply


Program: TypeAlias = Generator[Effect[Any], Any, R]


PARSE_ERRORS = (ValueError, TypeError, LookupError, AttributeError, OverflowError)
"""What a parser raises over an answer that is none; not what a signal handler raises inside of it."""


@dataclass(slots=True)
class Command(Effect[R]):
    """One atomic step on the store, sent exactly once.

    ``name`` is all that a backend knows of a primitive: for Redis the path of a script. A request whose answer is
    missing is thrown in as a ``LockBackendError`` with ``outcome_unknown``.
    """

    local: ClassVar[bool] = False

    name: str
    keys: tuple[str, ...]
    args: tuple[str | int | bytes, ...]
    parse: Callable[[Any], R]

    def read(self, reply: Any) -> R:
        """What a reply means.

        Raises:
            LockBackendError: nothing, to this command: somebody else answered it, or something else was.
        """
        try:
            return self.parse(reply)
        except LockError:
            raise
        except PARSE_ERRORS as error:
            raise LockBackendError(
                f"that is no answer to {self.name}: {str(reply)[:80]}", outcome_unknown=True, transient=True
            ) from error

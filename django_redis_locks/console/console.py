"""Where a verb writes and whom it asks, and how the aliases that are down are told."""

from __future__ import annotations

import getpass
import json
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from django.utils.translation import gettext as _

from ..conf import InvalidLockBackend
from ..core.errors import LockBackendError
from ..core.text import distinct
from ..handler import locks

T = TypeVar("T")

OK: Final = 0
NO: Final = 1
"""The answer is no: nothing was found, nobody holds it, it wasn't released."""
WRONG: Final = 2
"""The command can't be understood, or may not be carried out so."""
DOWN: Final = 3
"""A store can't be reached, or refuses."""

Options = Mapping[str, Any]


class UsageError(Exception):
    """The command may not be carried out so; its text says what to do."""


@dataclass(slots=True)
class Console:
    """``out`` is for answers, ``err`` for all else. With ``json`` the answers are documents."""

    out: Any
    err: Any
    json: bool = False
    down: dict[str, str] = field(default_factory=dict)
    """By alias: what is wrong with it."""

    def say(self, *lines: str) -> None:
        """Lines of an answer; where that is a document they go beside it."""
        for line in lines:
            _write(self.err if self.json else self.out, line)

    def note(self, line: str) -> None:
        """What isn't the answer."""
        _write(self.err, line)

    def document(self, value: Any, *, indent: int | None = 2) -> None:
        """The answer as one document, in ASCII: exact, and distinct."""
        self.out.write(json.dumps(value, indent=indent))

    def asked(self, question: str) -> bool:
        """Whether somebody said yes. Nobody there is a no."""
        self.err.write(_printable(question, self.err), ending="")
        self.err.flush()
        return sys.stdin.readline().strip().casefold() in {"y", "yes", _("yes").casefold()}

    def each(self, aliases: Sequence[str], ask: Callable[[str], T]) -> dict[str, T]:
        """What each alias says. Those that are down are noted, and hide no other."""
        found: dict[str, T] = {}
        self.down = {}
        for alias in aliases:
            try:
                found[alias] = ask(alias)
            except LockBackendError as error:
                self.down[alias] = str(error.args[0])
            except InvalidLockBackend as error:
                if len(aliases) == 1:
                    raise
                self.down[alias] = str(error)
        return found

    def code(self, found: object) -> int:
        """The exit code: whether any alias is down, and if not, whether anything was found."""
        return DOWN if self.down else OK if found else NO


def aliases_of(options: Options) -> list[str]:
    """The alias that is named, or all of them.

    Raises:
        UsageError: there is no such alias, or none at all.
    """
    known = list(locks)
    named = options["alias"]
    if named is None and known:
        return known
    if named in known:
        return [named]
    if not known:
        raise UsageError(_("There are no locks: set REDIS_LOCKS."))
    raise UsageError(
        _("There is no alias %(alias)s; there is %(known)s.")
        % {"alias": repr(named), "known": ", ".join(map(repr, known))}
    )


def alias_of(options: Options) -> str:
    """The alias that is named, or the default one."""
    (alias,) = aliases_of({"alias": options["alias"] or "default"})
    return alias


def actor() -> str:
    """Who gives this command."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError, ImportError):  # a container's user without a name
        user = "?"
    return f"{user}@{socket.gethostname()}"


def has_terminal() -> bool:
    """Whether there is somebody who can be asked."""
    return sys.stdin is not None and sys.stdin.isatty()


def _write(out: Any, line: str) -> None:
    out.write(_printable(line, out))


def _printable(text: str, out: Any) -> str:
    """With escapes for what the terminal's encoding doesn't have."""
    encoding = getattr(out, "encoding", None) or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


def told(problems: Mapping[str, str]) -> str:
    """The aliases that are down, in one text."""
    return "\n".join(f"{distinct(alias)}: {distinct(problem)}" for alias, problem in problems.items())

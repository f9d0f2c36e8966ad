"""``Console``: the output, questions, exit codes and store errors of all verbs."""

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
"""Exit code: nothing was found, held or released."""
WRONG: Final = 2
"""Exit code: the arguments are wrong, or the command needs a confirmation."""
DOWN: Final = 3
"""Exit code: a store can't be reached, or refuses."""

Options = Mapping[str, Any]


class UsageError(Exception):
    """The command can't be carried out with these arguments. The message says what to do."""


@dataclass(slots=True)
class Console:
    """Output of a verb: ``out`` gets the result, ``err`` everything else. With ``json`` the result is a JSON
    document."""

    out: Any
    err: Any
    json: bool = False
    down: dict[str, str] = field(default_factory=dict)
    """The errors of aliases that are down, entirely or in part, by alias."""

    def say(self, *lines: str) -> None:
        """Write lines of the result. With ``json`` they go to ``err``, beside the document."""
        for line in lines:
            _write(self.err if self.json else self.out, line)

    def note(self, line: str) -> None:
        """Write a line that isn't part of the result."""
        _write(self.err, line)

    def document(self, value: Any, *, indent: int | None = 2) -> None:
        """Write the result as one JSON document, in ASCII."""
        self.out.write(json.dumps(value, indent=indent))

    def confirmed(self, question: str) -> bool:
        """Ask a question and return whether the answer is yes. The end of the input is a no."""
        self.err.write(_printable(question, self.err), ending="")
        self.err.flush()
        return sys.stdin.readline().strip().casefold() in {"y", "yes", _("yes").casefold()}

    def ask_each(self, aliases: Sequence[str], ask: Callable[[str], T]) -> dict[str, T]:
        """Call a function for each alias, and return the results. The errors of aliases that are down are collected in
        ``down`` instead."""
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

    def add_unreachable(self, alias: str, reasons: Sequence[str]) -> None:
        """Count an alias as down if a part of its store can't be reached, for these reasons."""
        if reasons:
            self.down[alias] = _("the result is incomplete: %s") % ", ".join(reasons)

    def code(self, found: object) -> int:
        """The exit code: ``DOWN`` if any alias is down, else ``OK`` if anything was found, else ``NO``."""
        return DOWN if self.down else OK if found else NO


def aliases_of(options: Options) -> list[str]:
    """The alias of the options, or all aliases.

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
    """The alias of the options, or the default one."""
    (alias,) = aliases_of({"alias": options["alias"] or "default"})
    return alias


def actor() -> str:
    """The user and host that run this command, as ``user@host``."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError, ImportError):  # a container's user without a name
        user = "?"
    return f"{user}@{socket.gethostname()}"


def has_terminal() -> bool:
    """Whether questions can be asked: the input is a terminal."""
    return sys.stdin is not None and sys.stdin.isatty()


def _write(out: Any, line: str) -> None:
    out.write(_printable(line, out))


def _printable(text: str, out: Any) -> str:
    """Escape the characters that the output's encoding doesn't have."""
    encoding = getattr(out, "encoding", None) or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


def errors_text(problems: Mapping[str, str]) -> str:
    """The errors of the aliases that are down, one line each."""
    return "\n".join(f"{distinct(alias)}: {distinct(problem)}" for alias, problem in problems.items())

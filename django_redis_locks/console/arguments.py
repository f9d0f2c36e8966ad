"""The verbs of ``manage.py redis_locks``, with their arguments and functions."""

from __future__ import annotations

from argparse import SUPPRESS, ArgumentTypeError
from collections.abc import Callable
from typing import Any

from django.utils.translation import gettext as _

from ..inspection import COLUMNS, STATES
from ..primitives.shared.fence_counter import LARGEST_FENCE
from .console import Console, Options
from .fences import fence
from .listing import list_, show, watch
from .releasing import release, release_dead
from .servers import ping, stats

VERBS: dict[str, Callable[[Console, Options], int]] = {
    "list": list_,
    "show": show,
    "release": release,
    "release-dead": release_dead,
    "watch": watch,
    "ping": ping,
    "stats": stats,
    "fence": fence,
}


def add(parser: Any) -> None:
    """Add the verbs and their arguments to the parser."""
    parser.description = _("Show which locks are held, and release them.")
    helps = {
        "list": _("Show the locks that are held."),
        "show": _("Show one lock."),
        "release": _("Release a lock, whichever process holds it."),
        "release-dead": _("Release the locks of processes of this machine that have ended."),
        "watch": _("Show the locks that are held, again and again until Ctrl-C."),
        "ping": _("Check whether each store answers."),
        "stats": _("Show the number of locks, and facts about their server."),
        "fence": _("Show the fence counters, or move them forward."),
    }
    verbs = parser.add_subparsers(dest="verb", required=True, metavar=_("VERB"))
    for verb in VERBS:
        verb_parser = verbs.add_parser(verb, help=helps[verb], description=helps[verb])
        _add_django_options(verb_parser)
        verb_parser.add_argument("--alias", default=None, help=_alias_help(verb))
        verb_parser.add_argument("--json", action="store_true", help=_("Print one JSON document."))
        _ADD_ARGUMENTS.get(verb, lambda parser: None)(verb_parser)


def _alias_help(verb: str) -> str:
    if verb in {"show", "release", "release-dead"}:
        return _("An alias of REDIS_LOCKS; by default it is 'default'.")
    return _("An alias of REDIS_LOCKS; by default all of them.")


def _add_django_options(parser: Any) -> None:
    """Add Django's options to the parser of a verb. Django's own parser accepts them only before the verb."""
    for option in ("--settings", "--pythonpath"):
        parser.add_argument(option, default=SUPPRESS, help=SUPPRESS)
    for option in ("--traceback", "--no-color", "--force-color"):
        parser.add_argument(option, action="store_true", default=SUPPRESS, help=SUPPRESS)
    parser.add_argument("-v", "--verbosity", type=int, choices=range(4), default=SUPPRESS, help=SUPPRESS)


def _add_key(parser: Any) -> None:
    parser.add_argument("key", help=_("The key of the lock, as a listing shows it."))


def _add_selection(parser: Any) -> None:
    parser.add_argument(
        "--match", default="", help=_("A part of the key, or a pattern for the whole key with * and ?.")
    )
    parser.add_argument("--state", choices=STATES, default="held", help=_("Which locks (default: %(default)s)."))
    orders = [order for column in COLUMNS for order in (column, f"-{column}")]
    parser.add_argument(
        "--order",
        choices=orders,
        default="lease_left",
        metavar="COLUMN",
        help=_("%(columns)s; with a minus in front the other way round: --order=-held_for.")
        % {"columns": ", ".join(COLUMNS)},
    )
    parser.add_argument(
        "--limit",
        type=_count,
        default=50,
        help=_("The largest number of locks to show of each alias (default: %(default)s)."),
    )


def _add_watch(parser: Any) -> None:
    _add_selection(parser)
    parser.add_argument(
        "--interval", type=_seconds, default=2.0, help=_("Seconds between two refreshes (default: %(default)s).")
    )


def _add_release(parser: Any) -> None:
    _add_key(parser)
    parser.add_argument(
        "--fence", type=_fence, default=None, help=_("Release the lock only if it is held with this fence.")
    )
    parser.add_argument("--reason", default="", help=_("The reason, for the log and the signal."))
    parser.add_argument("--yes", action="store_true", help=_("Don't ask for confirmation."))


def _add_release_dead(parser: Any) -> None:
    parser.add_argument("--yes", action="store_true", help=_("Don't ask for confirmation."))


def _add_fence(parser: Any) -> None:
    parser.add_argument(
        "--at-least", type=_fence, default=None, help=_("Move the counter forward to this number. It never goes back.")
    )
    parser.add_argument("--yes", action="store_true", help=_("Don't ask for confirmation."))


_ADD_ARGUMENTS: dict[str, Callable[[Any], None]] = {
    "list": _add_selection,
    "watch": _add_watch,
    "show": _add_key,
    "release": _add_release,
    "release-dead": _add_release_dead,
    "fence": _add_fence,
}


def _count(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) <= 1_000_000:
        raise ArgumentTypeError(_("%s isn't a number from 1 to 1000000") % repr(text))
    return int(text)


def _fence(text: str) -> int:
    if not text.isdecimal() or int(text) > LARGEST_FENCE:
        raise ArgumentTypeError(_("%s isn't a fence, which is a whole number of about 16 digits") % repr(text))
    return int(text)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.1 <= value <= 86_400:
        raise ArgumentTypeError(_("%s isn't a number of seconds from 0.1 to 86400") % repr(text))
    return value

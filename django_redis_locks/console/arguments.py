"""The arguments of ``manage.py redis_locks``, and the function of each verb."""

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
    parser.description = _("Show which locks are held, and free them.")
    helps = {
        "list": _("Show the locks that are held."),
        "show": _("Show one lock."),
        "release": _("Free a lock, whatever holds it."),
        "release-dead": _("Free what processes of this machine hold that don't run any more."),
        "watch": _("Show the locks that are held, again and again until Ctrl-C."),
        "ping": _("See whether each store answers."),
        "stats": _("Count the locks, and show what their server says."),
        "fence": _("Show how far the fences have got, or move them forward."),
    }
    verbs = parser.add_subparsers(dest="verb", required=True, metavar=_("VERB"))
    for verb in VERBS:
        one = verbs.add_parser(verb, help=helps[verb], description=helps[verb])
        _usual(one)
        one.add_argument("--alias", default=None, help=_of_aliases(verb))
        one.add_argument("--json", action="store_true", help=_("Answer with one JSON document."))
        _ADD.get(verb, lambda parser: None)(one)


def _of_aliases(verb: str) -> str:
    if verb in {"show", "release", "release-dead"}:
        return _("An alias of REDIS_LOCKS; by default it is 'default'.")
    return _("An alias of REDIS_LOCKS; by default all of them.")


def _usual(parser: Any) -> None:
    """Add Django's options to a verb. Its own parser takes them only before the verb."""
    for option in ("--settings", "--pythonpath"):
        parser.add_argument(option, default=SUPPRESS, help=SUPPRESS)
    for option in ("--traceback", "--no-color", "--force-color"):
        parser.add_argument(option, action="store_true", default=SUPPRESS, help=SUPPRESS)
    parser.add_argument("-v", "--verbosity", type=int, choices=range(4), default=SUPPRESS, help=SUPPRESS)


def _key(parser: Any) -> None:
    parser.add_argument("key", help=_("The key of the lock, as a listing shows it."))


def _choice(parser: Any) -> None:
    parser.add_argument("--match", default="", help=_("Part of the key; or all of it, with * and ?."))
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
        help=_("The most locks that are shown of each alias (default: %(default)s)."),
    )


def _of_watch(parser: Any) -> None:
    _choice(parser)
    parser.add_argument(
        "--interval", type=_seconds, default=2.0, help=_("Seconds from one to the next (default: %(default)s).")
    )


def _of_release(parser: Any) -> None:
    _key(parser)
    parser.add_argument("--fence", type=_fence, default=None, help=_("Free only the hold with this fence."))
    parser.add_argument("--reason", default="", help=_("Why, for the log and the signal."))
    parser.add_argument("--yes", action="store_true", help=_("Don't ask."))


def _of_release_dead(parser: Any) -> None:
    parser.add_argument("--yes", action="store_true", help=_("Don't ask."))


def _of_fence(parser: Any) -> None:
    parser.add_argument(
        "--at-least", type=_fence, default=None, help=_("Move the counter forward to this number. It never goes back.")
    )
    parser.add_argument("--yes", action="store_true", help=_("Don't ask."))


_ADD: dict[str, Callable[[Any], None]] = {
    "list": _choice,
    "watch": _of_watch,
    "show": _key,
    "release": _of_release,
    "release-dead": _of_release_dead,
    "fence": _of_fence,
}


def _count(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) <= 1_000_000:
        raise ArgumentTypeError(_("%s is no number from 1 to 1000000") % repr(text))
    return int(text)


def _fence(text: str) -> int:
    if not text.isdecimal() or int(text) > LARGEST_FENCE:
        raise ArgumentTypeError(_("%s is no fence: a whole number of some 16 digits") % repr(text))
    return int(text)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.1 <= value <= 86_400:
        raise ArgumentTypeError(_("%s is no number of seconds from 0.1 to 86400") % repr(text))
    return value

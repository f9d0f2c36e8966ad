"""``fence``: shows the fence counters, and raises them after a store was moved or restored."""

from __future__ import annotations

from typing import Final

from django.utils.translation import gettext as _

from .. import diagnosis
from ..core.server_info import FenceCounter
from ..core.text import distinct
from . import as_json
from .console import NO, Console, Options, UsageError, alias_of, aliases_of, has_terminal
from .text import span, table

MAX_UNCONFIRMED: Final = 86_400_000_000
"""A day in microseconds. A fence further ahead of the clock is probably a typing error, and needs a confirmation."""


def fence(console: Console, options: Options) -> int:
    """Raise the fence counters to ``at_least``, if given, and show them."""
    least = options["at_least"]
    if least is not None:
        return _raise(console, options, least)
    found = console.ask_each(aliases_of(options), diagnosis.fences)
    _show(console, found)
    return console.code(found)


def _raise(console: Console, options: Options, least: int) -> int:
    alias = alias_of(options)
    before = diagnosis.fences(alias)
    ahead = least - max(counter.clock for counter in before)
    if ahead > MAX_UNCONFIRMED and not options["yes"]:
        console.note(
            _("That is %s ahead of the server's clock. It can't be taken back: until then each fence is one more only.")
            % span(ahead / 1_000_000)
        )
        if console.json or not has_terminal():
            raise UsageError(
                _("There is no terminal to ask on: add --yes to do it without a question. Nothing was changed.")
            )
        if not console.confirmed(_("Move it so far? [y/N] ")):
            console.note(_("Nothing was changed."))
            return NO
    _show(console, {alias: diagnosis.raise_fences(least, alias)})
    return console.code(found=True)


def _show(console: Console, found: dict[str, list[FenceCounter]]) -> None:
    if console.json:
        answers = {alias: [as_json.of_counter(counter) for counter in each] for alias, each in found.items()}
        console.document({"aliases": {**answers, **as_json.errors(console.down)}})
    elif found:
        header = [_("ALIAS"), _("BUCKET"), _("LAST FENCE"), _("SERVER'S CLOCK"), _("NEXT FENCE")]
        rows = [_row(alias, counter) for alias, each in found.items() for counter in each]
        console.say(*table([header, *rows]))


def _row(alias: str, counter: FenceCounter) -> list[str]:
    numbers = counter.bucket, counter.last, counter.clock, counter.next
    return [distinct(alias), *map(str, numbers)]

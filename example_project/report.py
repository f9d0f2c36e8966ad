"""Evaluates the results: the tables, and the failures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

COLUMNS = ("form", "requests", "sold", "stock left", "oversold", "p50 ms", "p99 ms", "409s")
GAP = "   "
VISITS_COLUMNS = ("report by", "visitors", "made", "p50 ms", "p99 ms")
VISITS_WIDTH = 25
SETTLED = {200, 409, 410}


@dataclass(frozen=True)
class Outcome:
    """The result of one form: the responses to the buyers, and the state of the database."""

    form: str
    supply: int
    sold: int  # orders in the database
    left: int
    finals: Sequence[int]  # the last response to each buyer
    statuses: Sequence[int]  # all responses
    seconds: Sequence[float]

    @property
    def oversold(self) -> int:
        return max(0, self.sold - self.supply)

    @property
    def refused(self) -> int:
        return self.statuses.count(409)

    def row(self) -> tuple[str, ...]:
        p50, p99 = (f"{1000 * percentile(self.seconds, share):.0f}" for share in (0.5, 0.99))
        numbers = (len(self.statuses), self.sold, self.left, self.oversold)
        return (self.form, *map(str, numbers), p50, p99, str(self.refused))


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that so large a share doesn't exceed; 0 of nothing."""
    ranked = sorted(values)
    return ranked[max(0, math.ceil(share * len(ranked)) - 1)] if ranked else 0.0


def heading() -> str:
    return _line(COLUMNS)


def line(outcome: Outcome) -> str:
    return _line(outcome.row())


def _line(cells: Sequence[str]) -> str:
    first, *numbers = cells
    return GAP.join([first.ljust(7), *(cell.rjust(len(name)) for cell, name in zip(numbers, COLUMNS[1:], strict=True))])


def explanation(naive: Outcome, locked: Outcome, waiting: Outcome) -> str:
    """Two sentences."""
    return (
        f"Naive checkouts that overlap read the same stock and write back the same number, so {naive.sold} buyers paid "
        f"for {naive.supply} items; in the locked form one checkout of the product runs at a time in all processes, the "
        f"{locked.refused} other requests got 409 with a Retry-After, and exactly {locked.sold} "
        f"items were sold. With wait=10 each of the {len(waiting.statuses)} requests waited for its turn, woken when the "
        f"lock was free, and {waiting.refused or 'none'} got 409."
    )


def failures(naive: Outcome, locked: Outcome, waiting: Outcome) -> list[str]:
    """What isn't as it must be; nothing, if the demo has shown what it promises."""
    found = _not_as_promised(naive, locked, waiting)
    if not locked.refused:
        found.append("The locked form refused no request: no lock was at work.")
    if waiting.refused:
        found.append(f"The waiting form refused {waiting.refused} requests.")
    return found


def commit_explanation(by_hand: Outcome, in_block: Outcome, waiting: Outcome) -> str:
    """Two sentences."""
    return (
        f"With ATOMIC_REQUESTS a decorator around redis-py's lock frees it before COMMIT, so that the next buyer may read "
        f'the stock of before: {by_hand.sold} buyers paid for {by_hand.supply} items. A lock object with hold="transaction" and '
        f"@redis_lock are free after COMMIT, and exactly {in_block.sold} and {waiting.sold} items were sold."
    )


def commit_failures(by_hand: Outcome, *right: Outcome) -> list[str]:
    """As `failures`, of the forms that differ at COMMIT."""
    return _not_as_promised(by_hand, *right)


def _not_as_promised(wrong: Outcome, *right: Outcome) -> list[str]:
    found = []
    if not wrong.oversold:
        found.append(f"The {wrong.form} form sold {wrong.sold} of {wrong.supply}: its race didn't show.")
    for outcome in right:
        if outcome.sold != outcome.supply:
            found.append(f"The {outcome.form} form sold {outcome.sold} of {outcome.supply}.")
        if outcome.left != 0:
            found.append(f"The {outcome.form} form left a stock of {outcome.left}.")
    for outcome in (wrong, *right):
        odd = [status for status in outcome.finals if status not in SETTLED]
        if odd:
            kinds = ", ".join(f"{odd.count(status)} x {status or 'no answer'}" for status in sorted(set(odd)))
            found.append(f"Buyers of the {outcome.form} form ended without 200, 409 or 410: {kinds}.")
        confirmed = outcome.finals.count(200)
        if confirmed != outcome.sold:
            found.append(f"The {outcome.form} form confirmed {confirmed} purchases, and made {outcome.sold} orders.")
    return found


# A crowd on the report


@dataclass(frozen=True)
class Visits:
    """One form after its crowd."""

    form: str
    made: int  # how often the report was made for them
    statuses: Sequence[int]
    seconds: Sequence[float]

    def row(self) -> tuple[str, ...]:
        p50, p99 = (f"{1000 * percentile(self.seconds, share):.0f}" for share in (0.5, 0.99))
        return (self.form, str(len(self.statuses)), str(self.made), p50, p99)


def visits_heading() -> str:
    return _visits_line(VISITS_COLUMNS)


def visits_line(visits: Visits) -> str:
    return _visits_line(visits.row())


def _visits_line(cells: Sequence[str]) -> str:
    first, *numbers = cells
    names = VISITS_COLUMNS[1:]
    return GAP.join(
        [first.ljust(VISITS_WIDTH), *(cell.rjust(len(name)) for cell, name in zip(numbers, names, strict=True))]
    )


def visits_explanation(plain: Visits, expired: Visits, none: Visits) -> str:
    """Two sentences."""
    return (
        f"When the report had expired, {plain.made} of {len(plain.statuses)} visitors made a new one with Django's "
        f"get_or_set; with get_or_load {_times(expired.made)} was made, while everybody got the one of before. Where there "
        f"was none yet, {_times(none.made)} was made too, and all waited for it."
    )


def _times(number: int) -> str:
    return "one" if number == 1 else str(number)


def visits_failures(plain: Visits, *guarded: Visits) -> list[str]:
    """What isn't as it must be; nothing, if the demo has shown what it promises."""
    found = []
    if plain.made < 2:
        found.append(f"With {plain.form} the report was made {plain.made} times: its stampede didn't show.")
    found += [
        f"With {visits.form} the report was made {visits.made} times, and not once."
        for visits in guarded
        if visits.made != 1
    ]
    for visits in (plain, *guarded):
        odd = [status for status in visits.statuses if status != 200]
        if odd:
            found.append(f"With {visits.form} {len(odd)} visitors got no report: {sorted(set(odd))}.")
    return found

"""Formats text for a terminal: column widths, tables, durations, sizes, states."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from unicodedata import category, east_asian_width

from django.utils.translation import gettext as _

ELLIPSIS = "…"


def width(text: str) -> int:
    """The columns that a text takes: two for a wide character, none for a combining one."""
    return sum(map(_width, text))


def _width(char: str) -> int:
    if category(char) in {"Mn", "Me"}:
        return 0
    return 2 if east_asian_width(char) in "WF" else 1


def cut(text: str, columns: int) -> str:
    """The text, shortened to this number of columns."""
    if width(text) <= columns:
        return text
    taken = 0
    for place, char in enumerate(text):
        taken += _width(char)
        if taken > columns - 1:
            return text[:place] + ELLIPSIS
    return text


def table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """The lines of a table with aligned columns."""
    widths = [max(map(width, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell + " " * (wide - width(cell)) for cell, wide in zip(row, widths, strict=True))
        yield "  ".join(cells).rstrip(" ")


def pairs(rows: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Indented lines, each with a name and a value."""
    return table([["", *line] for line in rows])


def span(seconds: float) -> str:
    """A duration in its largest units: 0.3 s, 12 s, 3 m 05 s, 2 h 03 m, 4 d 2 h."""
    if seconds <= -0.05:
        return f"-{span(-seconds)}"
    seconds = abs(seconds)
    if round(seconds, 1) < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} m {rest:02} s"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours} h {minutes:02} m"
    return f"{hours // 24} d {hours % 24} h"


def bytes_of(number: int) -> str:
    """A number of bytes with a unit: 512 B, 1.5 MiB."""
    size = float(number)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def states() -> dict[str, str]:
    """The translated name of each state."""
    return {
        "held": _("held"),
        "overdue": _("overdue"),
        "expired": _("expired"),
        "queued": _("queued"),
        "done": _("done"),
        "closed": _("closed"),
        "open": _("open"),
        "free": _("free"),
        "foreign": _("no lock"),
        "unclear": _("unclear"),
    }

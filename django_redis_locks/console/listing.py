"""``list``, ``watch`` and ``show``: show locks."""

from __future__ import annotations

import shutil
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from .. import diagnosis, inspection
from ..core.text import distinct
from ..topology_text import describe
from . import as_json
from .console import NO, OK, Console, Options, alias_of, aliases_of, errors_text
from .text import cut, pairs, span, states, table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..core.holder import Holder
    from ..inspection import LockInfo, Page

_CLEAR = "\x1b[H\x1b[2J"


def list_(console: Console, options: Options) -> int:
    """Show the locks of one alias, or of all."""
    pages = _read(console, options)
    if console.json:
        console.document(as_json.of_pages(pages, console.down))
    else:
        console.say(*_lines(pages))
    for alias, page in pages.items():
        if not page.indexed:
            console.note(_("%s keeps no index (INDEX is False): its locks aren't listed.") % distinct(alias))
        if diagnosis.is_per_process(alias):
            console.note(_("%s keeps its locks in the memory of each process: these are this one's.") % distinct(alias))
    return console.code(any(page.rows for page in pages.values()))


def watch(console: Console, options: Options) -> int:
    """Show the locks repeatedly until Ctrl-C. With ``json``, one document per line."""
    aliases_of(options)  # raises at once for an unknown alias
    pause = threading.Event()
    try:
        while True:
            pages = _read(console, options)
            if console.json:
                console.document(as_json.of_pages(pages, console.down), indent=None)
            else:
                console.say(_frame(console, pages))
            console.out.flush()
            pause.wait(options["interval"])
    except KeyboardInterrupt:
        return OK


def show(console: Console, options: Options) -> int:
    """Show one lock, held or free."""
    info = inspection.find(options["key"], alias_of(options))
    if console.json:
        console.document(as_json.of_lock(info) | {"store": as_json.of_store(info.alias, info.key)})
    else:
        console.say(*described(info))
    return NO if info.state == "free" else OK


def described(info: LockInfo) -> Iterator[str]:
    """The lines that describe a lock, one for each known property."""
    yield distinct(info.key)
    rows = [
        (_("alias"), distinct(info.alias)),
        (_("store"), distinct(describe(diagnosis.topology(info.alias, info.key)))),
        (_("name"), distinct(info.name)),
        (_("kind"), distinct(info.kind)),
        (_("in the log"), info.digest),
        (_("state"), states()[info.state]),
    ]
    if info.task_id is not None:
        rows.append((_("task"), distinct(info.task_id)))
    if info.foreign:
        rows.append((_("found"), distinct(info.foreign)))
    if info.left is not None:
        rows.append((_("left to count down"), str(info.left)))
    if info.limit is not None:
        rows.append((_("limit"), str(info.limit)))
    if info.has_permits:
        rows += [(_("holder"), _described_holder(info, holder)) for holder in info.holders]
    else:
        rows += _described_hold(info)
    rows.append((_("waiting"), str(info.waiting)))
    yield from pairs(rows)


def _described_hold(info: LockInfo) -> Iterator[tuple[str, str]]:
    """The lines about the only hold, or about the state of a record."""
    if info.holder is not None:
        yield _("holder"), distinct(str(info.holder))
    if info.since is not None:
        yield _("since"), info.since.isoformat(sep=" ", timespec="seconds")
        yield _("for") if info.holder is None else _("held for"), _span(info.held_for)
    if info.lease_left is not None:
        yield _("lease left"), _span(info.lease_left)
    if info.fence is not None:
        yield _("fence"), str(info.fence)


def _described_holder(info: LockInfo, holder: Holder) -> str:
    """One of several holders."""
    text = _("%(holder)s, fence %(fence)d, permits %(permits)s, held for %(held_for)s, lease left %(left)s")
    return text % {
        "holder": distinct(str(holder)),
        "fence": holder.fence,
        "permits": _("all") if holder.has_all_permits else holder.permits,
        "held_for": _span(info.seconds_held(holder)),
        "left": _span(holder.lease_left),
    }


def _read(console: Console, options: Options) -> dict[str, Page]:
    pages = console.ask_each(aliases_of(options), lambda alias: _all_of(alias, options))
    for alias, page in pages.items():
        console.add_unreachable(alias, page.unreachable)
    return pages


def _all_of(alias: str, options: Options) -> Page:
    """Read ``limit`` locks, from as many pages as needed."""
    left = options["limit"]
    chosen: dict[str, Any] = {name: options[name] for name in ("match", "state", "order")}
    page = inspection.held(alias, **chosen, limit=min(left, inspection.LONGEST_PAGE))
    rows, unreachable = page.rows, dict.fromkeys(page.unreachable)
    while page.next is not None and page.next < options["limit"]:
        left = options["limit"] - page.next
        page = inspection.held(alias, **chosen, limit=min(left, inspection.LONGEST_PAGE), cursor=page.next)
        rows += page.rows
        unreachable |= dict.fromkeys(page.unreachable)
    return replace(page, rows=rows, unreachable=tuple(unreachable))


def _lines(pages: Mapping[str, Page]) -> Iterator[str]:
    rows = [row for page in pages.values() for row in page.rows]
    total = sum(page.total for page in pages.values())
    if rows:
        header = [
            _("ALIAS"),
            _("KEY"),
            _("STATE"),
            _("HOLDER"),
            _("HELD FOR"),
            _("LEASE LEFT"),
            _("FENCE"),
            _("WAITING"),
        ]
        cells = [header, *map(_cells, rows)]
        if any(row.task_id is not None for row in rows):
            tasks = [_("TASK"), *(distinct(row.task_id or "") for row in rows)]
            cells = [[*line, task] for line, task in zip(cells, tasks, strict=True)]
        yield from table(cells)
        yield ""
    count = ngettext("%d lock", "%d locks", total) % total
    more = total > len(rows) and bool(rows)
    least = _("at least %s") % count if any(page.partial for page in pages.values()) else count
    yield _("%(shown)d of %(total)s") % {"shown": len(rows), "total": least} if more else least
    for alias, page in pages.items():
        yield distinct(f"{alias}: {describe(diagnosis.topology(alias), len(page.unreachable))}")


def _cells(row: LockInfo) -> list[str]:
    others = len(row.holders) - 1
    holder = "" if row.holder is None else distinct(str(row.holder))
    return [
        distinct(row.alias),
        distinct(row.key),
        states()[row.state],
        (f"{holder} (+{others})" if others > 0 else holder) or distinct(row.foreign),
        _span(row.held_for),
        _span(row.lease_left),
        str(row.fence or ""),
        str(row.waiting or ""),
    ]


def _span(seconds: float | None) -> str:
    return "" if seconds is None else span(seconds)


def _frame(console: Console, pages: Mapping[str, Page]) -> str:
    """The output of one refresh: on a terminal a cleared and filled screen, otherwise a paragraph."""
    lines = [*_lines(pages), *errors_text(console.down).splitlines()]
    if not console.out.isatty():
        return "\n".join([*lines, "", ""])
    columns, rows = shutil.get_terminal_size()
    if len(lines) >= rows:
        lines = [*lines[: rows - 2], "…"]
    return _CLEAR + "\n".join(cut(line, columns) for line in lines)

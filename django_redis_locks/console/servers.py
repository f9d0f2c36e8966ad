"""``ping`` and ``stats``: show the servers, and the numbers of locks."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from django.utils.translation import gettext as _

from .. import diagnosis, inspection
from ..core.server_info import MEMORY
from ..core.text import distinct
from ..topology_text import describe
from . import as_json
from .console import Console, Options, aliases_of
from .text import bytes_of, pairs, span, table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..core.server_info import Facts
    from ..inspection import Counts


class _Stats(NamedTuple):
    counts: Counts
    facts: Facts


def ping(console: Console, options: Options) -> int:
    """Show whether each server answers, and how fast."""
    found = console.ask_each(aliases_of(options), diagnosis.facts)
    for alias, facts in found.items():
        console.add_unreachable(alias, facts.unreachable)
    if console.json:
        shown = ("server", "version", "address", "node", "round_trip", "role")
        answers = {
            alias: {name: value for name, value in as_json.of_facts(facts).items() if name in shown}
            for alias, facts in found.items()
        }
        console.document({"aliases": as_json.errors(console.down) | answers})
    elif found:
        header = [_("ALIAS"), _("ANSWER"), _("SERVER"), _("ROLE"), _("ADDRESS")]
        rows = [_ping_row(alias, one) for alias, facts in found.items() for one in facts.members or (facts,)]
        console.say(*table([header, *rows]))
    return console.code(found)


def stats(console: Console, options: Options) -> int:
    """Show the number of locks of each alias, and the facts about its server that matter to locks."""
    found = console.ask_each(
        aliases_of(options), lambda alias: _Stats(inspection.counts(alias), diagnosis.facts(alias))
    )
    for alias, stats in found.items():
        console.add_unreachable(alias, stats.counts.unreachable or stats.facts.unreachable)
    if console.json:
        answers = {
            alias: {
                "held": stats.counts.held,
                "expired": stats.counts.expired,
                "queued": stats.counts.queued,
                "unreachable": stats.counts.unreachable,
                "store": as_json.of_store(alias),
                "server": as_json.of_facts(stats.facts),
            }
            for alias, stats in found.items()
        }
        console.document({"aliases": as_json.errors(console.down) | answers})
    else:
        for alias, stats in found.items():
            store = describe(diagnosis.topology(alias), len(stats.counts.unreachable or stats.facts.unreachable))
            console.say(distinct(alias), *pairs([(_("store"), distinct(store)), *_lines_of(stats)]), "")
    return console.code(found)


def _ping_row(alias: str, facts: Facts) -> list[str]:
    return [
        distinct(alias),
        f"{facts.round_trip * 1000:.1f} ms",
        distinct(f"{facts.server} {facts.version}".strip()),
        facts.role,
        distinct(facts.name),
    ]


def _lines_of(stats: _Stats) -> list[tuple[str, str]]:
    counts, facts = stats
    lines = [
        (_("held"), str(counts.held)),
        (_("expired within the last hour"), str(counts.expired)),
        (_("queued"), str(counts.queued)),
    ]
    if facts.server == MEMORY:
        return lines
    servers = facts.members or (facts,)
    by_server = [dict(_lines_of_server(server)) for server in servers]
    for name in dict.fromkeys(name for found in by_server for name in found):
        texts = [found.get(name, "?") for found in by_server]
        if len(set(texts)) == 1:
            lines.append((name, texts[0]))
        else:
            lines += [(name, f"{distinct(one.name)}: {text}") for one, text in zip(servers, texts, strict=True)]
    return lines


def _lines_of_server(facts: Facts) -> Iterator[tuple[str, str]]:
    """What is known about one server."""
    yield _("server"), distinct(f"{facts.server} {facts.version}, {facts.role}, {facts.name}")
    if facts.uptime is not None:
        yield _("uptime"), span(facts.uptime)
    if facts.memory is not None:
        most = bytes_of(facts.most_memory) if facts.most_memory else _("no limit")
        yield _("memory"), f"{bytes_of(facts.memory)} / {most}"
    if facts.policy:
        yield _("eviction policy"), distinct(facts.policy)
    if facts.evicted is not None:
        yield _("evicted keys"), str(facts.evicted)
    if facts.appends is not None:
        yield _("persistence"), distinct(_persistence(facts))
    if facts.clients is not None:
        yield _("clients"), f"{facts.clients} / {facts.most_clients or '?'}"
    if facts.ahead is not None:
        yield _("its clock is ahead by"), span(facts.ahead)
    if facts.denied:
        yield _("denied"), distinct(" ".join(facts.denied))


def _persistence(facts: Facts) -> str:
    if facts.appends:
        return f"appendonly yes, appendfsync {facts.syncs or '?'}"
    return "appendonly no, " + {True: _("snapshots"), False: _("nothing"), None: "?"}[facts.saves]

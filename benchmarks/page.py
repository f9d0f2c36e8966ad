"""The generated parts of docs/explain/performance.md and docs/reference/benchmarks.md.

Each part is between two comments. The text around them isn't changed.

<!-- benchmark: row hot -->
...
<!-- benchmark: end -->
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from .bench import Case
from .budgets import Verdict
from .tables import cells, failure_notes, markdown, shown, view

PART = re.compile(r"(<!-- benchmark: (?!end)([\w ]+) -->\n).*?(<!-- benchmark: end -->)", re.DOTALL)


def fill(page: str, parts: Mapping[str, str]) -> str:
    """Replace parts of a page. Raise ValueError for a part that the page has no comments for."""
    places = {match[2] for match in PART.finditer(page)}
    if missing := set(parts) - places:
        raise ValueError(f"The page has no place for: {', '.join(sorted(missing))}")
    return PART.sub(lambda match: f"{match[1]}{parts.get(match[2], _inside(match))}{match[3]}", page)


def _inside(match: re.Match[str]) -> str:
    return match[0][len(match[1]) : -len(match[3])]


def row(cases: list[Case]) -> str:
    """All tables of one row."""
    found = []
    for case in cases:
        notes = "".join(f"\n{note}\n" for note in failure_notes(case))
        found.append(f"\n{view(case).caption} ({placed(case)}):\n\n{markdown(cells(case))}\n{notes}")
    return "".join(found) + "\n"


def placed(case: Case) -> str:
    return {"same": "one core", "split": "two cores", "none": "not pinned"}[case.placement]


def budgets(verdicts: list[Verdict]) -> str:
    lines = [["row", "promise", "budget", "measured", ""]]
    for verdict in verdicts:
        budget = verdict.budget
        limit = f"{'≥' if budget.at_least else '≤'} {budget.limit:g}"
        answer = "met" if verdict.passed else "**not met**" if verdict.measured else "**not measured**"
        lines.append([budget.row, budget.promise, limit, shown(verdict.value, budget.digits, ""), answer])
    heading, *rest = lines
    return (
        "\n"
        + "\n".join("| " + " | ".join(line) + " |" for line in [heading, ["---"] * 2 + ["---:"] * 2 + ["---"], *rest])
        + "\n\n"
    )


def machine(facts: list[tuple[str, str]]) -> str:
    lines = [["", ""], ["---", "---"], *map(list, facts)]
    return "\n" + "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n\n"

"""Writes docs/reference/hard-cases.md: all hard cases in the docstrings of tests, with a sentence and a test.

A test names its cases at the beginning of its docstring, as in ``[L13] [H21] ...``. The sentence of a case is the name
of the test with the fewest other cases.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "reference" / "hard-cases.md"

GROUPS = {
    "F": "Features of locks",
    "L": "Faults of servers, networks and processes",
    "H": "Waiters, wake-ups, threads and forks",
    "E": "Connections, clocks and event loops",
    "M": "Numbers of requests",
    "X": "Resources",
    "D": "Django: views, transactions, settings, checks, admin",
    "S": "Caches: stale values, invalidation, pages",
    "V": "Caches: one load for many callers",
    "C": "Celery",
    "K": "Celery: keys and duplicates",
}
"""The groups of cases by first letter, in the order of the page."""

HEAD = """\
# Hard cases

The cases that a lock, a cache load or a job must survive, and where each is tested. A test names its cases by number at
the beginning of its docstring: `grep -rn "\\[L13\\]" tests` finds all tests of one. `make hard-cases` writes this page.
"""


class Test(NamedTuple):
    path: str
    name: str
    cases: tuple[str, ...]

    @property
    def sentence(self) -> str:
        words = re.sub(r"(?<![A-Z])_|_(?![A-Z])", " ", self.name.removeprefix("test_"))
        return f"{words[0].upper()}{words[1:]}."


def tests() -> Iterator[Test]:
    """All tests with case numbers in their docstrings."""
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                cases = re.match(r"(?:\[[A-Z]\d+\]\s*)*", ast.get_docstring(node) or "")
                if found := re.findall(r"\w+", cases[0] if cases else ""):
                    yield Test(path.relative_to(ROOT).as_posix(), node.name, tuple(found))


def by_case() -> dict[str, list[Test]]:
    """The tests of each case, those with the fewest other cases first."""
    found: dict[str, list[Test]] = {}
    for test in tests():
        for case in test.cases:
            found.setdefault(case, []).append(test)
    for named in found.values():
        named.sort(key=lambda test: (len(test.cases), test))
    return found


def page() -> str:
    found = by_case()
    lines = [HEAD]
    for letter, title in GROUPS.items():
        lines += [f"## {title}\n", "| number | case | test | tests |", "|---|---|---|---:|"]
        for case in sorted((case for case in found if case[0] == letter), key=lambda case: int(case[1:])):
            best = found[case][0]
            lines.append(f"| {case} | {best.sentence} | [{best.path}](../../{best.path}) | {len(found[case])} |")
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")

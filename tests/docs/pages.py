"""The pages of the documentation: their blocks of code, their tables, and the lines of the public API for comparison.

A Python block is run if a comment such as `<!-- test: name -->` stands right above it, and every block has one. Blocks of one
name and page are one example: they share their namespace, one after the other. A name with a dot is a module: the next
blocks can import it.
"""

from __future__ import annotations

import itertools
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tools.public_api import FILE, ROOT

DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]


class Block(NamedTuple):
    page: Path
    line: int
    language: str
    name: str | None
    code: str


def blocks_of(page: Path) -> Iterator[Block]:
    text = page.read_text()
    fences = r"^(?:[ ]*<!-- test: (?P<name>[\w.-]+) -->\n)?(?P<indent>[ ]*)```(?P<language>\w*)\n(?P<code>.*?)^[ ]*```$"
    for match in re.finditer(fences, text, re.MULTILINE | re.DOTALL):
        line = text[: match.start("code")].count("\n")
        yield Block(page, line, match["language"], match["name"], textwrap.dedent(match["code"]))


BLOCKS = [block for page in PAGES for block in blocks_of(page)]


def page_id(page: Path) -> str:
    return str(page.relative_to(DOCS if page.is_relative_to(DOCS) else ROOT).with_suffix(""))


def examples() -> dict[str, list[Block]]:
    found: dict[str, list[Block]] = {}
    for block in BLOCKS:
        if block.language == "python" and block.name is not None:
            name = block.name.partition(".")[0]
            found.setdefault(f"{page_id(block.page)}:{name}", []).append(block)
    return found


EXAMPLES = examples()
"""Blocks that belong together, by page and name."""


def text_of(page: str) -> str:
    return (DOCS / page).read_text()


def without_code(page: Path) -> str:
    return re.sub(r"^[ ]*```.*?^[ ]*```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    found: set[str] = set()
    for heading in re.findall(r"^#+ (.+)$", without_code(page), re.MULTILINE):
        slug = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        numbered = (f"{slug}-{number}" for number in itertools.count(1))
        found.add(next(name for name in itertools.chain([slug], numbered) if name not in found))
    return found


def rows(page: str, *, first: str, after: str = "") -> dict[str, list[str]]:
    """The tables of a page, or those after a text: the cells of each row, by the code in its first cell, if it matches."""
    found: dict[str, list[str]] = {}
    for line in text_of(page)[text_of(page).index(after) :].splitlines():
        if line.startswith("|"):
            cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            for code in re.findall(r"`([^`]+)`", cells[0]):
                if re.fullmatch(first, code):
                    found.setdefault(code, cells)
    return found


def public(pattern: str) -> dict[str, str]:
    """The lines of `tests/public_api.txt` that match the pattern: the rest of each line, by the first group of its match."""
    lines = FILE.read_text(encoding="utf-8").splitlines()
    found = [(match[1], line[match.end() :]) for line in lines if (match := re.match(pattern, line))]
    assert found, pattern
    return dict(found)

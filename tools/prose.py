"""Lists lines of prose with words for persons as subject, or with imprecise words.

    python -m tools.prose            # prints the lines, and fails if there are more than allowed

A sentence of this project is about a component: "the waiter", "the process", "the caller". CONTRIBUTING.md has the
rules.
"""

from __future__ import annotations

import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent

WORDS: Final = re.compile(
    r"\b(who|whoever|whose|whom|nobody|somebody|he|his|him|himself|told|anew|so many|by the way|meanwhile)\b",
    re.IGNORECASE,
)

SOURCES: Final = ("django_redis_locks", "celery_locks")
DOCS: Final = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "docs")
MOST: Final = 60
"""The number of such lines that the sources, and the docs, may have."""


def prose_of(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of prose in a file, with numbers. In Python: comments and strings of several words."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        yield from enumerate(text.splitlines(), 1)
        return
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT or (token.type == tokenize.STRING and " " in token.string):
            yield from enumerate(token.string.splitlines(), token.start[0])


def found_in(roots: tuple[str, ...], root: Path = ROOT) -> list[str]:
    """The lines with one of the words, each as ``path:number: line``."""
    files = [
        file
        for name in roots
        for file in ([root / name] if (root / name).is_file() else sorted((root / name).rglob("*")))
        if file.suffix in {".py", ".lua", ".html", ".md"}
    ]
    return [
        f"{file.relative_to(root)}:{number}: {line.strip()}"
        for file in files
        for number, line in prose_of(file)
        if WORDS.search(line)
    ]


def main() -> int:
    """Print the lines if there are too many. Return the exit code."""
    failed = False
    for roots in (SOURCES, DOCS):
        lines = found_in(roots)
        if len(lines) > MOST:
            failed = True
            print(*lines, sep="\n")
            print(f"{len(lines)} lines in {', '.join(roots)}; {MOST} are allowed: name the component instead")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())

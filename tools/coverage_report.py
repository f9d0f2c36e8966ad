"""Prints the branch coverage of each folder of the packages, from the data that ``make coverage`` has collected."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from pathlib import Path
from typing import Final

import coverage

ROOT: Final = Path(__file__).parent.parent
REPORT: Final = ROOT / ".cache" / "coverage.json"


def by_folder(files: dict[str, dict[str, dict[str, int]]]) -> dict[str, Counter[str]]:
    """The sums of the counts of the files in each folder."""
    folders: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for file, about in files.items():
        folders[Path(file).parent.as_posix()].update({name: about["summary"][name] for name in COUNTS})
    return dict(sorted(folders.items()))


COUNTS: Final = ("num_statements", "covered_lines", "num_branches", "covered_branches")


def main() -> None:
    """Print a line for each folder, and one for all."""
    measured = coverage.Coverage()
    measured.load()
    REPORT.parent.mkdir(exist_ok=True)
    measured.json_report(outfile=str(REPORT))
    folders = by_folder(json.loads(REPORT.read_text(encoding="utf-8"))["files"])
    print(f"{'folder':45} {'statements':>12} {'branches':>12}")
    for folder, counts in [*folders.items(), ("all", sum(folders.values(), Counter()))]:
        statements, lines, branches, taken = (counts[name] for name in COUNTS)
        print(f"{folder:45} {lines / max(1, statements):12.1%} {taken / branches if branches else 1:12.1%}")


if __name__ == "__main__":
    main()

"""Django's own cache tests, run twice: with the plain caches, and with each of them wrapped by ours.

    python -m tools.django_cache_tests                    both, and what the wrapped ones don't pass
    python -m tools.django_cache_tests Redis test_incr    only tests whose name has one of these words

Whatever the plain caches pass the wrapped ones must pass too, but for the tests that a file names, each with its reason.
The tests are those of the installed Django. They need a Redis server, which is started here, and memcached, too, if the
machine has it; else its tests skip themselves.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Self

from .django_sdist import ROOT, TestsNotFound, django_tests
from .memcached_server import Memcached
from .processes import ServerNotFound, last_lines
from .redis_server import RedisServer

SKIPS = ROOT / "tests" / "cache" / "django_skips.txt"
WRAPPER = "django_redis_locks.cache.StampedeCache"
LIMIT = 300.0
"""Seconds after which a run hangs. It takes about twenty."""

PARTS = 8
"""The processes of a run: as many as classes that take long."""

Outcomes = Mapping[str, str]
"""By test: "passed", "skipped: why", or what went wrong."""


@dataclass(frozen=True)
class Comparison:
    """What came of both runs."""

    passed: Sequence[str]
    """By both."""
    excused: Mapping[str, str]
    """Not by the wrapped one, for a reason that the file tells."""
    broken: Mapping[str, str]
    """By the plain one only, and nothing excuses it."""
    stale: Sequence[str]
    """Lines of the file that excuse nothing: the test passes, or isn't there."""
    plain_trouble: Mapping[str, str] = field(default_factory=dict)
    """What fails without us."""

    @property
    def good(self) -> bool:
        return bool(self.passed) and not self.broken and not self.stale and not self.plain_trouble


def read_skips(text: str) -> dict[str, str]:
    """Lines `pattern: reason`; a pattern may have stars, and `#` begins a comment."""
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.lstrip().startswith("#"):
            pattern, colon, reason = line.partition(": ")
            if not colon or not reason.strip():
                raise ValueError(f"Line {number} has no reason: {line!r}. Write `test: reason`.")
            found[pattern.strip()] = reason.strip()
    return found


def compare(plain: Outcomes, wrapped: Outcomes, skips: Mapping[str, str], *, narrowed: bool = False) -> Comparison:
    """`narrowed`: only some tests were run, so that a line which excuses nothing is no news."""
    passed, excused, broken = [], {}, {}
    used = set()
    for test in [test for test, outcome in plain.items() if outcome == "passed"]:
        outcome = wrapped.get(test, "wasn't run")
        if outcome == "passed":
            passed.append(test)
            continue
        pattern = next((pattern for pattern in skips if fnmatchcase(test, pattern)), None)
        if pattern is None:
            broken[test] = outcome
        else:
            used.add(pattern)
            excused[test] = skips[pattern]
    trouble = {test: out for test, out in plain.items() if out != "passed" and not out.startswith("skipped")}
    stale = [] if narrowed else [pattern for pattern in skips if pattern not in used]
    return Comparison(passed, excused, broken, stale, trouble)


def run(words: Iterable[str] = (), *, wrapper: str = WRAPPER, skips: Path = SKIPS) -> Comparison:
    """Both runs at once, each in several processes: nearly all of their time is waiting for values to expire."""
    words = list(words)
    parts = 1 if words else PARTS
    excuses = read_skips(skips.read_text(encoding="utf-8"))
    tests = django_tests()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="django-tests-")))
        plain, wrapped = [
            [
                stack.enter_context(_Part(side, f"{part}/{parts}", server, memcached, tests, folder, words))
                for part in range(parts)
            ]
            for side in ("", wrapper)
            for server in [stack.enter_context(RedisServer())]
            for memcached in [_memcached(stack)]
        ]
        return compare(_outcomes(plain), _outcomes(wrapped), excuses, narrowed=bool(words))


def _memcached(stack: ExitStack) -> str:
    try:
        return stack.enter_context(Memcached()).address
    except ServerNotFound:
        return ""


class _Part:
    """One process with some classes of one run."""

    def __init__(
        self,
        wrapper: str,
        part: str,
        server: RedisServer,
        memcached: str,
        tests: Path,
        folder: Path,
        words: Sequence[str],
    ) -> None:
        name = f"{'wrapped' if wrapper else 'plain'}-{part.partition('/')[0]}"
        self.report = folder / f"{name}.json"
        self.log = folder / f"{name}.log"
        values = server.url().removesuffix("/0")  # one of the tests names its database apart from the URL
        locks = server.url(
            int(part.partition("/")[0]) + 1
        )  # keys of two processes are the same, and their values aren't
        command = [sys.executable, "-m", "tools.django_cache_tests_run", str(tests), str(self.report)]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [*command, values, locks, memcached, wrapper, part, *words],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.process.kill()
        self.process.wait()

    def outcomes(self) -> Outcomes:
        try:
            self.process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"The run {self.report.stem} hangs:\n{last_lines(self.log, 40)}") from None
        if not self.report.exists():
            raise RuntimeError(f"The run {self.report.stem} died:\n{last_lines(self.log, 40)}")
        outcomes: dict[str, str] = json.loads(self.report.read_text())
        return outcomes


def _outcomes(parts: Iterable[_Part]) -> Outcomes:
    return {test: outcome for part in parts for test, outcome in part.outcomes().items()}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.django_cache_tests", description="Django's own cache tests")
    parser.add_argument("words", nargs="*", help="run only tests whose name has one of these words")
    parser.add_argument("--wrapper", default=WRAPPER, help="the dotted path of another wrapper")
    parser.add_argument("--skips", type=Path, default=SKIPS, help="the file of tests that can't apply")
    arguments = parser.parse_args()
    try:
        result = run(arguments.words, wrapper=arguments.wrapper, skips=arguments.skips)
    except (TestsNotFound, ServerNotFound) as error:
        raise SystemExit(str(error)) from None
    for test, trouble in [*result.plain_trouble.items(), *result.broken.items()]:
        print(f"\n{'=' * 20} {test}\n{trouble}")
    for pattern in result.stale:
        print(f"{arguments.skips.name} excuses {pattern}, which needs no excuse.")
    print(f"\n{len(result.passed)} passed plain and wrapped, {len(result.excused)} are excused,", end=" ")
    print(f"{len(result.broken)} passed plain only, {len(result.plain_trouble)} failed plain.")
    raise SystemExit(not result.good)


if __name__ == "__main__":
    main()

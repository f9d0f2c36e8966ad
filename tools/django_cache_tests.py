"""Runs Django's own cache tests twice: with the plain caches, and with each of them wrapped by a StampedeCache.

    python -m tools.django_cache_tests                    runs both, and prints what only the wrapped ones fail
    python -m tools.django_cache_tests Redis test_incr    only tests with one of these words in their names

The wrapped caches must pass all tests that the plain caches pass, except those that a file lists with reasons. The
tests are those of the installed Django version. This starts a Redis server, and memcached, if it is installed.
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
"""Seconds after which a run counts as hanging. It takes about twenty."""

PARTS = 8
"""The processes of a run: as many as there are slow test classes."""

Outcomes = Mapping[str, str]
"""By test: "passed", "skipped: reason", or the error."""


@dataclass(frozen=True)
class Comparison:
    """The results of both runs."""

    passed: Sequence[str]
    """Tests that pass with both."""
    excused: Mapping[str, str]
    """Tests that only the plain cache passes, with the reason in the file."""
    broken: Mapping[str, str]
    """Tests that only the plain cache passes, without a reason in the file."""
    stale: Sequence[str]
    """Lines of the file without a failing test."""
    plain_trouble: Mapping[str, str] = field(default_factory=dict)
    """Tests that fail with the plain cache."""

    @property
    def good(self) -> bool:
        return bool(self.passed) and not self.broken and not self.stale and not self.plain_trouble


def read_skips(text: str) -> dict[str, str]:
    """Read lines `pattern: reason`. A pattern may have stars; `#` begins a comment."""
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.lstrip().startswith("#"):
            pattern, colon, reason = line.partition(": ")
            if not colon or not reason.strip():
                raise ValueError(f"Line {number} has no reason: {line!r}. Write `test: reason`.")
            found[pattern.strip()] = reason.strip()
    return found


def compare(plain: Outcomes, wrapped: Outcomes, skips: Mapping[str, str], *, narrowed: bool = False) -> Comparison:
    """`narrowed`: only some tests were run; don't report unused lines."""
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
    """Run both concurrently, each in several processes: most tests wait for values to expire."""
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
    """One process of a run, with some of the test classes."""

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
        values = server.url().removesuffix("/0")  # one of the tests passes its database separately
        locks = server.url(
            int(part.partition("/")[0]) + 1
        )  # keys of two processes are equal, so that their databases differ
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
    parser.add_argument("words", nargs="*", help="run only tests with one of these words in their names")
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

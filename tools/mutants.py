"""Mutation tests: applies one small defect at a time, and runs the tests that must fail with it.

    python -m tools.mutants                    all mutants of tests/mutants/, or those that have no result yet
    python -m tools.mutants --only 'lua-*'     some of them, by their ids
    python -m tools.mutants --fresh            all of them, also those that have a result

Every file ``tests/mutants/<group>.toml`` lists the mutants of a group, and the ``stages`` in which its tests are run,
the quick ones first. A mutant is a text that occurs once in a file, and its replacement. It is killed when a test fails
twice or hangs, and survives when all stages pass. Each worker mutates a copy of the tree; the tree itself is never
changed.
"""

from __future__ import annotations

import argparse
import fnmatch
import hashlib
import json
import os
import queue
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LISTS = ROOT / "tests" / "mutants"
RESULTS = ROOT / ".cache" / "mutants.json"

STALL = 120.0
"""Seconds without a finished test after which a run hangs."""

FLAKY = 3
"""Failures that a second run doesn't confirm, after which a stage is stopped."""

_failed = re.compile(r"^(?:FAILED|ERROR) (tests/.+?)(?: - .*)?$")


@dataclass(frozen=True)
class Mutant:
    """``find`` occurs once in ``file``; ``breaks`` says what the ``replacement`` changes; ``stages`` are arguments of
    pytest."""

    group: str
    id: str
    file: str
    find: str
    replacement: str
    breaks: str
    stages: tuple[str, ...]

    @property
    def digest(self) -> str:
        """A hash of the patch, so that results of an older patch aren't used."""
        return hashlib.sha256(f"{self.file}\0{self.find}\0{self.replacement}".encode()).hexdigest()[:16]

    def applied(self, text: str) -> str:
        """The text of the file with the defect.

        Raises:
            ValueError: the text doesn't occur in it, or more than once.
        """
        if (found := text.count(self.find)) != 1:
            raise ValueError(f"mutant {self.id}: its text occurs {found} times in {self.file}, not once")
        return text.replace(self.find, self.replacement)


@dataclass(frozen=True)
class Result:
    """``by`` is the test that failed; ``unconfirmed`` are tests that failed only once."""

    group: str
    digest: str
    status: str
    seconds: float
    by: str = ""
    unconfirmed: list[str] = field(default_factory=list)


def read_mutants(lists: Path = LISTS) -> list[Mutant]:
    """The mutants of all groups.

    Raises:
        ValueError: two of them have the same id.
    """
    mutants = []
    for path in sorted(lists.glob("*.toml")):
        content = tomllib.loads(path.read_text())
        for entry in content["mutant"]:
            stages = (*entry.get("tests", []), *content["stages"])
            texts = {name: entry[name] for name in ("id", "file", "find", "replacement", "breaks")}
            mutants.append(Mutant(group=path.stem, stages=stages, **texts))
    ids = [mutant.id for mutant in mutants]
    if twice := {id for id in ids if ids.count(id) > 1}:
        raise ValueError(f"ids of more than one mutant: {', '.join(sorted(twice))}")
    return mutants


@dataclass(frozen=True)
class Run:
    """The result of pytest: ``failed`` is the first test that failed or hangs; ``hangs`` isn't run twice."""

    failed: str = ""
    hangs: bool = False


class Stopped(Exception):
    """The run was interrupted: it has no result."""


class Worker:
    """A copy of the tree, in which one mutant at a time is tested."""

    def __init__(self, root: Path, copy: Path, python: str) -> None:
        self.copy = copy
        self.python = python
        self._changes = 0
        self._stopped = False
        self._process: subprocess.Popen[str] | None = None
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=root,
            stdout=subprocess.PIPE,
            check=True,
        )
        for name in filter(None, listed.stdout.decode().split("\0")):
            if (root / name).is_file():
                (copy / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(root / name, copy / name)

    def stop(self) -> None:
        """End the current run with its servers, and start no more."""
        self._stopped = True
        if (process := self._process) is not None and process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)

    def test(self, mutant: Mutant) -> Result:
        """Apply the mutant, run its stages until a test fails, and restore the file."""
        path = self.copy / mutant.file
        text = path.read_text()
        mutated = mutant.applied(text)
        begin = time.monotonic()
        self._write(path, mutated)
        try:
            status, by, unconfirmed = self._verdict(mutant)
        finally:
            self._write(path, text)
        return Result(mutant.group, mutant.digest, status, round(time.monotonic() - begin, 1), by, unconfirmed)

    def _verdict(self, mutant: Mutant) -> tuple[str, str, list[str]]:
        unconfirmed: list[str] = []
        for stage in mutant.stages:
            for _ in range(FLAKY):
                deselected = [f"--deselect={test}" for test in unconfirmed]
                run = self._pytest([*shlex.split(stage), *deselected])
                if run.hangs:
                    return "timeout", run.failed, unconfirmed
                if not run.failed:
                    break
                again = self._pytest([run.failed])
                if again.failed:
                    return "killed", run.failed, unconfirmed
                unconfirmed.append(run.failed)
        return "survived", "", unconfirmed

    def _write(self, path: Path, text: str) -> None:
        """Write a version of a file with a new modification time, so that Python recompiles it."""
        path.write_text(text)
        self._changes += 1
        at = time.time() - 86_400 + 2 * self._changes
        os.utime(path, (at, at))

    def _pytest(self, arguments: list[str]) -> Run:
        """Run tests in the copy, which their subprocesses import, too."""
        command = [self.python, "-m", "pytest", "-x", "-v", "-p", "no:cacheprovider", "-p", "no:randomly"]
        environment = {**os.environ, "PYTHONPATH": str(self.copy)}
        if self._stopped:
            raise Stopped
        process = self._process = subprocess.Popen(
            [*command, *arguments],
            cwd=self.copy,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=_read, args=(process, lines), daemon=True).start()
        output: list[str] = []
        try:
            while (line := lines.get(timeout=STALL)) is not None:
                output.append(line)
            code = process.wait(STALL)
        except (queue.Empty, subprocess.TimeoutExpired):
            return Run(failed=next((line.strip() for line in reversed(output) if "::" in line), "?"), hangs=True)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        if self._stopped:
            raise Stopped
        failed = [match[1] for line in output if (match := _failed.match(line.rstrip()))]
        if code == 0:
            return Run()
        if code == 5 or (code == 4 and not failed):
            raise SystemExit(f"pytest {shlex.join(arguments)}: no such tests\n{''.join(output[-20:])}")
        return Run(failed=failed[0] if failed else arguments[0])


def _read(process: subprocess.Popen[str], lines: queue.Queue[str | None]) -> None:
    assert process.stdout is not None  # noqa: S101 - for the type checker
    for line in process.stdout:
        lines.put(line)
    lines.put(None)


def read_results(path: Path) -> dict[str, Result]:
    """The results of earlier runs, by the ids of their mutants."""
    if not path.exists():
        return {}
    return {id: Result(**result) for id, result in json.loads(path.read_text()).items()}


def write_results(path: Path, results: dict[str, Result]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({id: asdict(result) for id, result in sorted(results.items())}, indent=1)
    partial = path.with_suffix(".part")
    partial.write_text(text + "\n")
    partial.replace(path)


def test_all(
    mutants: list[Mutant], root: Path, python: str, workers: int, path: Path, results: dict[str, Result]
) -> None:
    """Test several mutants at a time. Save each result at once, so that an interrupted run can be continued."""
    mutex = threading.Lock()
    idle: queue.Queue[Worker] = queue.Queue()
    broken_off = threading.Event()

    def test(mutant: Mutant) -> None:
        if broken_off.is_set():
            return
        worker = idle.get()
        try:
            result = worker.test(mutant)
        except BaseException:
            broken_off.set()
            raise
        finally:
            idle.put(worker)
        with mutex:
            results[mutant.id] = result
            write_results(path, results)
            print(f"{result.status:9}{mutant.id:40}{result.seconds:7.1f} s  {result.by}", flush=True)

    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        all_workers = [Worker(root, Path(folder, str(number)), python) for number in range(workers)]
        for worker in all_workers:
            idle.put(worker)
        with ThreadPoolExecutor(workers) as pool:
            try:
                for future in [pool.submit(test, mutant) for mutant in mutants]:
                    future.result()
            except BaseException:
                broken_off.set()
                for worker in all_workers:
                    worker.stop()
                raise


def report(mutants: list[Mutant], results: dict[str, Result]) -> None:
    """Print the counts of each group, and the mutants that survived."""
    tested = [mutant for mutant in mutants if mutant.id in results]
    alive = [mutant for mutant in tested if results[mutant.id].status == "survived"]
    for group in dict.fromkeys(mutant.group for mutant in mutants):
        of_group = [mutant for mutant in tested if mutant.group == group]
        survived = sum(mutant.group == group for mutant in alive)
        print(f"{group}: {len(of_group) - survived} of {len(of_group)} killed")
    for mutant in alive:
        print(f"survived: {mutant.id} ({mutant.file}): {mutant.breaks}")
    if len(tested) < len(mutants):
        print(f"{len(mutants) - len(tested)} were not tested")
    print(f"{len(tested) - len(alive)} of {len(tested)} killed")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.mutants", description="Measures what the tests notice.")
    parser.add_argument(
        "--only", action="append", metavar="ID", help="only mutants with an id that matches this pattern"
    )
    parser.add_argument("--fresh", action="store_true", help="test also what has a result")
    parser.add_argument("--workers", type=int, default=2, metavar="N", help="mutants that are tested at a time")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where results are kept")
    parser.add_argument("--root", type=Path, default=ROOT, help="the tree with the code and the tests")
    parser.add_argument("--lists", type=Path, default=LISTS, help="the folder of the lists of mutants")
    parser.add_argument("--python", default=sys.executable, help="the interpreter that has what the tests need")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    mutants = read_mutants(options.lists)
    for mutant in mutants:
        mutant.applied((options.root / mutant.file).read_text())
    if options.only:
        mutants = [one for one in mutants if any(fnmatch.fnmatch(one.id, pattern) for pattern in options.only)]
    results = read_results(options.results)
    left = [one for one in mutants if options.fresh or one.id not in results or results[one.id].digest != one.digest]
    test_all(left, options.root, options.python, options.workers, options.results, results)
    report(mutants, results)


if __name__ == "__main__":
    main()

from __future__ import annotations

import shlex
from pathlib import Path

from tools.mutants import LISTS, ROOT, read_mutants


def test_mutants_listed_apply_once_and_have_tests() -> None:
    mutants = read_mutants(LISTS)
    assert len(mutants) >= 150
    problems = []
    for mutant in mutants:
        try:
            mutated = mutant.applied((ROOT / mutant.file).read_text())
            if mutant.file.endswith(".py"):
                compile(mutated, mutant.file, "exec")
        except (OSError, ValueError, SyntaxError) as error:
            problems.append(f"{mutant.id}: {error}")
    paths = {
        word for one in mutants for stage in one.stages for word in shlex.split(stage) if word.startswith("tests/")
    }
    problems += [f"no such tests: {path}" for path in sorted(paths) if not (ROOT / Path(path)).exists()]
    assert not problems, "\n".join(problems)

"""What the jobs of CI name exists: else a file that is renamed would stop CI alone, and late."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.skipif(not (ROOT / ".ci").exists(), reason="the source archive has no CI")
def test_ci_jobs_name_only_files_that_exist() -> None:
    scripts = "\n".join(path.read_text() for path in (ROOT / ".ci").iterdir())
    patterns = set(re.findall(r"\btests/[\w/{},*.]+|\btools/\w+\.py", scripts))
    command = ["bash", "-c", "printf '%s\n' " + " ".join(patterns)]  # bash expands {a,b} and *
    names = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()
    assert len(names) > len(patterns)
    assert [name for name in names if not (ROOT / name).exists()] == []

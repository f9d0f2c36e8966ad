"""The installed packages, the public API, and the files that the CI jobs name."""

from __future__ import annotations

import re
import subprocess
from importlib import metadata, resources

import pytest

from tools import public_api
from tools.public_api import PACKAGES, ROOT


def test_one_distribution_has_both_packages_with_their_types() -> None:
    """[F24] `pip install django-redis-locks` installs the Django app and its Celery companion, each with `py.typed`,
    which type checkers require."""
    assert metadata.metadata("django-redis-locks")["License-Expression"] == "MIT"
    packages = metadata.packages_distributions()
    for package in PACKAGES:
        assert set(packages.get(package, ["django-redis-locks"])) == {"django-redis-locks"}
        assert resources.files(package).joinpath("py.typed").is_file()


def test_public_api_equals_the_reviewed_file() -> None:
    """[Y 17] An addition, a removal or a changed signature changes a line of the file, which is reviewed."""
    found = public_api.difference()
    assert not found, f"the public API differs from the reviewed one:\n{found}\nIf that is meant: make public-api"


@pytest.mark.skipif(not (ROOT / ".ci").exists(), reason="the source archive has no CI")
def test_ci_jobs_name_only_files_that_exist() -> None:
    """Otherwise a renamed file would fail only in CI."""
    scripts = "\n".join(path.read_text() for path in (ROOT / ".ci").iterdir())
    patterns = set(re.findall(r"\btests/[\w/{},*.]+|\btools/\w+\.py", scripts))
    command = ["bash", "-c", "printf '%s\n' " + " ".join(patterns)]  # bash expands {a,b} and *
    names = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()
    assert len(names) > len(patterns)
    assert [name for name in names if not (ROOT / name).exists()] == []

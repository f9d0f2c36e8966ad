"""Fetches the cache tests of the installed Django version, which only the source archive on PyPI contains."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import django

ROOT = Path(__file__).resolve().parent.parent
WANTED = "cache"
"""The folder below `tests` that is unpacked."""


class TestsNotFound(Exception):
    """The tests aren't available on this machine. The message has the reason."""

    __test__ = False  # not a test class of pytest


def django_tests(version: str = "", *, cache: Path = ROOT / ".cache" / "django") -> Path:
    """The folder with the package `cache` of Django's tests. It is fetched once per version."""
    version = version or django.get_version()
    target = cache / f"tests-{version}"
    if not target.exists():
        try:
            _fetch(version, target)
        except (OSError, subprocess.SubprocessError, tarfile.TarError) as error:
            output = getattr(error, "stderr", None) or str(error)
            raise TestsNotFound(
                f"The source archive of Django {version}, which has Django's own cache tests, couldn't be had from PyPI. "
                f"Put its folder tests/{WANTED} into {target} to do without.\n{output}"
            ) from error
    return target


def _fetch(version: str, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
        command += ["--no-binary=django", "--no-deps", f"--dest={folder}", f"django=={version}"]
        subprocess.run(command, check=True, capture_output=True, text=True)
        (archive,) = Path(folder).glob("[Dd]jango-*.tar.gz")
        made = Path(folder) / "tests"
        unpack(archive, made)
        try:
            made.rename(target)  # atomic, so that concurrent runs don't disturb each other
        except OSError:
            if not target.exists():  # the other run was faster
                raise


def unpack(archive: Path, made: Path) -> None:
    """Unpack only the Python files of this folder."""
    with tarfile.open(archive) as content:
        for member in content:
            folders = Path(member.name).parts[1:]
            if folders[:2] == ("tests", WANTED) and len(folders) == 3 and member.name.endswith(".py"):
                data = content.extractfile(member)
                if data is not None:
                    path = made / WANTED / folders[2]
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_bytes(data.read())
    if not (made / WANTED / "tests.py").exists():
        raise tarfile.TarError(f"{archive.name} has no tests/{WANTED}/tests.py.")

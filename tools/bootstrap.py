"""Makes `.venv` and installs the project in it, with these dependency groups. Returns quickly if it is up to date.

    python3 tools/bootstrap.py                the project and its dependencies
    python3 tools/bootstrap.py test lint      and these groups of pyproject.toml
    python3 tools/bootstrap.py --list test    prints the packages of these groups

Its syntax is that of Python 3.9, so that an old Python gets an error message instead of a SyntaxError.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import os
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PYPROJECT = ROOT / "pyproject.toml"
VENV = ROOT / ".venv"
PYTHON = VENV / ("Scripts" if os.name == "nt" else "bin") / "python"
STAMP = VENV / "bootstrap.json"
LOCK = ROOT / ".cache" / "bootstrap.lock"
CONSTRAINTS = ROOT / "tools" / "constraints.txt"
"""The versions of all packages for development; ``make lock`` writes it."""

OLDEST = (3, 11)


def main() -> None:
    refuse_unfit_python()
    if sys.argv[1:2] == ["--list"]:
        print(*requirements(sys.argv[2:]), sep="\n")
        return
    with exclusive_lock():
        prepare(set(sys.argv[1:]))


@contextlib.contextmanager
def exclusive_lock() -> Iterator[None]:
    """Hold a file lock, so that of two concurrent commands only one makes .venv."""
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    LOCK.parent.mkdir(exist_ok=True)
    with LOCK.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def prepare(wanted: set[str]) -> None:
    state = {
        "python": [sys.base_prefix, sys.version],
        "pyproject": hashlib.sha256(PYPROJECT.read_bytes() + CONSTRAINTS.read_bytes()).hexdigest(),
    }
    stamp = read_stamp()
    done = set(stamp.pop("groups", []))
    if stamp.get("python") != state["python"] or not PYTHON.exists():
        print("Making .venv ...", flush=True)
        venv.create(VENV, clear=True, with_pip=True)
        done = set()
    if stamp == state and wanted <= done:
        return
    names = sorted(wanted | done)
    print(f"Installing {', '.join(['the project', *names])} ...", flush=True)
    STAMP.unlink(missing_ok=True)
    install(["--constraint", str(CONSTRAINTS), "--editable", str(ROOT), *requirements(names)])
    STAMP.write_text(json.dumps({**state, "groups": names}))


def refuse_unfit_python() -> None:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info < OLDEST:
        sys.exit(
            f"This project needs Python {OLDEST[0]}.{OLDEST[1]} or newer, and {sys.executable} is {version}. "
            "Name a newer one: make PYTHON=python3.13 ..."
        )
    if importlib.util.find_spec("ensurepip") is None:
        sys.exit(f"{sys.executable} can't make virtual environments: install the package python3-venv first.")


def read_stamp() -> dict[str, Any]:
    try:
        stamp: dict[str, Any] = json.loads(STAMP.read_text())
    except (OSError, ValueError):
        return {}
    return stamp


def requirements(names: list[str]) -> list[str]:
    """The packages of these groups. Older versions than pip 25.1 don't have `--group`."""
    import tomllib

    groups = tomllib.loads(PYPROJECT.read_text())["dependency-groups"]

    def expand(name: str) -> list[str]:
        if name not in groups:
            sys.exit(f"pyproject.toml has no dependency group {name}, only: {', '.join(groups)}.")
        found = []
        for entry in groups[name]:
            found += [entry] if isinstance(entry, str) else expand(entry["include-group"])
        return found

    return [requirement for name in names for requirement in expand(name)]


def install(arguments: list[str]) -> None:
    environment = dict(os.environ)
    if not environment.get("HOME"):
        environment["PIP_CACHE_DIR"] = str(ROOT / ".cache" / "pip")
    command = [str(PYTHON), "-m", "pip", "install", "-qq", "--disable-pip-version-check", *arguments]
    finished = subprocess.run(command, env=environment, check=False)
    if finished.returncode:
        sys.exit("pip couldn't install the project; its message is above.")


if __name__ == "__main__":
    main()

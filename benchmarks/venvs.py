"""Makes the virtual environments in .cache/bench: one for all libraries but redlock-ng, which needs an older redis-py.

    python3 -m benchmarks.venvs

Returns quickly if they are up to date. Needs only the standard library.
"""

from __future__ import annotations

import json
import subprocess
import sys
import venv
from pathlib import Path

from tools.bootstrap import exclusive_lock, refuse_unfit_python

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / ".cache" / "bench"
HERE = ROOT / "benchmarks"

WANTED = {
    "main": ["--editable", str(ROOT), "-r", str(HERE / "requirements.txt")],
    "redlock-ng": ["-r", str(HERE / "requirements-redlock-ng.txt")],
}


def main() -> None:
    refuse_unfit_python()
    with exclusive_lock():
        for name, packages in WANTED.items():
            prepare(FOLDER / name, packages)


def prepare(folder: Path, packages: list[str]) -> None:
    stamp = folder / "bench.json"
    state = [sys.base_prefix, sys.version, dependencies()]
    state += [Path(one).read_text() for one in packages if one.endswith(".txt")]
    if stamp.exists() and json.loads(stamp.read_text()) == state:
        return
    print(f"Making {folder.relative_to(ROOT)} ...", flush=True)
    venv.create(folder, clear=True, with_pip=True)
    command = [str(folder / "bin" / "python"), "-m", "pip", "install", "-qq", "--disable-pip-version-check", *packages]
    if subprocess.run(command, check=False).returncode:
        sys.exit("pip couldn't install the packages of the benchmarks; its message is above.")
    stamp.write_text(json.dumps(state))


def dependencies() -> list[str]:
    import tomllib  # not in Python 3.10, which is refused first

    found: list[str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    return found


if __name__ == "__main__":
    main()

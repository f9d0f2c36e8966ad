"""Describes the machine and the versions of a run."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path

from tools.redis_server import RedisServer

ROOT = Path(__file__).resolve().parent.parent


def describe(server: RedisServer, versions: dict[str, str], rounds: int) -> list[tuple[str, str]]:
    libraries = ", ".join(f"{name} {version}" for name, version in sorted(versions.items(), key=_lower))
    return [
        ("date", datetime.now(UTC).strftime("%Y-%m-%d")),
        ("revision", revision()),
        ("machine", f"{cpu()}, {len(os.sched_getaffinity(0))} cores, {platform.system()} {platform.machine()}"),
        ("load when it ended", f"{os.getloadavg()[2]:.1f} (15 minutes)"),
        ("Python", platform.python_version()),
        ("server", f"{server.executable.name} {'.'.join(map(str, server.version))}, TCP over loopback, no persistence"),
        ("libraries", libraries),
        ("rounds", f"{rounds}"),
    ]


def cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown CPU")


def revision() -> str:
    """The commit, with a plus if there are uncommitted changes in the package."""
    try:
        commit = _git("rev-parse", "--short", "HEAD")
        changed = _git("status", "--porcelain", "--", "django_redis_locks")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return commit + ("+" if changed else "")


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()  # noqa: S607


def _lower(pair: tuple[str, str]) -> str:
    return pair[0].lower()

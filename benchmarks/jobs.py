"""Starts worker processes, sends them requests, and ends them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from .adapters import ADAPTERS

ROOT = Path(__file__).resolve().parent.parent
VENVS = ROOT / ".cache" / "bench"
LIMIT = 300.0  # seconds until an answer counts as missing


class JobFailed(Exception):
    """A worker ended without an answer. The message is its last line of output."""


def python_of(venv: str) -> Path:
    """The interpreter of an environment. The main one is that of this process, so that any development environment
    works."""
    return Path(sys.executable) if venv == "main" else VENVS / venv / "bin" / "python"


def environment() -> dict[str, str]:
    """The environment variables of a worker, without DJANGO_SETTINGS_MODULE: adapters configure Django themselves."""
    inherited = {name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"}
    return {**inherited, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"}


class Job:
    def __init__(self, adapter: str, scenario: str, url: str, cpu: int | None, options: dict[str, Any]) -> None:
        python = python_of(ADAPTERS[adapter].venv)
        if not python.exists():
            raise JobFailed("not installed")
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed with the process
        self._process = subprocess.Popen(
            [python, "-m", "benchmarks.worker"],
            cwd=ROOT,
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            start_new_session=True,  # so that its children are ended with it
        )
        request = {"adapter": adapter, "scenario": scenario, "url": url, "cpu": cpu, "options": options}
        self._send(request)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def ready(self) -> dict[str, str]:
        """Wait until it is ready. Return the versions of its libraries."""
        versions: dict[str, str] = self._receive()["versions"]
        return versions

    def measure(self, **arguments: Any) -> dict[str, Any]:
        self._send(arguments)
        return self._receive()

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            with contextlib.suppress(OSError):
                if stream:
                    stream.close()

    def _send(self, value: object) -> None:
        assert self._process.stdin is not None  # noqa: S101 - for the type checker
        with contextlib.suppress(BrokenPipeError):  # the missing answer is reported
            self._process.stdin.write(json.dumps(value) + "\n")
            self._process.stdin.flush()

    def _receive(self) -> dict[str, Any]:
        assert self._process.stdout is not None  # noqa: S101 - for the type checker
        guard = threading.Timer(LIMIT, self._process.kill)
        guard.start()
        line = self._process.stdout.readline()
        guard.cancel()
        if not line:
            self._errors.seek(0)
            lines = self._errors.read().strip().splitlines()
            raise JobFailed(lines[-1] if lines else f"no answer within {LIMIT:.0f} s")
        figures: dict[str, Any] = json.loads(line)
        return figures

"""The shop as `make run` serves it: several processes, on the tests' Redis."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from urllib.request import Request, urlopen

from example_project.buyers import post

PROJECT = Path(__file__).resolve().parents[2] / "example_project"

PATIENCE = 60.0
"""Seconds after which a test that waits for the shop has failed."""


@dataclass
class Shop:
    url: str

    def buy(self, form: str, product: int = 1) -> tuple[int, float]:
        return post(f"{self.url}/{form}/{product}/buy")

    def product(self, number: int = 1) -> dict[str, int]:
        request = Request(self.url, headers={"Accept": "application/json"})
        with urlopen(request, timeout=PATIENCE) as response:
            return next(one for one in json.load(response)["products"] if one["id"] == number)

    def report(self, path: str = "reports/sales/") -> str:
        with urlopen(f"{self.url}/{path}", timeout=PATIENCE) as response:
            return response.read().decode()


def open_shop(redis_url: str, folder: Path) -> tuple[subprocess.Popen[str], str]:
    """The process and its address."""
    command = [sys.executable, str(PROJECT / "demo.py"), "--serve", "--redis", redis_url, "--port", "0"]
    environment = {**os.environ, "TMPDIR": str(folder)}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    found = re.search(r"http://[\d.:]+", process.stdout.readline())
    assert found, f"it ended with {process.wait()}"
    return process, found[0]


def close_shop(process: subprocess.Popen[str]) -> int:
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=PATIENCE)
    return process.returncode

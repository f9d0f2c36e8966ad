"""explain/naive-locks.md: each script prints what the page shows below it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.docs.pages import BLOCKS
from tools.public_api import ROOT

SHOWN = [block for block in BLOCKS if block.page.name == "naive-locks.md"]
SCRIPTS = {block.name: (block.code, shown.code) for block, shown in zip(SHOWN[::2], SHOWN[1::2], strict=True)}


@pytest.mark.parametrize("name", SCRIPTS)
def test_script_of_a_simple_lock_prints_what_the_page_shows(name: str, redis_url: str) -> None:
    code, shown = SCRIPTS[name]
    environment = {key: value for key, value in os.environ.items() if key != "DJANGO_SETTINGS_MODULE"}
    command = [sys.executable, "-c", code.replace("redis://127.0.0.1:6379/0", redis_url)]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == (shown, "")

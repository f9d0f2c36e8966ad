"""The demo of the admin page: it shows locks of several processes, in each state."""

from __future__ import annotations

import subprocess
import sys

from tests.example.helpers import PROJECT


def test_admin_demo_measures_pages_with_locks(redis_executable: None) -> None:
    """Each page that it measures comes with locks on it, or it fails."""
    command = [sys.executable, str(PROJECT / "admin_demo.py"), "--measure", "--locks", "200"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 6

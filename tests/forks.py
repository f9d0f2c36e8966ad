"""Runs a part of a test in a forked child."""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable

import pytest


def in_child(story: Callable[[], None]) -> None:
    """Run a function in a forked child, and fail the test if it fails there."""
    sys.stdout.flush()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns about forking a process with threads
        pid = os.fork()
    if pid == 0:
        status = 1
        try:
            story()
            status = 0
        except BaseException:  # noqa: BLE001 - the child must not continue in pytest
            traceback.print_exc()
        finally:
            os._exit(status)
    deadline = time.monotonic() + 60
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            assert status == 0, "the child failed, see above"
            return
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            pytest.fail("the child hangs")
        time.sleep(0.01)

"""Tests of gevent's patching, in a process of its own, since it can't be undone."""

from __future__ import annotations

import subprocess
import sys

import pytest

PATCH = "from gevent import monkey; monkey.patch_all()"
IMPORT = """
from django.conf import settings
settings.configure()
from django_redis_locks import locks
locks.configure({"default": {"LOCATION": LOCATION, "EXPIRE": 1}})
"""


def run(url: str, *parts: str) -> subprocess.CompletedProcess[str]:
    program = "\n".join([f"LOCATION = {url!r}", *parts])
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)


def test_threads_replaced_after_the_import_are_refused(redis_url: str) -> None:
    """[E19] All greenlets would be one owner, and wait for each other for ever. The message says where to patch."""
    late = run(redis_url, IMPORT, PATCH, "locks.lock('a').acquire()")
    assert "RuntimeError: gevent replaced threads" in late.stderr
    assert "gunicorn.conf.py" in late.stderr
    early = run(
        redis_url, PATCH, IMPORT, "import gevent", "with locks.lock('a', renew=True): gevent.sleep(0.1)", "print('ok')"
    )
    assert early.stdout == "ok\n", early.stderr


@pytest.mark.parametrize("thread", ["engine._maintenance.submit", "engine._maintenance.notices.submit"])
def test_exit_in_a_background_greenlet_ends_the_process(redis_url: str, thread: str) -> None:
    """[E19] gevent runs signal handlers in any greenlet; a worker would ignore SIGTERM until it is killed."""
    program = f"import sys, gevent; locks['default'].{thread}(lambda: sys.exit(7)); gevent.sleep(20)"
    ended = run(redis_url, PATCH, IMPORT, "locks.lock('a', renew=True).acquire()", program)
    assert ended.returncode == 7, ended.stderr

"""gevent and eventlet replace threads and locks in the modules of Python that have them: what was imported before keeps the
real ones. All greenlets would be one thread then, and the first wait would stop all of them for ever."""

from __future__ import annotations

import _thread

_start_new_thread = _thread.start_new_thread


def check() -> None:
    """Ask before the first connection or thread of a process.

    Raises:
        RuntimeError: threads were replaced after this module was imported.
    """
    by = _thread.start_new_thread.__module__.partition(".")[0]
    if _thread.start_new_thread is not _start_new_thread:
        raise RuntimeError(
            f"{by} replaced threads and locks after django_redis_locks was imported, so that no lock can work here. Let it do so "
            "first: for gunicorn with --preload, write at the top of gunicorn.conf.py: from gevent import monkey; "
            "monkey.patch_all(); elsewhere as the first statement of the program"
        )

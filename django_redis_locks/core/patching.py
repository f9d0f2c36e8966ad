"""Detects gevent and eventlet that patched the standard library too late. Modules imported before keep the real threads
and locks; to them all greenlets are one thread, and the first wait would block all of them permanently."""

from __future__ import annotations

import _thread

_start_new_thread = _thread.start_new_thread


def check() -> None:
    """Check before the first connection or thread of a process.

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

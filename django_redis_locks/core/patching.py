"""Detects that gevent or eventlet patched the standard library too late. Modules that were imported before use the real
threads and locks: for them all greenlets are one thread, and the first wait would block all greenlets for ever."""

from __future__ import annotations

import _thread

_start_new_thread = _thread.start_new_thread


def check() -> None:
    """Check before the first connection or thread of a process.

    Raises:
        RuntimeError: threads were replaced after this module was imported.
    """
    library = _thread.start_new_thread.__module__.partition(".")[0]
    if _thread.start_new_thread is not _start_new_thread:
        raise RuntimeError(
            f"{library} replaced threads and locks after django_redis_locks was imported, so locks can't work here. Patch "
            "before any other import: for gunicorn with --preload, write at the top of gunicorn.conf.py: from gevent import "
            "monkey; monkey.patch_all(); elsewhere as the first statement of the program"
        )

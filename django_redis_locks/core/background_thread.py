"""A daemon thread that is started on demand, and ends with the process."""

from __future__ import annotations

import _thread
import os
import sys
import threading
from typing import TYPE_CHECKING

from . import patching
from .errors import LockBackendError

if TYPE_CHECKING:
    from collections.abc import Callable


class BackgroundThread:
    """Runs ``work`` in a daemon thread, which starts with the first call of ``start`` in this process.

    Args:
        work: the function that the thread runs.
        name: the name of the thread.
    """

    def __init__(self, work: Callable[[], object], name: str) -> None:
        self._work = work
        self._name = name
        self._mutex = threading.RLock()
        self._thread: threading.Thread | None = None
        self._pid = os.getpid()

    @property
    def ident(self) -> int | None:
        """The identifier of the thread, if it was started in this process."""
        return self._thread.ident if self._thread is not None and self._pid == os.getpid() else None

    @property
    def runs(self) -> bool:
        """Whether the thread was started in this process."""
        return self._thread is not None and self._pid == os.getpid()

    def start(self) -> None:
        """Start the thread, unless it was started.

        Raises:
            LockBackendError: this process can't start a thread.
        """
        if self._thread is None:
            with self._mutex:
                if self._thread is None:
                    self._begin()

    def _begin(self) -> None:
        patching.check()
        claim = threading.Lock()
        self._thread = threading.Thread(target=self._run, args=(claim,), name=self._name, daemon=True)
        try:
            self._thread.start()
        except BaseException as error:
            # A signal handler may have raised before the thread started or after it. The claim decides: if this thread
            # gets it, the new thread will never run the work
            if claim.acquire(blocking=False):
                self._thread = None
            if not isinstance(error, RuntimeError):
                raise
            exiting = sys.is_finalizing() or "shutdown" in str(error)  # then the leases end by themselves
            if not exiting:
                raise LockBackendError(
                    f"this process can't start the thread {self._name!r}: {error}. It has reached a limit of threads or of "
                    "memory: raise that (ulimit -u, the pids limit of a container), or run fewer threads"
                ) from error

    def _run(self, claim: threading.Lock) -> None:
        if claim.acquire(blocking=False):
            run_to_end(self._work)


def run_to_end(work: Callable[[], object]) -> None:
    """Run the work of a background thread."""
    try:
        work()
    except (SystemExit, KeyboardInterrupt) as error:
        end_process_on_exit(error)


def end_process_on_exit(error: BaseException) -> None:
    """End the process if a signal handler raised ``SystemExit`` or ``KeyboardInterrupt`` in a background thread. That
    only happens under gevent: its greenlets run in the main thread of the system, and ``threading`` ends the greenlet
    only."""
    if isinstance(error, SystemExit | KeyboardInterrupt) and threading.get_native_id() == os.getpid():
        _thread.start_new_thread(_raise, (error,))  # gevent propagates exceptions of greenlets outside of `threading`


def _raise(error: BaseException) -> None:
    raise error

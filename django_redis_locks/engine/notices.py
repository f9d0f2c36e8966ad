"""The notice thread: runs the user's code (log handlers, signal receivers, ``on_lost``) for the maintenance thread.

Such code may block, and many locks are often lost at once. A mail handler that takes seconds must not delay the renewal
of other leases. So the calls wait in a queue in the order of their events; calls of ``on_lost`` come first.
"""

from __future__ import annotations

import contextlib
import logging
from collections import deque
from functools import partial
from typing import TYPE_CHECKING

from ..core.background_thread import BackgroundThread, end_process_on_exit
from ..core.errors import LockBackendError
from ..core.wait_events import ThreadEvent, call_and_wait

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..core.tuning import Tuned

_log = logging.getLogger("django_redis_locks")


class Notices:
    """A queue of calls that one thread makes one after the other. The thread starts with the first call."""

    def __init__(self, engine: Tuned) -> None:
        self._engine = engine
        self.after_fork_in_child()

    def after_fork_in_child(self) -> None:
        """Start without a thread and without the parent's calls."""
        self._first: deque[Callable[[], object]] = deque()
        self._calls: deque[Callable[[], object]] = deque()
        self._calling = False
        self._dropped = 0
        self._wakeup = ThreadEvent()
        self._thread = BackgroundThread(self._run, "django-redis-locks notices")

    def submit(self, call: Callable[[], object]) -> None:
        """Queue a call, or drop it if ``max_queued_notices`` calls are queued. Exceptions of the call are logged."""
        if len(self._calls) < self._engine.tuning.max_queued_notices:
            self._enqueue(self._calls, call)
        else:
            self._dropped += 1

    def submit_first(self, call: Callable[[], object]) -> None:
        """Queue a call before those of ``submit``. It is never dropped."""
        self._enqueue(self._first, call)

    def _enqueue(self, queue: deque[Callable[[], object]], call: Callable[[], object]) -> None:
        queue.append(call)
        try:
            self._thread.start()
        except LockBackendError:  # no thread can be started
            if not self._calling:  # then the calling thread makes the calls
                self._make_calls()
        else:
            self._wakeup.set()

    def wait_until_idle(self, seconds: float) -> None:
        """Wait until the calls queued so far are made, for at most ``seconds``."""
        if self._first or self._calls or self._calling:
            call_and_wait(partial(self._enqueue, self._calls), lambda: None, seconds)

    def busy(self, sleeps: Callable[[int], bool]) -> bool:
        """Return whether calls are queued or being made, and the thread doesn't sleep in one."""
        queued = bool(self._first or self._calls)
        return (queued or self._calling) and not sleeps(self._thread.ident or 0)

    def _run(self) -> None:
        while True:
            self._wakeup.wait(self._engine.tuning.max_thread_sleep)
            self._make_calls()

    def _make_calls(self) -> None:
        self._calling = True
        try:
            while queue := self._first or self._calls:
                try:
                    queue.popleft()()
                except BaseException as error:  # noqa: BLE001 - a SystemExit of the user's code must not end the thread
                    end_process_on_exit(error)
                    with contextlib.suppress(BaseException):  # the log handler may have failed
                        _log.exception("A notice of a lock failed")
            dropped, self._dropped = self._dropped, 0
            if dropped:
                with contextlib.suppress(BaseException):
                    _log.error("%d notices of locks were dropped: receivers or log handlers are too slow", dropped)
        finally:
            self._calling = False

"""Timers of connections, on the machine's clock: they end requests without a reply, and close idle connections.

An event loop's own timers stop under freezegun, and a silent server would never time out. A maintenance thread can't
run them either: it waits for replies itself.

One thread serves the whole process; it starts with the first timer. A connection in use has one timer per
``socket_timeout``, not one per request.
"""

from __future__ import annotations

import heapq
import os
from itertools import count
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from ...core.background_thread import BackgroundThread
from ...core.clock import system_now as now

if TYPE_CHECKING:
    from collections.abc import Callable


class TimerThread:
    """A thread that calls callbacks at their times. It is started by the first one."""

    def __init__(self) -> None:
        self._new: SimpleQueue[tuple[float, int, Callable[[], object]]] = SimpleQueue()
        self._count = count().__next__
        self._thread = BackgroundThread(self._run, "django-redis-locks timers")
        self._pid = os.getpid()

    def call_at(self, at: float, callback: Callable[[], object]) -> None:
        """Call ``callback`` on the timer thread. It must neither raise nor block.

        Args:
            at: a time on the machine's clock, ``clock.system_now()``.

        Raises:
            LockBackendError: no thread can be started.
        """
        if self._pid != os.getpid():
            self.__init__()  # type: ignore[misc]
        self._thread.start()
        self._new.put((at, self._count(), callback))

    def _run(self) -> None:
        pending: list[tuple[float, int, Callable[[], object]]] = []
        new = self._new
        while True:
            try:
                heapq.heappush(pending, new.get(timeout=max(0.0, pending[0][0] - now()) if pending else None))
            except Empty:
                heapq.heappop(pending)[2]()


call_at = TimerThread().call_at

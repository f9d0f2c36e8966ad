"""A circuit breaker for servers: once one caller has found a server to be down, other callers fail immediately.

A server is *down* when requests to it have failed for the whole ``backend_wait`` of a caller, and none was answered in
between. From then on callers fail without a request. A thread probes the server once a second; the first reply ends the
outage.
"""

from __future__ import annotations

import logging
import os
import threading
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Final, Protocol

from ..core import clock, forks
from ..core.background_thread import BackgroundThread
from ..core.errors import LockBackendError
from ..core.tuning import Tuned
from ..core.wait_events import ThreadEvent

if TYPE_CHECKING:
    from collections.abc import Callable

_log = logging.getLogger("django_redis_locks.backend")

LOST_PROBES: Final = 5
"""Intervals without a probe after which the probing thread counts as dead, and one caller sends a request."""


class Prober(Tuned, Protocol):
    """The engine for which the thread probes the server."""

    def submit_notice(self, call: Callable[[], object], /) -> object:
        """Queue a call for the thread of notices."""


class Outage:
    """The state of one server, which several aliases may use.

    Args:
        server: the address; after a space other options that decide whether the server can be reached.

    Attributes:
        suspected: the last request failed. While it is False no method needs to be called.
    """

    def __init__(self, server: str) -> None:
        self._address = server.partition(" ")[0]
        self.after_fork_in_child()
        forks.reset_in_child(self)

    def after_fork_in_child(self) -> None:
        """Forget the outage: the probing thread exists in the parent only."""
        self._mutex = threading.RLock()
        self._pid = os.getpid()
        self._wakeup = ThreadEvent()
        self._thread = BackgroundThread(self._run, "django-redis-locks probe")
        self.forget()

    def forget(self) -> None:
        """Reset to the state without failures."""
        self._down = False
        self._failure = ""
        self._since = self._last = self._probed = -inf
        self.suspected = False

    def check(self) -> None:
        """Check the server before a request.

        Raises:
            LockBackendError: the server is down.
        """
        if self._down and self._pid != os.getpid():  # a fork that ran no hooks
            self.after_fork_in_child()
        if self._down:
            now = clock.now()
            if now < self._probed + LOST_PROBES * self._engine.tuning.probe_interval:
                raise LockBackendError(
                    f"{self._failure} (it is known to be down, and probed once a second)",
                    transient=True,
                    unreachable=True,
                )
            self._probed = now  # the request of this caller is a probe; other callers still fail

    def record_reply(self) -> None:
        """Record that the server replied to a request, perhaps with an error."""
        with self._mutex:
            was_down = self._down
            self.forget()
        if was_down:
            self._engine.submit_notice(partial(_log.warning, "The server of locks at %s answers again", self._address))

    def record_failure(
        self, sent: float, failure: str, give_up_after: float, probe: Callable[[], object], engine: Prober
    ) -> float:
        """Record that a request got no reply.

        Args:
            sent: when it was sent.
            failure: the reason, for the errors of callers that fail immediately from now on.
            give_up_after: seconds for which the caller retries an unreachable server. The caller with the fewest
                seconds decides when the server counts as down.
            probe: sends a request; raises ``LockBackendError`` if the server can't be reached.
            engine: the caller's engine.

        Returns:
            The seconds for which the caller may continue to retry.
        """
        now = clock.now()
        with self._mutex:
            if self._down:
                return self._since + give_up_after - now
            continues = self.suspected and sent <= self._last + 2 * engine.tuning.max_retry_delay
            if not continues:
                self._since = now  # earlier failures belong to another outage
            self._last = now
            self.suspected = True
            left = self._since + give_up_after - now
            if left > 0 or not continues:  # a single failure isn't an outage
                return left
            self._failure, self._probe, self._engine = failure, probe, engine
            try:
                self._thread.start()
            except LockBackendError:  # without a thread to probe the server, each caller must try by itself
                return 0.0
            self._probed = now
            self._down = True
        self._wakeup.set()
        text = "The server of locks at %s is down: callers fail at once until it answers. %s"
        engine.submit_notice(partial(_log.warning, text, self._address, failure))
        return 0.0

    def _run(self) -> None:
        while True:
            self._wakeup.wait(
                self._engine.tuning.probe_interval if self._down else self._engine.tuning.max_thread_sleep
            )
            if self._down:
                self.probe()

    def probe(self) -> None:
        """Send a request to the server; a reply ends the outage."""
        self._probed = clock.now()
        try:
            self._probe()
        except Exception as failure:  # noqa: BLE001 - the next caller's own request raises any other error
            if isinstance(failure, LockBackendError) and failure.unreachable:
                return
        self.record_reply()


class Unshared(Outage):
    """The state of a store whose parts fail one by one: the failure of one caller says nothing about the others. Each
    caller retries by itself, and none of them fails at once."""

    def __init__(self) -> None:
        super().__init__("")

    def record_failure(
        self, sent: float, failure: str, give_up_after: float, probe: Callable[[], object], engine: Prober
    ) -> float:
        """Return the seconds for which a caller may retry after its first failure. Arguments as of ``Outage``."""
        return give_up_after


_outages: dict[str, Outage] = {}


def outage_of(server: str) -> Outage:
    """Return the outage state of a server."""
    return _outages.setdefault(server, Outage(server))


@clock.on_install
def _forget_times() -> None:
    for outage in list(_outages.values()):
        outage.forget()

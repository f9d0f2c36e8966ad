"""``Leader``: one of several processes leads, as long as it holds a lock, and another one takes over when it can't."""

from __future__ import annotations

import asyncio
import inspect
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from .core import events
from .core.errors import LockBackendError, LockError, LockLost
from .core.owners import running_loop
from .core.wait_events import TaskEvent, ThreadEvent
from .primitives.shared.acquire import aacquire, acquire

if TYPE_CHECKING:
    from collections.abc import Callable

    from .core.grant import Grant
    from .primitives.lock import Lock

TURN: Final = 2.0
"""The seconds after which a candidate looks whether it was stopped, a leader whether it has lost its lock unnoticed, and a
candidate that can't reach the store tries again."""


class Leader:
    """A candidate for the leadership of all candidates with its key. ``locks.leader()`` makes one; it campaigns once.

    Example::

        class Command(BaseCommand):
            def handle(self, **options):
                locks.release_at_exit()
                leader = locks.leader("scheduler", lambda grant: schedule(leader))
                leader.run()

        def schedule(leader):
            while leader.leading:
                send_due_jobs(fence=leader.grant.fence)
                time.sleep(1)
    """

    def __init__(
        self,
        make_lock: Callable[..., Lock],
        on_elected: Callable[[Grant], object],
        on_lost: Callable[[Grant], object] | None,
    ) -> None:
        for what, value in (("on_elected", on_elected), ("on_lost", on_lost)):
            if not callable(value) and not (what == "on_lost" and value is None):
                raise ValueError(f"{what} is called with the grant, so it is a callable, not {value!r}")
        self._on_elected = on_elected
        self._on_lost = on_lost
        self._lock = make_lock(on_lost=self._end)
        self._mutex = threading.RLock()
        self._grant: Grant | None = None
        self._event: ThreadEvent | TaskEvent | None = None
        self._ending: asyncio.Future[Any] | None = None
        """The running call of an async ``on_lost``."""
        self._stopped = False

    def __repr__(self) -> str:
        state = "leads" if self.leading else "stopped" if self._stopped else "doesn't lead"
        return f"<Leader {self._lock.name!r} {state}>"

    @property
    def key(self) -> str:
        """The key of the leadership."""
        return self._lock.key

    @property
    def grant(self) -> Grant | None:
        """The grant of the lock while this candidate leads, with the fence of this leadership; otherwise None."""
        return self._grant

    @property
    def leading(self) -> bool:
        """Whether this candidate leads now: it has the lock, as far as this process knows, and wasn't stopped. The
        condition of a loop that works for the leader."""
        grant = self._grant
        return grant is not None and grant.held and not self._stopped

    def stop(self) -> None:
        """End the campaign. A leader gives the leadership up when its ``on_elected`` has returned. Safe in any thread,
        and in a signal handler."""
        self._stopped = True
        event = self._event
        if event is not None:
            event.set()

    def run(self) -> None:
        """Campaign until ``stop()``: wait for the leadership, call ``on_elected``, keep it until it is lost or the
        campaign ends, call ``on_lost``, and campaign again. While the store can't be reached, it is tried again.

        Raises:
            SynchronousOnlyOperation: called in a running event loop. Use ``arun()``.
            LockAlreadyHeld: the caller holds the lock.
            LockKeyError: something else lives under the key.
            TypeError: ``on_elected`` or ``on_lost`` is an async function. Use ``arun()``.
            Exception: that of ``on_elected`` or ``on_lost``. The leadership is given up first.
        """
        if running_loop() is not None:
            self._lock.performer.may_block()
        for what, function in (("on_elected", self._on_elected), ("on_lost", self._on_lost)):
            if inspect.iscoroutinefunction(function):
                raise TypeError(f"{what} is an async function: campaign with arun()")
        event = self._event = ThreadEvent()
        while not self._stopped:
            grant = None
            try:
                try:
                    grant = self._acquire(event)
                    if grant is not None:
                        _refuse_awaitable("on_elected", self._elect(grant))
                        while self.leading:
                            event.wait(TURN)
                except LockLost:
                    if grant is None or not grant.lost:
                        raise
                finally:
                    self._give_up(grant)
            except BaseException:
                self._give_up(grant)  # once more, if an exception has interrupted it
                raise

    async def arun(self) -> None:
        """Campaign until ``stop()``: wait for the leadership, call ``on_elected``, keep it until it is lost or the
        campaign ends, call ``on_lost``, and campaign again. While the store can't be reached, it is tried again.

        Raises:
            LockAlreadyHeld: the caller holds the lock.
            LockKeyError: something else lives under the key.
            Exception: that of ``on_elected`` or ``on_lost``. The leadership is given up first.
        """
        performer: Any = self._lock.performer
        event = self._event = TaskEvent(asyncio.get_running_loop(), performer.call_at)
        while not self._stopped:
            grant = None
            try:
                try:
                    grant = await self._aacquire(event)
                    if grant is not None:
                        result = self._elect(grant)
                        if inspect.isawaitable(result):
                            await result
                        while self.leading:
                            await event.wait(TURN)
                except LockLost:
                    if grant is None or not grant.lost:
                        raise
                finally:
                    await self._agive_up(grant)
            except BaseException:
                await self._agive_up(grant)
                raise

    def _acquire(self, event: ThreadEvent) -> Grant | None:
        try:
            return acquire(self._lock, True, TURN, quiet=True)
        except LockBackendError as failure:
            self._report(failure)
            event.wait(TURN)
            return None

    async def _aacquire(self, event: TaskEvent) -> Grant | None:
        try:
            return await aacquire(self._lock, True, TURN, quiet=True)
        except LockBackendError as failure:
            self._report(failure)
            await event.wait(TURN)
            return None

    def _elect(self, grant: Grant) -> object:
        self._grant = grant
        return self._on_elected(grant)

    def _give_up(self, grant: Grant | None) -> None:
        """End the leadership of a grant, and release it. Return when ``on_lost`` has returned, in whatever thread."""
        if grant is None:
            return
        try:
            self._end(grant)
        finally:
            with suppress(LockError):  # lost, released before, or repeated in the background
                grant.release()

    async def _agive_up(self, grant: Grant | None) -> None:
        """End the leadership of a grant, and release it. Return when ``on_lost`` has ended."""
        if grant is None:
            return
        try:
            self._end(grant)
            ending, self._ending = self._ending, None
            if ending is not None:
                await ending
        finally:
            with suppress(LockError):
                await grant.arelease()

    def _end(self, grant: Grant) -> None:
        """Call ``on_lost``, once: when the loss of a grant is noticed, or before its release. The mutex is held during
        the call, so that the campaign waits until a call in another thread has returned."""
        with self._mutex:
            if self._grant is not grant:
                return
            self._grant = None
            try:
                result = None if self._on_lost is None else self._on_lost(grant)
                if isinstance(self._event, TaskEvent) and inspect.isawaitable(result):
                    self._ending = asyncio.ensure_future(result)
                else:
                    _refuse_awaitable("on_lost", result)
            finally:
                if self._event is not None:
                    self._event.set()

    def _report(self, failure: LockBackendError) -> None:
        lock = self._lock
        events.emit(events.BackendFailed(lock.key, lock.name, lock.alias, "campaign, going on", str(failure)))


def _refuse_awaitable(what: str, result: object) -> None:
    if inspect.isawaitable(result):
        if inspect.iscoroutine(result):
            result.close()
        raise TypeError(f"{what} returned an awaitable: campaign with arun()")

"""Releases what this process holds when the interpreter exits, and turns signals into such an exit.

Released are locks that can't protect anything any more: their thread or task has ended, or is the one that exits. A daemon
thread may still work, so its locks end with their leases, as after a crash. A waiter of this process is unregistered
first, because a lock that is granted to it would stay held for the lease of the grant.
"""

from __future__ import annotations

import asyncio
import atexit
import signal
import sys
import threading
from functools import partial
from itertools import chain
from multiprocessing.util import Finalize, register_after_fork
from typing import TYPE_CHECKING, Any, cast

from ..core import clock, events, forks
from ..core.errors import LockBackendError
from ..core.grant import Grant
from ..core.hold import State
from ..core.owners import is_alive
from ..core.registry import registry
from .cleanup import BATCH
from .engine import engines
from .maintenance import maintenance_threads

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import FrameType

    from ..core.commands import Command
    from ..core.hold import Hold
    from .engine import Engine

_exiting = False
"""The interpreter exits already, so a signal must not interrupt that."""

TIME_LIMIT = 1.0
"""The seconds by which releases may delay the exit."""


def exit_at(signals: Iterable[int]) -> None:
    """End this process by ``SystemExit`` at these signals.

    Raises:
        ValueError: called outside of the main thread, or a signal has a handler already.
    """
    chosen = [signal.Signals(number) for number in signals]
    for number in chosen:
        if signal.getsignal(number) not in (signal.SIG_DFL, _exit_now):
            raise ValueError(
                f"{number.name} has a handler already, which decides how this process ends: locks are released if it calls "
                "sys.exit()"
            )
    for number in chosen:
        signal.signal(number, _exit_now)


def _exit_now(number: int, _frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_DFL)  # a second signal ends the process at once
    if not _exiting:
        sys.exit(128 + number)  # the status by which shells report the end by a signal


def release_all() -> None:
    """Unregister the waiters of this process, and release the locks of threads and tasks that can't run on, for at most
    ``TIME_LIMIT``. Called at the exit."""
    global _exiting  # noqa: PLW0603 - of the process
    _exiting = True
    forks.pid()  # in a child of a fork without hooks: the waiters are its parent's
    end = clock.system_now() + TIME_LIMIT
    for engine in engines():
        list(_send(engine, engine.withdraw_waiters(), end))
    found: dict[Engine, dict[Hold, Grant]] = {}
    for grant in _grants():
        if grant.hold.held and not _runs_on(grant.hold):
            found.setdefault(cast("Engine", grant.lock.performer), {})[grant.hold] = grant
    for engine, grants in found.items():
        _release(engine, [grant for hold, grant in grants.items() if hold.end()], end)


atexit.register(release_all)
register_after_fork(release_all, partial(Finalize, None, exitpriority=0))  # children of multiprocessing ignore atexit


def _grants() -> list[Grant]:
    """Return the grants that the registry knows, and those that only the user's code references."""
    renewed = [hold.grant() for maintenance in maintenance_threads() for hold in maintenance.renewed()]
    return [*registry.grants(), *(grant for grant in renewed if isinstance(grant, Grant))]  # some are of records


def _runs_on(hold: Hold) -> bool:
    """Return whether the thread or task that acquired a hold can still work. The main thread can't: it exits."""
    owner = hold.owner()
    if owner in (threading.current_thread(), threading.main_thread()) or not is_alive(hold):
        return False
    return not isinstance(owner, asyncio.Task) or owner.get_loop().is_running()


def _release(engine: Engine, grants: list[Grant], end: float) -> None:
    commands = [grant.lock.release_commands(grant.hold) for grant in grants]
    replies = _send(engine, [*chain.from_iterable(commands)], end)
    for grant, own in zip(grants, commands, strict=True):
        answers = list(zip(own, replies, strict=False))  # own first: it takes as many replies as it needs
        if len(answers) < len(own):
            return
        hold = grant.hold
        hold.state = State.GONE
        if any(not isinstance(reply, LockBackendError) and command.read(reply) for command, reply in answers):
            events.emit(events.Released(hold.key, hold.name, hold.alias, hold.fence, hold.age(), True))


def _send(engine: Engine, commands: list[Command[int]], end: float) -> Iterator[Any]:
    """Send commands in writes of ``BATCH``, and yield the reply to each or its error. No more of them once ``end`` is
    over or the server is unreachable."""
    for first in range(0, len(commands), BATCH):
        left = end - clock.system_now()
        if left <= 0 or engine.outage.suspected:
            return
        yield from engine.backend.call_many(commands[first : first + BATCH], left)

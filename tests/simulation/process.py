"""A simulated process: an engine with its own queues, maintenance thread and connections, threads, and event loops."""

from __future__ import annotations

import asyncio
import copy
from asyncio import events
from collections.abc import Callable, Coroutine
from itertools import count
from math import inf
from threading import Lock as Mutex
from typing import TYPE_CHECKING, Any

from django_redis_locks.client import Locks
from django_redis_locks.conf import AliasSettings
from django_redis_locks.core import forks, tokens
from django_redis_locks.engine import engine as engine_module
from django_redis_locks.engine.engine import Engine
from tests.simulation.network import EPOCH, SimulatedBackend
from tests.simulation.scheduler import Actor, Died

if TYPE_CHECKING:
    from tests.simulation.network import Server
    from tests.simulation.scheduler import Scheduler


class Process:
    """One of the processes on the simulated hosts.

    Attributes:
        rate: the rate of its clock; the package promises to tolerate one percent of drift.
        stopped_until: the end of its latest stop (SIGSTOP).
        requests: the number of sent requests.
    """

    def __init__(self, server: Server, name: str, settings: AliasSettings) -> None:
        self.scheduler: Scheduler = server.scheduler
        self.server = server
        self.name = name
        random = self.scheduler.random
        self.pid = 1000 + len(self.scheduler.processes)
        self.rate = 1.0 + random.uniform(-0.009, 0.009)
        self.ahead = random.uniform(0.0, 1e6)
        self.wall_ahead = 0.0
        self.stopped_until = 0.0
        self.dead = False
        self.requests = 0
        self.threads: list[Actor] = []
        self.loops: list[VirtualLoop] = []
        self.next_number = count(1).__next__
        self.scheduler.processes.append(self)
        before = self.scheduler.process
        self.scheduler.enter(self)
        self.backend = SimulatedBackend(server, self)
        self.engine = Engine(self.backend)
        self.locks = Locks(settings, self.engine)
        self.scheduler.enter(before)

    @property
    def stopped(self) -> bool:
        return self.stopped_until > self.scheduler.now

    @property
    def living(self) -> list[Actor]:
        return [actor for actor in self.threads if not actor.over]

    @property
    def busy(self) -> bool:
        """Whether a thread other than the maintenance thread still runs."""
        return any(not actor.over and actor.name != "maintenance" for actor in self.threads)

    def now(self) -> float:
        return self.ahead + self.rate * self.scheduler.now

    def wall(self) -> float:
        return EPOCH + self.wall_ahead + self.scheduler.now

    def thread(self, name: str, act: Callable[[], object], after: float = 0.0) -> Actor:
        """Start a thread."""
        actor = Actor(self, name, act)
        self.threads.append(actor)
        scheduler = self.scheduler
        scheduler.at(scheduler.now + after + scheduler.random.random() * 1e-3, actor._turn(), self)
        return actor

    def loop(self, name: str, main: Callable[[], Coroutine[Any, Any, object]]) -> Actor:
        """Start a thread with an event loop."""

        def run() -> None:
            loop = VirtualLoop(actor)
            self.loops.append(loop)
            try:
                loop.run_until_complete(main())
            finally:
                if not self.dead:
                    loop.close()

        actor = self.thread(name, run)
        return actor

    def stop(self, seconds: float) -> None:
        """SIGSTOP, and SIGCONT after ``seconds`` of true time."""
        self.stopped_until = max(self.stopped_until, self.scheduler.now + seconds)

    def kill(self) -> None:
        """SIGKILL: the server's connections are closed, but sent requests may still arrive."""
        self._exit()
        self.unwind()
        engine_module._queues.pop(self.backend.identity, None)

    def fork(self) -> Process:
        """Fork, and exit in the parent at once, like a daemon at its start. The child has the memory of the parent,
        another pid, and neither its threads nor its connections."""
        child = copy.copy(self)
        self.scheduler.processes.append(child)
        child.name = f"{self.name}'"
        child.pid = 1000 + len(self.scheduler.processes)
        child.threads, child.loops = [], []
        self._exit()
        self.backend.process = child
        for inbox in self.server.inboxes:
            if inbox.process is self:
                inbox.process = child
        before = self.scheduler.process
        self.scheduler.enter(self)
        self.scheduler.process = child
        source = tokens._tokens._source
        forks._after_fork_in_child()
        tokens._tokens._source = source  # random tokens would make a seed's trace irreproducible
        self.scheduler.enter(before)
        return child

    def _exit(self) -> None:
        self.dead = True
        for request in self.server.in_flight[:]:
            if request.process is self:
                request.give_up()
        for inbox in self.server.inboxes:
            if inbox.process is self:
                inbox.silence()

    def unwind(self) -> None:
        """Unwind the stacks of a dead process's threads. After a fork that waits for the end of the simulation, since
        the child shares their objects."""
        before = self.scheduler.process
        self.scheduler.enter(self)
        for loop in self.loops:
            loop.drop()
        for actor in self.threads:
            actor.end()
        self.scheduler.enter(before)


class VirtualLoop(asyncio.BaseEventLoop):
    """asyncio's loop with the clock of a simulated process; instead of a select it lets other threads run."""

    _runs = False

    def __init__(self, actor: Actor) -> None:
        super().__init__()
        self._actor = actor
        self._selector = self
        self._bell = Mutex()
        self._bell.acquire()
        self.tasks: list[asyncio.Task[Any]] = []
        self.set_task_factory(self._make_task)
        self.set_exception_handler(self._report)

    @staticmethod
    def _make_task(loop: VirtualLoop, coro: Any, **options: Any) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=loop, **options)
        loop.tasks.append(task)
        return task

    def _report(self, _: object, context: dict[str, Any]) -> None:
        if not self._actor.process.dead:
            self._actor.scheduler.violation(f"a loop of {self._actor.process.name} reports {context}")

    def time(self) -> float:
        return self._actor.process.now()

    def select(self, timeout: float | None) -> list[Any]:
        if timeout is None or timeout > 0:
            self._actor.wait(self._bell, inf if timeout is None else timeout)
        return []

    def _process_events(self, events: list[Any]) -> None:
        pass

    def _write_to_self(self) -> None:
        try:
            self._bell.release()
        except RuntimeError:
            pass  # released already

    def is_running(self) -> bool:
        return self._runs

    def run_forever(self) -> None:
        events._set_running_loop(self)
        self._runs = True
        try:
            while True:
                self._run_once()
                if self._stopping:
                    break
        finally:
            self._stopping = self._runs = False
            events._set_running_loop(None)

    def drop(self) -> None:
        """Unwind the stacks of the tasks of a dead process."""
        for task in self.tasks:
            task._log_destroy_pending = False
            coro: Any = task.get_coro()
            while coro.cr_frame is not None and not coro.cr_running:
                try:
                    coro.throw(Died)
                except (Died, StopIteration):
                    pass
                except BaseException:  # noqa: BLE001 - a dead process reports nothing
                    continue
        self._runs = False
        if not self.is_closed():
            self.close()

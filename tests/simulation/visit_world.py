"""A world of processes whose threads and tasks visit a few locks, with faults that the seed chooses."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from django_redis_locks import LockBackendError, LockLost, LockNotAcquired
from django_redis_locks.backends.memory import MemoryBackend
from django_redis_locks.conf import AliasSettings
from tests.simulation.faces import Face, TaskFace, ThreadFace, run_in_thread
from tests.simulation.faults import Faults
from tests.simulation.nemesis import Nemesis
from tests.simulation.network import LOCATION, Server
from tests.simulation.process import Process
from tests.simulation.scheduler import Interrupted, Scheduler

if TYPE_CHECKING:
    from random import Random

    from django_redis_locks import Grant
    from tests.simulation.installation import Installation
    from tests.simulation.scheduler import Actor
    from tests.simulation.visit_rules import Section, VisitRules

KEYS = ["a", "b"]

LATEST = 300.0
"""Seconds after which every visit must be over."""

QUIET = 45.0
"""Seconds in which the longest lease, and the longest stop of an idle process, end."""


class VisitWorld(ABC):
    """One simulation."""

    rules: VisitRules

    def __init__(self, seed: int, installation: Installation) -> None:
        self.scheduler = scheduler = Scheduler(seed)
        random = scheduler.random
        self.faults = Faults(scheduler)
        self.server = Server(scheduler, self.faults)
        installation.begin(scheduler, self.server)
        self.installation = installation
        self.lease = random.choice([1.0, 3.0, 8.0])
        self.settings = AliasSettings(
            "default",
            MemoryBackend,
            LOCATION,
            {},
            "lock",
            int(1000 * self.lease),
            5.0,
            60.0,
            False,
            True,
            False,
            (),
            "answer",
        )
        self.rules = self.make_rules(seed)
        installation.on_event = self.rules.receive
        self.processes = [
            Process(self.server, f"p{number}", self.settings) for number in range(random.choice([2, 2, 3, 4]))
        ]
        self.nemesis = Nemesis(self)

    @abstractmethod
    def make_rules(self, seed: int) -> VisitRules:
        """Make the rules, before there is a process."""

    @abstractmethod
    def draw_visit(self, random: Random) -> Any:
        """Draw a visit: its ``key``, ``pause``, ``wait``, ``expire``, ``block``, ``steps`` and ``never_releases``."""

    @abstractmethod
    def lock_of(self, process: Process, visit: Any) -> Any:
        """Return the lock object of a visit."""

    @abstractmethod
    def force(self, process: Process) -> None:
        """Free a lock by force, like an operator."""

    def run(self) -> None:
        self.nemesis.begin()
        for process in self.processes[:]:
            self.populate(process)
        self.finish()

    def finish(self) -> None:
        self.scheduler.run_until(self._quiet, LATEST)
        self.scheduler.run(self.scheduler.now + QUIET)
        self.rules.check_end()

    def close(self) -> None:
        for process in self.processes:
            if not process.dead:
                process.kill()
        for process in self.processes:
            process.unwind()
        self.server.forget()

    def _quiet(self) -> bool:
        """Whether all visits are over."""
        return all(process.dead or not process.busy for process in self.processes)

    def populate(self, process: Process) -> None:
        """Start threads, and perhaps tasks of a loop, each with a few visits to the locks."""
        random = self.scheduler.random
        tasks = random.choice([0, 0, 1, 2])
        threads = random.choice([1, 2]) if tasks else random.choice([1, 2, 2, 3])
        for number in range(threads):
            process.thread(f"thread {number}", partial(self._thread, process, self._visits()))
        if tasks:
            process.loop("loop", partial(self._loop, process, [self._visits() for _ in range(tasks)]))

    def _visits(self) -> list[Any]:
        random = self.scheduler.random
        return [self.draw_visit(random) for _ in range(random.choice([1, 2, 2, 3]))]

    def _thread(self, process: Process, visits: list[Any]) -> None:
        run_in_thread(self._script(process, ThreadFace, visits))

    async def _loop(self, process: Process, plans: list[list[Any]]) -> None:
        async with asyncio.TaskGroup() as group:
            for number, visits in enumerate(plans):
                group.create_task(self._script(process, TaskFace, visits), name=f"task {number}")

    async def _script(self, process: Process, face: type[Face], visits: list[Any]) -> None:
        for visit in visits:
            await face.sleep(visit.pause)
            await self.visit(process, face, visit)
            if visit.never_releases:
                return  # its owner ends, and with it the renewal

    async def visit(self, process: Process, face: type[Face], visit: Any) -> None:
        """Acquire the lock of a visit, hold it, and release it."""
        section = self.rules.begins(process, visit)
        try:
            await self._visit(process, face, visit, section)
        except (Interrupted, asyncio.CancelledError):
            self.rules.interrupted(section)
        finally:
            self.rules.ends(section)

    async def _acquire(self, face: type[Face], lock: Any, visit: Any) -> Grant | None:
        if visit.block:
            grant: Grant | None = await face.enter(lock)
        else:
            grant = await face.call(lock, "acquire", timeout=visit.wait)
        return grant

    async def _visit(self, process: Process, face: type[Face], visit: Any, section: Section) -> None:
        lock = self.lock_of(process, visit)
        try:
            grant = await self._acquire(face, lock, visit)
        except LockNotAcquired as error:
            self.rules.refused(section, error)
            return
        except LockBackendError as error:
            self.rules.failed(section, error)
            return
        if grant is None:
            self.rules.refused(section, None)
            return
        self.rules.entered(section, grant)
        error: BaseException | None = None
        try:
            for step in visit.steps:
                await self._step(process, face, lock, section, *step)
                self.rules.inside(section)
        except LockLost as failure:
            self.rules.lost(section, failure)
        except BaseException as failure:
            error = failure
            raise
        finally:
            try:
                if visit.block:
                    await self._release(section, partial(face.leave, lock, error), error is not None)
                elif not visit.never_releases and not section.over:
                    await self._release(section, partial(face.call, grant, "release"))
            finally:
                del error  # a reference cycle of exception and frame would keep the grant

    async def _release(self, section: Section, release: Callable[[], Any], fails: bool = False) -> None:
        self.rules.leaving(section)
        try:
            await release()
        except LockLost as error:
            self.rules.lost(section, error)
        except LockBackendError as error:
            self.rules.failed(section, error)
        else:
            if not fails:  # a block that fails raises its own exception, also if the lock is lost
                self.rules.released(section)

    async def _step(
        self, process: Process, face: type[Face], lock: Any, section: Section, kind: str, amount: float
    ) -> None:
        try:
            await self._do(process, face, lock, section, kind, amount)
        except LockBackendError as error:
            self.rules.failed(section, error)

    async def _do(
        self, process: Process, face: type[Face], lock: Any, section: Section, kind: str, amount: float
    ) -> None:
        """Carry out a step of a holder."""
        if kind == "stay":
            await face.sleep(amount)
        elif kind == "extend":
            await face.call(section.grant, "extend", amount)
        elif kind == "confirm":
            await face.call(section.grant, "ensure_held", confirm=True)
        elif kind == "look":
            await face.call(lock, "holder")
        elif kind == "reenter":
            inner = await face.call(lock, "acquire", timeout=1.0)
            try:
                await face.sleep(0.001)
            finally:
                await face.call(inner, "release")

    def fork(self, process: Process, thread: Actor) -> None:
        """Fork. The child releases the grants of its parent, like the end of a block, and visits the locks itself."""
        grants = [section.grant for section in self.rules.sections if section.process is process and section.grant]
        child = process.fork()
        self.processes.append(child)
        self.rules.forked(process, child, grants)
        child.thread("thread that forked", partial(self._give_back, child, grants)).inherit(thread)
        self.populate(child)

    def _give_back(self, child: Process, grants: list[Grant]) -> None:
        for grant in grants:
            self.rules.inherited(child, grant)
            grant.release()
        run_in_thread(self._script(child, ThreadFace, self._visits()))

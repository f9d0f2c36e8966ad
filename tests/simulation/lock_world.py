"""The lock world: processes that contend for a few locks, with faults that the seed chooses."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from django_redis_locks import LockBackendError, LockLost, LockNotAcquired
from django_redis_locks.backends.memory import MemoryBackend
from django_redis_locks.conf import AliasSettings
from tests.simulation.faces import Face, TaskFace, ThreadFace, run_in_thread
from tests.simulation.fair_order import FairOrder
from tests.simulation.faults import Faults
from tests.simulation.lock_defects import TRIGGERS
from tests.simulation.lock_plans import Visit, draw_visit
from tests.simulation.lock_rules import LockRules, store_key
from tests.simulation.nemesis import Nemesis
from tests.simulation.network import LOCATION, Server
from tests.simulation.process import Process
from tests.simulation.scheduler import Interrupted, Scheduler

if TYPE_CHECKING:
    from django_redis_locks import Grant
    from tests.simulation.installation import Installation
    from tests.simulation.lock_rules import Section
    from tests.simulation.scheduler import Actor

KEYS = ["a", "b"]

LATEST = 300.0
"""Seconds after which every visit must be over."""

QUIET = 45.0
"""Seconds in which the longest lease, and the longest stop of an idle process, end."""


class LockWorld:
    """One simulation."""

    def __init__(self, seed: int, installation: Installation, triggers: frozenset[str] = frozenset()) -> None:
        self.scheduler = scheduler = Scheduler(seed)
        random = scheduler.random
        self.faults = Faults(scheduler)
        self.server = Server(scheduler, self.faults)
        installation.begin(scheduler, self.server)
        self.installation = installation
        self.triggers = triggers
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
        self.fair = seed % 4 == 3 and not triggers
        """All locks are fair ones."""
        self.rules = LockRules(self)
        self.order = FairOrder(self.server, [store_key(key) for key in KEYS] if self.fair else [])
        installation.on_event = self.rules.receive
        self.processes = [
            Process(self.server, f"p{number}", self.settings) for number in range(random.choice([2, 2, 3, 4]))
        ]
        self.nemesis = Nemesis(self)

    def run(self) -> None:
        if self.triggers:
            for trigger in sorted(self.triggers):
                TRIGGERS[trigger](self, self.processes[0])
        else:
            self.nemesis.begin()
        for process in self.processes[1:] if self.triggers else self.processes:
            self.populate(process)
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

    def _visits(self) -> list[Visit]:
        random = self.scheduler.random
        return [draw_visit(random, KEYS, self.lease) for _ in range(random.choice([1, 2, 2, 3]))]

    def _thread(self, process: Process, visits: list[Visit]) -> None:
        run_in_thread(self._script(process, ThreadFace, visits))

    async def _loop(self, process: Process, plans: list[list[Visit]]) -> None:
        async with asyncio.TaskGroup() as group:
            for number, visits in enumerate(plans):
                group.create_task(self._script(process, TaskFace, visits), name=f"task {number}")

    async def _script(self, process: Process, face: type[Face], visits: list[Visit]) -> None:
        for visit in visits:
            await face.sleep(visit.pause)
            section = self.rules.begins(process, visit)
            try:
                await self._visit(process, face, visit, section)
            except (Interrupted, asyncio.CancelledError):
                self.rules.interrupted(section)
            finally:
                self.rules.ends(section)
            if visit.never_releases:
                return  # its owner ends, and with it the renewal

    async def _visit(self, process: Process, face: type[Face], visit: Visit, section: Section) -> None:
        make = process.locks.fair_lock if self.fair else process.locks.lock
        lock = replace(make(visit.key, expire=visit.expire, wait=visit.wait), reentrant=visit.reentrant)
        try:
            if visit.block:
                grant = await face.enter(lock)
            else:
                grant = await face.call(lock, "acquire", timeout=visit.wait)
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
                elif not visit.never_releases:
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
        except LockBackendError as error:
            self.rules.failed(section, error)

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

    def force(self, process: Process) -> None:
        """Free a lock by force, like an operator."""
        key = self.scheduler.random.choice(KEYS)
        self.rules.forced(key)
        try:
            process.locks.lock(key).force_release("simulated")
        except LockBackendError:
            pass
        self.rules.forced(key)

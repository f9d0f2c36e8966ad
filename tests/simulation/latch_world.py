"""The latch world: processes that set, count down and wait for one latch, with faults that the seed chooses."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

from django_redis_locks import LockBackendError, LockLost
from django_redis_locks.backends.memory import MemoryBackend
from django_redis_locks.conf import AliasSettings
from django_redis_locks.primitives.shared import latch_commands
from tests.simulation.faces import Face, TaskFace, ThreadFace, run_in_thread
from tests.simulation.faults import Faults
from tests.simulation.latch_rules import LatchRules, minting
from tests.simulation.nemesis import Nemesis
from tests.simulation.network import LOCATION, Server
from tests.simulation.process import Process
from tests.simulation.scheduler import Interrupted, Scheduler

if TYPE_CHECKING:
    from tests.simulation.installation import Installation
    from tests.simulation.scheduler import Actor

KEY = "l"

LATEST = 400.0
"""Seconds after which every call must be over: a wait without a timeout ends with the lifetime of its latch."""

QUIET = 10.0
"""Seconds in which the engines clean up."""

Step = tuple[str, Any, float]
"""A method, its argument, and the pause before."""


class LatchWorld:
    """One simulation."""

    def __init__(self, seed: int, installation: Installation, triggers: frozenset[str] = frozenset()) -> None:
        self.scheduler = scheduler = Scheduler(seed)
        random = scheduler.random
        self.faults = Faults(scheduler)
        self.server = Server(scheduler, self.faults)
        installation.begin(scheduler, self.server)
        self.store_key = f"lock:{{0}}:k:{KEY}"
        self.size = random.choice([1, 2, 2, 3, 4])
        self.lifetime = random.choice([3.0, 20.0, 20.0, 60.0])
        settings = AliasSettings(
            "default", MemoryBackend, LOCATION, {}, "lock", 10_000, 5.0, 60.0, False, True, False, (), "answer"
        )
        self.rules = LatchRules(self)
        installation.on_event = lambda event: None
        self._mint = latch_commands._mint_nonce
        latch_commands._mint_nonce = minting(self.rules)
        self.processes = [Process(self.server, f"p{number}", settings) for number in range(random.choice([2, 2, 3, 4]))]
        self.nemesis = Nemesis(self)

    def run(self) -> None:
        self.nemesis.begin()
        for process in self.processes[:]:
            self.populate(process)
        self.scheduler.run_until(self._quiet, LATEST)
        self.scheduler.run(self.scheduler.now + QUIET)
        self.rules.check_end()

    def close(self) -> None:
        latch_commands._mint_nonce = self._mint
        for process in self.processes:
            if not process.dead:
                process.kill()
        for process in self.processes:
            process.unwind()
        self.server.forget()

    def _quiet(self) -> bool:
        return all(process.dead or not process.busy for process in self.processes)

    def populate(self, process: Process) -> None:
        """Start threads, and perhaps tasks of a loop, each with a few calls."""
        random = self.scheduler.random
        tasks = random.choice([0, 0, 2, 3])
        for number in range(random.choice([1, 2, 3])):
            process.thread(f"thread {number}", partial(self._thread, process, self._steps()))
        if tasks:
            process.loop("loop", partial(self._loop, process, [self._steps() for _ in range(tasks)]))

    def _steps(self) -> list[Step]:
        """A caller that mostly sets, mostly counts, or mostly waits."""
        random = self.scheduler.random
        usual = random.choice(["try_set", "count_down", "count_down", "wait", "wait"])
        steps: list[Step] = []
        for _ in range(random.choice([2, 3, 4, 5])):
            method = usual if random.random() < 0.7 else random.choice(["try_set", "count_down", "wait", "count"])
            argument = {
                "try_set": self.size,
                "count_down": random.choice([None, None, "a", "b", "c"]),
                "wait": random.choice([0.0, 0.5, 3.0, 12.0, 12.0, None]),
                "count": None,
            }[method]
            steps.append((method, argument, random.choice([0.0, 0.0, 0.01, random.uniform(0.0, 2.0)])))
        return steps

    def _thread(self, process: Process, steps: list[Step]) -> None:
        run_in_thread(self._script(process, ThreadFace, steps))

    async def _loop(self, process: Process, plans: list[list[Step]]) -> None:
        async with asyncio.TaskGroup() as group:
            for number, steps in enumerate(plans):
                group.create_task(self._script(process, TaskFace, steps), name=f"task {number}")

    async def _script(self, process: Process, face: type[Face], steps: list[Step]) -> None:
        latch = process.locks.latch(KEY)
        for method, argument, pause in steps:
            await face.sleep(pause)
            arguments = {"try_set": (argument, self.lifetime), "count": ()}.get(method, (argument,))
            call = self.rules.begins(process, method, argument)
            name = "wait_" if method == "wait" and face is TaskFace else method  # its twin is await_
            try:
                result = await face.call(latch, name, *arguments)
            except LockLost as error:
                self.rules.lost(call, error)
            except LockBackendError as error:
                self.rules.failed(call, error)
            except (Interrupted, asyncio.CancelledError):
                self.scheduler.log("is interrupted")
            else:
                self.rules.returned(call, result)
            finally:
                self.rules.ends(call)

    def fork(self, process: Process, thread: Actor) -> None:
        """Fork. The child has the latches of its parent, and none of its waiters."""
        child = process.fork()
        self.processes.append(child)
        self.rules.killed(process)
        child.thread("thread that forked", partial(self._thread, child, self._steps())).inherit(thread)
        self.populate(child)

    def force(self, process: Process) -> None:
        """Delete the latch, like an operator."""
        self.server.store.records.pop(self.store_key, None)
        self.rules.deleted()

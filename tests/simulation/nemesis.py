"""Faults of processes and of the server, at times that the seed chooses."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.simulation.process import Process

FREQUENT = ("signal", "signal", "stop")
"""Faults that are drawn more often than the others."""

PARTS = ("records", "queues", "heartbeats", "indexes", "fences", "requests")
"""The parts of the store that a snapshot has."""


class Nemesis:
    """Injects faults into a world by its ``scheduler``, ``faults``, ``server``, ``processes`` and ``rules``."""

    def __init__(self, world: Any) -> None:
        self.world = world
        self.scheduler = world.scheduler
        self.faults = world.faults
        self.server = world.server
        self.random = world.scheduler.random
        self.kinds: dict[str, Callable[[], None]] = {
            "stop": self._stop,
            "kill": self._kill,
            "fork": self._fork,
            "cut": self._cut,
            "restart": self._restart,
            "wipe": self._wipe,
            "set back": self._set_back,
            "clock": self._clock,
            "server clock": self._server_clock,
            "signal": self._signal,
            "force": self._force,
        }

    def begin(self) -> None:
        """Draw the faults of this simulation."""
        random, faults = self.random, self.faults
        faults.slowness = random.choice([1e-4, 3e-4, 3e-3])
        for kind in ("request lost", "reply lost", "late"):
            if random.random() < 0.5:
                faults.chances[kind] = random.choice([0.01, 0.04, 0.1])
        faults.left = random.choice([1, 2, 4])
        for _ in range(random.choice([1, 1, 2, 3, 4])):
            moment = random.choice([random.uniform(0.0, 0.02), random.uniform(0.0, 1.0), random.uniform(0.0, 8.0)])
            self.scheduler.at(moment, self.kinds[random.choice([*self.kinds, *FREQUENT])])

    def _victim(self) -> Process | None:
        living = [process for process in self.world.processes if not process.dead]
        return self.random.choice(living) if living else None

    def _happens(self, kind: str, about: object = "") -> None:
        self.faults.count(kind)
        self.scheduler.log("*** %s %s", kind, about)

    def _stop(self) -> None:
        victim = self._victim()
        if victim is not None:
            seconds = self.random.choice([0.05, 1.0, 5.0, 20.0])
            self._happens("stop", f"{victim.name} for {seconds} s")
            self.faults.disturb(seconds + 0.1, victim, "stop")
            victim.stop(seconds)

    def _kill(self) -> None:
        victim = self._victim()
        if victim is not None and sum(not process.dead for process in self.world.processes) > 1:
            self._happens("kill", victim.name)
            victim.kill()
            self.world.rules.killed(victim)

    def _fork(self) -> None:
        victim = self._victim()
        if victim is not None and not victim.stopped:
            threads = [actor for actor in victim.living if actor and actor.name.startswith("thread")]
            if threads:
                self._happens("fork", victim.name)
                self.world.fork(victim, self.random.choice(threads))

    def _cut(self) -> None:
        victim = self._victim() if self.random.random() < 0.7 else None
        self._happens("cut", victim.name if victim is not None else "all")
        self.faults.disturb(1.7, victim, "cut")
        self.server.cut(victim)

    def _restart(self, seconds: float | None = None) -> None:
        """The server goes down and comes back with its data."""
        seconds = self.random.choice([0.01, 0.5, 3.0, 8.0]) if seconds is None else seconds
        self._happens("restart", f"{seconds} s")
        self.faults.disturb(seconds + 2.7, None, "restart")
        self.server.cut()
        self.server.down_until = self.scheduler.now + seconds

    def _wipe(self) -> None:
        """The server comes back empty."""
        self._restart(0.01)
        store = self.server.store
        for part in (*PARTS, "values"):
            getattr(store, part).clear()
        self._happens("wipe")
        self.world.rules.data_lost()

    def _set_back(self) -> None:
        """Take a snapshot, and restore the server from it later."""
        store = self.server.store
        snapshot = {part: copy.deepcopy(getattr(store, part)) for part in PARTS}
        self.scheduler.at(self.scheduler.now + self.random.uniform(0.05, 3.0), lambda: self._restore(snapshot))

    def _restore(self, snapshot: dict[str, Any]) -> None:
        self._restart(0.01)
        for name, value in snapshot.items():
            part = getattr(self.server.store, name)
            part.clear()
            part.update(value)
        self._happens("set back")
        self.world.rules.data_lost()

    def _clock(self) -> None:
        """Set the wall clock of a process."""
        victim = self._victim()
        if victim is not None:
            victim.wall_ahead = self.random.choice([-3600.0, -1.0, 2.0, 3600.0])
            self._happens("clock", f"of {victim.name} by {victim.wall_ahead}")

    def _server_clock(self) -> None:
        """Set the wall clock of the server; its leases aren't affected."""
        self.server.clock_offset = self.random.choice([-3600.0, -0.5, 0.5, 60.0])
        self._happens("server clock", self.server.clock_offset)
        self.world.rules.server_clock_set()

    def _signal(self) -> None:
        """Let a signal handler raise in a thread, or cancel a task."""
        victim = self._victim()
        if victim is None or victim.stopped:
            return
        targets: list[Callable[[], object]] = [
            partial(self._interrupt, actor) for actor in victim.living if actor.name.startswith("thread")
        ]
        targets += [
            partial(loop.call_soon_threadsafe, task.cancel)
            for loop in victim.loops
            for task in loop.tasks
            if not task.done() and task.get_name().startswith("task")
        ]
        if targets:
            self._happens("signal", victim.name)
            self.scheduler.enter(victim)
            self.random.choice(targets)()
            self.scheduler.enter(None)

    @staticmethod
    def _interrupt(actor: Any) -> None:
        actor.interruptions += 1
        actor.wake()

    def _force(self) -> None:
        """An operator frees a lock."""
        victim = self._victim()
        if victim is not None:
            self._happens("force", victim.name)
            victim.thread("operator", lambda: self.world.force(victim))

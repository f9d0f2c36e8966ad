"""One run: measures the adapters of each case in worker processes, and collects their figures."""

from __future__ import annotations

import os
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from tools.redis_cluster import RedisCluster
from tools.redis_sentinel import SentinelGroup
from tools.redis_server import RedisServer

from .adapters import ADAPTERS
from .jobs import Job, JobFailed
from .stats import nanmedian, ratio

Placement = Literal["same", "split", "none"]


@dataclass
class Case:
    """One table: the figures of each adapter, a value per round."""

    row: str
    name: str
    placement: Placement
    figures: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    def add(self, adapter: str, metric: str, value: float) -> None:
        self.figures.setdefault(adapter, {}).setdefault(metric, []).append(value)

    def series(self, adapter: str, metric: str) -> list[float]:
        return self.figures.get(adapter, {}).get(metric, [])

    def value(self, adapter: str, metric: str) -> float:
        return nanmedian(self.series(adapter, metric))

    def ratio(self, ours: str, theirs: str, metric: str) -> float:
        return ratio(self.series(ours, metric), self.series(theirs, metric))


class Bench:
    def __init__(self, server: RedisServer, rounds: int, only: Sequence[str] = ()) -> None:
        self.server = server
        self.rounds = rounds
        self.only = only
        self.cases: list[Case] = []
        self.versions: dict[str, str] = {}
        self.locations = {"server": server.url()}
        cpus = sorted(os.sched_getaffinity(0))
        self.cpus = {"same": (cpus[0], cpus[0]), "split": (cpus[0], cpus[-1])}
        self._everywhere = set(cpus)

    def selected(self, adapters: Iterable[str]) -> list[str]:
        """The adapters that the command line selects: by name, or all of this library by `ours`."""
        if not self.only:
            return list(adapters)
        return [name for name in adapters if name in self.only or (name.startswith("ours") and "ours" in self.only)]

    def run_interleaved(
        self,
        case: Case,
        adapters: Iterable[str],
        scenario: str,
        *,
        seconds: float,
        repeats: int = 6,
        **options: Any,
    ) -> None:
        """Measure short slices of all adapters alternately, A B C C B A; each round in fresh processes.

        The figure of a round is its best slice, because other load on the machine only adds time.
        """
        adapters = self.selected(adapters)
        for number in range(self.rounds):
            self._progress(case, number)
            self.server.flush()
            samples = defaultdict[tuple[str, str], list[float]](list)
            with ExitStack() as stack:
                jobs: dict[str, Job] = {}
                for name in adapters:
                    with recording_failure(case, name):
                        jobs[name] = stack.enter_context(self._job(case, name, scenario, options))
                for name, job in jobs.items():
                    with recording_failure(case, name):
                        self.versions.update(job.ready())
                for repeat in range(repeats):
                    alive = [name for name in jobs if name not in case.failed]
                    for name in alive if repeat % 2 == 0 else reversed(alive):
                        with recording_failure(case, name):
                            for metric, value in jobs[name].measure(seconds=seconds).items():
                                samples[name, metric].append(value)
            for (name, metric), values in samples.items():
                case.add(name, metric, max(values) if metric == "pairs" else min(values))

    def run_one_by_one(
        self,
        case: Case,
        adapters: Iterable[str],
        scenario: str,
        *,
        arguments: dict[str, Any] | None = None,
        max_rounds: int | None = None,
        **options: Any,
    ) -> None:
        """Measure one adapter at a time, A B C and in the next round C B A, each in a fresh process."""
        adapters = self.selected(adapters)
        for number in range(min(self.rounds, max_rounds or self.rounds)):
            self._progress(case, number)
            for name in adapters if number % 2 == 0 else reversed(adapters):
                if name in case.failed:
                    continue
                self.server.flush()
                with recording_failure(case, name), self._job(case, name, scenario, options) as job:
                    self.versions.update(job.ready())
                    for metric, value in job.measure(**(arguments or {})).items():
                        case.add(name, metric, value)

    def run_steps(
        self,
        case: Case,
        adapters: Iterable[str],
        scenario: str,
        *,
        steps: tuple[str, Sequence[int]],
        figure: Callable[[dict[str, float]], float],
        max_rounds: int,
        seconds: float,
        **options: Any,
    ) -> None:
        """Measure one adapter at a time for each value of an argument; each value is a metric of the case."""
        argument, values = steps
        repeats = 3 if seconds < 1 else 1
        for number in range(min(self.rounds, max_rounds)):
            self._progress(case, number)
            for name in self.selected(adapters):
                self.server.flush()
                with recording_failure(case, name), self._job(case, name, scenario, options) as job:
                    self.versions.update(job.ready())
                    for value in values:
                        samples = [figure(job.measure(seconds=seconds, **{argument: value})) for _ in range(repeats)]
                        case.add(name, str(value), min(samples))

    @contextmanager
    def stores(self) -> Iterator[None]:
        """Start the servers of the other stores."""
        with ExitStack() as stack:
            five = [stack.enter_context(RedisServer()) for _ in range(5)]
            group = stack.enter_context(SentinelGroup())
            self.locations |= {
                "cluster": stack.enter_context(RedisCluster(replicas=0)).location(),
                "replicated": group.servers[0].url(),
                "sentinel": group.location(),
                "five": " ".join(server.url() for server in five),
            }
            yield

    def case(self, row: str, name: str, placement: Placement) -> Case:
        case = Case(row, name, placement)
        self.cases.append(case)
        return case

    def _job(self, case: Case, name: str, scenario: str, options: dict[str, Any]) -> Job:
        server, client = self.cpus.get(case.placement, (None, None))
        os.sched_setaffinity(self.server.pid, self._everywhere if server is None else {server})
        return Job(name, scenario, self.locations[ADAPTERS[name].store], client, options)

    def _progress(self, case: Case, number: int) -> None:
        print(f"\r\033[Krow {case.row}, {case.name}: round {number + 1}", end="", file=sys.stderr, flush=True)


@contextmanager
def recording_failure(case: Case, name: str) -> Iterator[None]:
    """Record the failure of an adapter, which excludes it from the rest of this case."""
    try:
        yield
    except JobFailed as error:
        case.failed[name] = str(error)


def label(adapter: str) -> str:
    return ADAPTERS[adapter].label

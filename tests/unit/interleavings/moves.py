"""What may happen next, and what may go wrong."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from math import inf
from typing import Any, NamedTuple

from .machines import Processes
from .moments import ticks
from .plans import Plan
from .process import KEYS, Input
from .sights import numbers_in
from .store import Request, Store

DEAD = -1

COPY_LIVES = 2.5
"""Seconds after which a late copy of a request comes no more: out of socket buffers within a second or so, or not at
all. The janitor sweeps after three for the last time before the lease is over."""


@dataclass(frozen=True)
class Scenario:
    """Who comes, and what may go wrong.

    Attributes:
        plans: of the contenders of each process.
        faults: how many of these may happen on a path.
        kinds: "reply", "request", "late": nobody hears the answer to a request, which was carried out, or is lost, or
            comes late; "cancel": an asynchronous caller is cancelled; "signal": a handler raises at a local effect;
            "death": a process ends; "deaf": its inbox loses its connection; "slow": time passes although something
            could move.
        passes: so many times in a row the lock may be handed over within a process while another one waits for it.
        most: states. Beyond them the scenario isn't explored.
    """

    plans: tuple[tuple[Plan, ...], ...]
    faults: int = 0
    kinds: frozenset[str] = frozenset()
    passes: float = inf
    most: float = inf


class Copy(NamedTuple):
    """A request that its sender gave up, and that the store may still carry out."""

    sender: int
    name: str
    keys: tuple[str, ...]
    args: tuple[str | int, ...]
    left: float


class State(NamedTuple):
    store: int
    processes: tuple[int, ...]
    messages: tuple[tuple[str, ...], ...]
    """On their way to each process."""
    copies: tuple[Copy, ...]
    faults: int
    """That may still happen."""
    excused: bool
    """What happened leaves waiters to their caps, and the lock to its lease."""
    lingering: bool
    """What happened leaves somebody who has gone in the line, until that expires."""
    passed: int
    """Hand-overs in a row while another process waited."""


class Move(NamedTuple):
    fault: str
    """Its kind; "" if all goes well."""
    what: tuple[Any, ...]
    after: State


class Moves:
    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.store = Store()
        machines = {plans: Processes(plans) for plans in scenario.plans}
        self.machines = [machines[plans] for plans in scenario.plans]
        each = len(scenario.plans)
        blocked = any(plan.blocked for plans in scenario.plans for plan in plans)
        self.begin = State(0, (0,) * each, ((),) * each, (), scenario.faults, blocked, blocked, 0)

    def of(self, state: State) -> Iterator[Move]:
        kinds = self.scenario.kinds if state.faults else frozenset[str]()
        idle = True
        for process, number in enumerate(state.processes):
            if number != DEAD:
                for move in self._own(state, process, kinds):
                    idle = idle and bool(move.fault)
                    yield move
                if kinds:
                    yield from self._interruptions(state, process, kinds)
        for copy in state.copies:
            yield Move("", ("arrives", copy), self._arrived(state, copy))
        if idle or "slow" in kinds:
            yield from self._later(state, idle)

    def _own(self, state: State, process: int, kinds: frozenset[str]) -> Iterator[Move]:
        """What a process does."""
        sight = self.machines[process].sights[state.processes[process]]
        for step in sight.steps:
            input = (*step[:2], self._unused(state, process)) if step[0] == "begin" else step
            yield Move("", ("step", process, step), self._stepped(state, process, input))
        for index, command in sight.requests:
            yield from self._asking(state, process, command, ("reply", index), ("fail", index), kinds)
        for lock_id, command in sight.cleanups:
            yield from self._asking(state, process, command, ("errand", lock_id), ("errand", lock_id, None), kinds)
        for index in sight.listens:
            yield from self._listening(state, process, ("listen", index))
        if sight.deaf:
            yield from self._listening(state, process, ("hear_again",))
        if state.messages[process]:
            number, *rest = state.messages[process]
            told = state._replace(messages=_put(state.messages, process, tuple(rest)))
            yield Move("", ("step", process, ("told",)), self._stepped(told, process, ("told", number)))

    def _interruptions(self, state: State, process: int, kinds: frozenset[str]) -> Iterator[Move]:
        sight = self.machines[process].sights[state.processes[process]]
        less = state._replace(faults=state.faults - 1)
        if "cancel" in kinds:
            for index in (*sight.sleeping, *sight.listens):
                input: Input = ("cancel", index)
                yield Move("cancel", ("step", process, input), self._stepped(less, process, input))
            for index, command in sight.requests:
                yield from self._losing(less, process, command, ("cancel", index), "cancel")
        if "signal" in kinds:
            for index in sight.interruptible:
                for done in (False, True):
                    input = ("signal", index, done)
                    yield Move("signal", ("step", process, input), self._stepped(less, process, input))
        if "deaf" in kinds and sight.listening:
            less = less._replace(messages=_put(less.messages, process, ()))
            for noticed in (False, True):
                store = self.store.subscribe(less.store, process, False) if noticed else less.store
                after = self._stepped(less._replace(store=store), process, ("deafen",))
                yield Move("deaf", ("step", process, ("deafen", noticed)), after)
        if "death" in kinds and not sight.over:
            yield from self._dying(less, process)

    def _stepped(self, state: State, process: int, input: Input) -> State:
        machine = self.machines[process]
        after = machine.step(state.processes[process], input)
        state = state._replace(processes=_put(state.processes, process, after))
        return state._replace(excused=True, lingering=True) if machine.sights[after].gave_up else state

    def _unused(self, state: State, process: int) -> int:
        """The smallest number of a queue that nothing reminds of any more: as good as one that never was."""
        known = set(self.machines[process].sights[state.processes[process]].numbers)
        known |= {int(number, 16) for number in state.messages[process]}
        known |= numbers_in(tuple(a for a in self.store.queues[state.store] if a.startswith(f"{KEYS.inbox}{process} ")))
        known |= {number for copy in state.copies if copy.sender == process for number in numbers_in(copy.args)}
        return next(number for number in count(1) if number not in known)

    def _called(self, state: State, process: int, request: Request) -> tuple[State, Any]:
        """The store carries a request out."""
        alive = [(p, self.machines[p].sights[n]) for p, n in enumerate(state.processes) if n != DEAD]
        known = [sight.last for _, sight in alive]
        known += [arg for copy in state.copies for arg in copy.args if isinstance(arg, int)]
        done = self.store.carry_out(state.store, process, request, max([self.store.last[state.store], *known]) + 1)
        messages = state.messages
        for whom, number in done.told:
            if not any(p == whom and sight.deaf for p, sight in alive):
                messages = _put(messages, whom, (*messages[whom], number))
        return state._replace(store=done.after, messages=messages), done.reply

    def _asking(
        self,
        state: State,
        process: int,
        request: Request,
        answered: Input,
        outcome_unknown: Input,
        kinds: frozenset[str],
    ) -> Iterator[Move]:
        after, reply = self._called(state, process, request)
        if request.name == "lock/acquire" and (isinstance(reply, int) or reply[0] == 1):
            after = after._replace(passed=self._passed(state, process, request, reply))
        yield Move("", ("asks", process, answered, request, reply), self._stepped(after, process, (*answered, reply)))
        if kinds & {"reply", "request", "late"}:
            less = state._replace(faults=state.faults - 1)
            yield from (move for move in self._losing(less, process, request, outcome_unknown) if move.fault in kinds)

    def _passed(self, state: State, process: int, request: Request, reply: Any) -> int:
        others = any(not a.startswith(f"{KEYS.inbox}{process} ") for a in self.store.queues[state.store])
        handed = not isinstance(reply, int) and reply[2] == 0 and len(request.args) > 3 and request.args[3]
        return state.passed + 1 if self.scenario.passes < inf and handed and others else 0

    def _losing(self, state: State, process: int, request: Request, input: Input, kind: str = "") -> Iterator[Move]:
        """The sender isn't told: the store carried the request out, or doesn't, or will."""
        done, _ = self._called(state, process, request)
        later = _late(state, process, [request])
        for fate, before in (("reply", done), ("request", state), ("late", later)):
            yield Move(kind or fate, ("loses", process, input, request, fate), self._stepped(before, process, input))

    def _listening(self, state: State, process: int, input: Input) -> Iterator[Move]:
        subscribed = state._replace(store=self.store.subscribe(state.store, process, True))
        yield Move("", ("step", process, input), self._stepped(subscribed, process, input))

    def _dying(self, state: State, process: int) -> Iterator[Move]:
        sight = self.machines[process].sights[state.processes[process]]
        sent = [request for _, request in (*sight.requests, *sight.cleanups)]
        state = state._replace(
            store=self.store.subscribe(state.store, process, False),
            processes=_put(state.processes, process, DEAD),
            messages=_put(state.messages, process, ()),
            excused=True,
            lingering=True,
        )
        yield Move("death", ("dies", process, False), state)
        if sent:
            yield Move("death", ("dies", process, True), _late(state, process, sent))

    def _arrived(self, state: State, copy: Copy) -> State:
        rest = list(state.copies)
        rest.remove(copy)
        after, _ = self._called(state._replace(copies=tuple(rest)), copy.sender, copy)
        return after._replace(
            lingering=state.lingering or bool(numbers_in(copy.args) and copy.name != "waiters/unregister")
        )

    def _later(self, state: State, idle: bool) -> Iterator[Move]:
        """Time goes on to the next timer."""
        alive = [(p, n) for p, n in enumerate(state.processes) if n != DEAD]
        length = min((timer for p, n in alive for timer in self.machines[p].sights[n].timers), default=inf)
        if length == inf:
            return
        length = ticks(length)
        processes = list(state.processes)
        for p, n in alive:
            processes[p] = self.machines[p].step(n, ("time", length))
        store = self.store.later(state.store, length)
        ended = self.store.tokens[state.store] is not None and self.store.tokens[store] is None  # its end tells nobody
        after = state._replace(
            store=store,
            processes=tuple(processes),
            copies=tuple(copy._replace(left=copy.left - length) for copy in state.copies if copy.left > length),
            faults=state.faults - (not idle),
            excused=state.excused or ended,
        )
        yield Move("" if idle else "slow", ("time", length), after)


def _put(parts: tuple[Any, ...], index: int, part: Any) -> tuple[Any, ...]:
    return (*parts[:index], part, *parts[index + 1 :])


def _late(state: State, process: int, requests: list[Any]) -> State:
    copies = [Copy(process, request.name, request.keys, request.args, COPY_LIVES) for request in requests]
    return state._replace(copies=tuple(sorted((*state.copies, *copies))))

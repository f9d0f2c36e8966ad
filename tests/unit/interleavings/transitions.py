"""Transitions of the whole system: steps of the processes, passing time and injected faults."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from math import inf
from typing import Any, NamedTuple

from django_redis_locks.core.steps import positional

from .environment import ticks
from .plans import Plan
from .process import KEYS, PROCESS, Input
from .process_states import ProcessStates
from .process_view import numbers_in
from .store_states import Request, StoreStates

DEAD = -1

LATE_REQUEST_LIFETIME = 2.5
"""Seconds after which a delayed request can no longer arrive: socket buffers are emptied within about a second, or
never. The last cleanup before the lease ends is sent after three seconds."""


@dataclass(frozen=True)
class Scenario:
    """The contenders, the faults to inject and the limits of the exploration.

    Attributes:
        plans: one tuple of contenders for each process.
        faults: maximum number of faults on one path.
        kinds: faults that may be injected. "reply", "request", "late": a caller gets no reply to a request that was
            executed, was lost, or arrives later; "cancel": an asynchronous caller is cancelled; "signal": a signal
            handler raises at a local effect; "death": a process dies; "disconnect": the subscriber of a process loses
            its connection; "slow": time passes although a process could make a step.
        max_hand_overs: in a row within one process while another process waits.
        max_states: number of states after which the exploration stops.
    """

    plans: tuple[tuple[Plan, ...], ...]
    faults: int = 0
    kinds: frozenset[str] = frozenset()
    max_hand_overs: float = inf
    max_states: float = inf


class LateRequest(NamedTuple):
    """A request whose sender no longer waits for the reply, and which the store may still execute."""

    sender: int
    name: str
    keys: tuple[str, ...]
    args: tuple[Any, ...]
    expires_in: float


class Message(NamedTuple):
    """A wake-up of a queue, or with a token a grant of the lock to it."""

    queue_number: str
    token: str


class State(NamedTuple):
    store: int
    processes: tuple[int, ...]
    messages: tuple[tuple[Message, ...], ...]
    """Sent to each process, not yet received."""
    late_requests: tuple[LateRequest, ...]
    faults: int
    """How many more may be injected."""
    delay_allowed: bool
    """A fault has happened after which a waiter may sleep until its next poll, and the lock may stay until its lease
    ends."""
    stale_entry_allowed: bool
    """A fault has happened after which the address of a process that no longer waits may stay in the wait queue."""
    hand_overs_in_a_row: int
    """Hand-overs in a row while another process waited."""
    overtaken: bool = False
    """A caller got a lock with one line before a waiter that has waited longer."""


class Transition(NamedTuple):
    fault: str
    """The kind of the injected fault; "" if there is none."""
    event: tuple[Any, ...]
    after: State


class Transitions:
    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.store = StoreStates()
        process_states = {plans: ProcessStates(plans) for plans in scenario.plans}
        self.process_states = [process_states[plans] for plans in scenario.plans]
        each = len(scenario.plans)
        blocked = any(plan.blocked for plans in scenario.plans for plan in plans)
        self.initial = State(0, (0,) * each, ((),) * each, (), scenario.faults, blocked, blocked, 0)

    def from_state(self, state: State) -> Iterator[Transition]:
        kinds = self.scenario.kinds if state.faults else frozenset[str]()
        idle = True
        for process, number in enumerate(state.processes):
            if number != DEAD:
                for transition in self._process_transitions(state, process, kinds):
                    idle = idle and bool(transition.fault)
                    yield transition
                if kinds:
                    yield from self._interruption_transitions(state, process, kinds)
        for late_request in state.late_requests:
            yield Transition("", ("late_request", late_request), self._after_late_request(state, late_request))
        if idle or "slow" in kinds:
            yield from self._time_transitions(state, idle)

    def _process_transitions(self, state: State, process: int, kinds: frozenset[str]) -> Iterator[Transition]:
        """Yield the steps of one process, its requests and its cleanups."""
        view = self.process_states[process].views[state.processes[process]]
        for step in view.steps:
            input = (*step[:2], self._free_queue_number(state, process)) if step[0] == "begin" else step
            yield Transition("", ("step", process, step), self._after_input(state, process, input))
        for index, command in view.requests:
            yield from self._request_transitions(state, process, command, ("reply", index), ("fail", index), kinds)
        for lock_id, command in view.cleanups:
            yield from self._request_transitions(
                state, process, command, ("cleanup_reply", lock_id), ("cleanup_reply", lock_id, None), kinds
            )
        for index in view.subscribing:
            yield from self._subscribe_transitions(state, process, ("subscribe", index))
        if view.disconnected:
            yield from self._subscribe_transitions(state, process, ("reconnect",))
        if state.messages[process]:
            message, *rest = state.messages[process]
            delivered = state._replace(messages=_replaced(state.messages, process, tuple(rest)))
            yield Transition(
                "", ("step", process, ("message",)), self._after_input(delivered, process, ("message", *message))
            )

    def _interruption_transitions(self, state: State, process: int, kinds: frozenset[str]) -> Iterator[Transition]:
        view = self.process_states[process].views[state.processes[process]]
        one_fault_less = state._replace(faults=state.faults - 1)
        if "cancel" in kinds:
            for index in (*view.sleeping, *view.subscribing):
                input: Input = ("cancel", index)
                yield Transition("cancel", ("step", process, input), self._after_input(one_fault_less, process, input))
            for index, command in view.requests:
                yield from self._unanswered_transitions(one_fault_less, process, command, ("cancel", index), "cancel")
        if "signal" in kinds:
            for index in view.interruptible:
                for done in (False, True):
                    input = ("signal", index, done)
                    yield Transition(
                        "signal", ("step", process, input), self._after_input(one_fault_less, process, input)
                    )
        if "disconnect" in kinds and view.listening:
            one_fault_less = one_fault_less._replace(messages=_replaced(one_fault_less.messages, process, ()))
            for noticed in (False, True):
                store = self.store.subscribe(one_fault_less.store, process, False) if noticed else one_fault_less.store
                after = self._after_input(one_fault_less._replace(store=store), process, ("disconnect",))
                yield Transition("disconnect", ("step", process, ("disconnect", noticed)), after)
        if "death" in kinds and not view.finished:
            yield from self._death_transitions(one_fault_less, process)

    def _after_input(self, state: State, process: int, input: Input) -> State:
        states = self.process_states[process]
        after = states.step(state.processes[process], input)
        state = state._replace(processes=_replaced(state.processes, process, after))
        return (
            state._replace(delay_allowed=True, stale_entry_allowed=True)
            if states.views[after].cleanup_abandoned
            else state
        )

    def _free_queue_number(self, state: State, process: int) -> int:
        """The smallest queue number that no process, message or entry of the store refers to: equivalent to a new
        one."""
        known = set(self.process_states[process].views[state.processes[process]].queue_numbers)
        known |= {int(message.queue_number, 16) for message in state.messages[process]}
        known |= numbers_in(tuple(a for a in self.store.queues[state.store] if a.startswith(f"{KEYS.inbox}{process} ")))
        known |= {
            number
            for late_request in state.late_requests
            if late_request.sender == process
            for number in numbers_in(late_request.args)
        }
        return next(number for number in count(1) if number not in known)

    def _after_request(self, state: State, process: int, request: Request) -> tuple[State, Any]:
        """Execute a request in the store and deliver its messages. Returns the new state and the reply."""
        alive = [(p, self.process_states[p].views[n]) for p, n in enumerate(state.processes) if n != DEAD]
        known = [view.last_arrival for _, view in alive]
        known += [
            arg for late_request in state.late_requests for arg in positional(late_request.args) if type(arg) is int
        ]
        done = self.store.execute(
            state.store, process, request, max([self.store.last_arrival[state.store], *known]) + 1
        )
        messages = state.messages
        for target, number, token in done.notified:
            if not any(p == target and view.disconnected for p, view in alive):
                message = Message(number, token.replace(str(target), PROCESS, 1))
                messages = _replaced(messages, target, (*messages[target], message))
        return state._replace(store=done.after, messages=messages, overtaken=done.overtakes), done.reply

    def _request_transitions(
        self,
        state: State,
        process: int,
        request: Request,
        answered: Input,
        outcome_unknown: Input,
        kinds: frozenset[str],
    ) -> Iterator[Transition]:
        after, reply = self._after_request(state, process, request)
        if request.name == "lock/acquire" and (isinstance(reply, int) or reply[0] == 1):
            after = after._replace(hand_overs_in_a_row=self._hand_overs_after(state, process, request, reply))
        yield Transition(
            "", ("request", process, answered, request, reply), self._after_input(after, process, (*answered, reply))
        )
        if kinds & {"reply", "request", "late"}:
            one_fault_less = state._replace(faults=state.faults - 1)
            yield from (
                transition
                for transition in self._unanswered_transitions(one_fault_less, process, request, outcome_unknown)
                if transition.fault in kinds
            )

    def _hand_overs_after(self, state: State, process: int, request: Request, reply: Any) -> int:
        others = any(not a.startswith(f"{KEYS.inbox}{process} ") for a in self.store.queues[state.store])
        waiter = request.args.waiter
        handed = not isinstance(reply, int) and reply[2] == 0 and waiter is not None and waiter.handed
        return state.hand_overs_in_a_row + 1 if self.scenario.max_hand_overs < inf and handed and others else 0

    def _unanswered_transitions(
        self, state: State, process: int, request: Request, input: Input, kind: str = ""
    ) -> Iterator[Transition]:
        """Yield the outcomes of a request without a reply: the store has executed it, never does, or does later."""
        done, _ = self._after_request(state, process, request)
        later = _with_late_requests(state, process, [request])
        for fate, before in (("reply", done), ("request", state), ("late", later)):
            yield Transition(
                kind or fate, ("unanswered", process, input, request, fate), self._after_input(before, process, input)
            )

    def _subscribe_transitions(self, state: State, process: int, input: Input) -> Iterator[Transition]:
        subscribed = state._replace(store=self.store.subscribe(state.store, process, True))
        yield Transition("", ("step", process, input), self._after_input(subscribed, process, input))

    def _death_transitions(self, state: State, process: int) -> Iterator[Transition]:
        view = self.process_states[process].views[state.processes[process]]
        sent = [request for _, request in (*view.requests, *view.cleanups)]
        state = state._replace(
            store=self.store.subscribe(state.store, process, False),
            processes=_replaced(state.processes, process, DEAD),
            messages=_replaced(state.messages, process, ()),
            delay_allowed=True,
            stale_entry_allowed=True,
        )
        yield Transition("death", ("death", process, False), state)
        if sent:
            yield Transition("death", ("death", process, True), _with_late_requests(state, process, sent))

    def _after_late_request(self, state: State, late_request: LateRequest) -> State:
        rest = list(state.late_requests)
        rest.remove(late_request)
        after, _ = self._after_request(state._replace(late_requests=tuple(rest)), late_request.sender, late_request)
        return after._replace(
            stale_entry_allowed=state.stale_entry_allowed
            or bool(numbers_in(late_request.args) and not late_request.name.endswith("/unregister"))
        )

    def _time_transitions(self, state: State, idle: bool) -> Iterator[Transition]:
        """Advance the time to the next timer."""
        alive = [(p, n) for p, n in enumerate(state.processes) if n != DEAD]
        length = min((timer for p, n in alive for timer in self.process_states[p].views[n].timers), default=inf)
        if length == inf:
            return
        length = ticks(length)
        processes = list(state.processes)
        for p, n in alive:
            processes[p] = self.process_states[p].step(n, ("time", length))
        store = self.store.after_time(state.store, length)
        # the end of a lease notifies no waiter
        ended = not self.store.tokens[state.store] <= self.store.tokens[store]
        after = state._replace(
            store=store,
            processes=tuple(processes),
            late_requests=tuple(
                late_request._replace(expires_in=late_request.expires_in - length)
                for late_request in state.late_requests
                if late_request.expires_in > length
            ),
            faults=state.faults - (not idle),
            delay_allowed=state.delay_allowed or ended,
        )
        yield Transition("" if idle else "slow", ("time", length), after)


def _replaced(parts: tuple[Any, ...], index: int, part: Any) -> tuple[Any, ...]:
    return (*parts[:index], part, *parts[index + 1 :])


def _with_late_requests(state: State, process: int, requests: list[Any]) -> State:
    late_requests = [
        LateRequest(process, request.name, request.keys, request.args, LATE_REQUEST_LIFETIME) for request in requests
    ]
    return state._replace(late_requests=tuple(sorted((*state.late_requests, *late_requests), key=order_of)))


def order_of(late_request: LateRequest) -> Any:
    """The key by which late requests are sorted."""
    return *late_request[:3], positional(late_request.args), late_request.expires_in

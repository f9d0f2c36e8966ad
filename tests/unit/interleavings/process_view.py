"""The explorer's view of a process in one state: its possible steps, and the values that the rules check."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from django_redis_locks.core.commands import Command
from django_redis_locks.core.effects import Subscribe, Wait
from django_redis_locks.core.steps import positional
from django_redis_locks.primitives.shared.rwlock_steps import ALL_PERMITS

from .plans import Plan
from .process import KEYS, Contender, Input, Process


class ProcessView(NamedTuple):
    """Contenders are given by their index."""

    steps: tuple[Input, ...]
    """Steps that don't need the store."""
    requests: tuple[tuple[int, Command[Any]], ...]
    subscribing: tuple[int, ...]
    cleanups: tuple[tuple[int, Command[Any]], ...]
    """Due now."""
    sleeping: tuple[int, ...]
    interruptible: tuple[int, ...]
    """Contenders at a local effect that is visible to others."""
    timers: tuple[float, ...]
    wait_timers: tuple[float, ...]
    """The timers that wake waiting contenders."""
    holders: int
    """How many permits the contenders hold by their own clock; a lock with one holder has one."""
    tokens: frozenset[str]
    """Tokens that may be in the store: held, or to be deleted by a cleanup."""
    last_arrival: int
    """The latest arrival time that the process knows."""
    queue_numbers: frozenset[int]
    """Numbers of the queues that the process knows."""
    listening: bool
    disconnected: bool
    """The subscriber has lost its connection."""
    has_queues: bool
    finished: bool
    cleanup_abandoned: bool
    violation: str


def sight(process: Process, last_arrival: int) -> ProcessView:
    """The view of a process; ``last_arrival`` is the latest arrival time that it knows."""
    now = process.now
    requests: list[tuple[int, Command[Any]]] = []
    subscribing: list[int] = []
    sleeping: list[int] = []
    interruptible: list[int] = []
    timers: list[float] = []
    wait_timers: list[float] = []
    for index, contender in enumerate(process.contenders):
        effect = contender.effect
        if isinstance(effect, Command):
            requests.append((index, effect))
        elif isinstance(effect, Subscribe):
            subscribing.append(index)
        elif effect is not None:
            (interruptible if effect.local else sleeping).append(index)
        if _asleep(contender):
            assert contender.sleeps_until is not None
            wait_timers.append(contender.sleeps_until - now)
        elif contender.phase == "inside" and contender.leaves_at > now:
            timers.append(contender.leaves_at - now)
    cleanups = process.cleanups()
    timers += [cleanup[0] - now for cleanup in cleanups if cleanup[0] > now]
    blocked = any(contender.plan.blocked for contender in process.contenders)
    return ProcessView(
        steps=tuple(_steps(process)),
        requests=tuple(requests),
        subscribing=tuple(subscribing),
        cleanups=tuple((index, cleanup[2]) for index, cleanup in enumerate(cleanups) if cleanup[0] <= now),
        sleeping=tuple(sleeping),
        interruptible=tuple(interruptible),
        timers=tuple(timers + wait_timers),
        wait_timers=tuple(wait_timers),
        holders=sum(_permits(contender) for contender in process.contenders if _inside(contender)),
        tokens=frozenset(_tokens(process, cleanups)),
        last_arrival=last_arrival,
        queue_numbers=frozenset(_queue_numbers(process, [request for _, request in requests], cleanups)),
        listening=process.backend.listening,
        disconnected=process.disconnected,
        has_queues=len(process.engine._queues) > 0 and not blocked,
        finished=all(contender.phase == "over" or contender.plan.blocked for contender in process.contenders),
        cleanup_abandoned=process.cleanup_abandoned,
        violation=process.violation,
    )


def _steps(process: Process) -> Iterator[Input]:
    first_of_plan: set[Plan] = set()
    for index, contender in enumerate(process.contenders):
        if contender.phase != "new":
            step = _step(contender, process.now)
        elif (
            contender.acquisitions or contender.plan not in first_of_plan
        ):  # of contenders with equal plans the first one begins first
            step = "begin"
        else:
            step = ""
        if step:
            yield step, index
        if contender.phase == "new" and not contender.acquisitions:
            first_of_plan.add(contender.plan)


def _step(contender: Contender, now: float) -> str:
    effect = contender.effect
    if contender.phase == "inside":
        if not contender.extended:
            return "extend"
        if contender.plan.downgrades and not contender.downgraded:
            return "downgrade"
        return "release" if contender.leaves_at <= now else ""
    if isinstance(effect, Wait) and contender.sleeps_until is not None:
        return "wake" if contender.awake and not contender.plan.blocked else ""
    return "" if isinstance(effect, (Command, Subscribe, type(None))) else "run_effect"


def _asleep(contender: Contender) -> bool:
    return contender.sleeps_until is not None and not contender.awake and not contender.plan.blocked


def _inside(contender: Contender) -> bool:
    """True from the grant on, even before the program has returned it to the caller."""
    acquire_request, grant = contender.acquire_request, contender.grant
    hold = acquire_request.hold if acquire_request is not None else grant.hold if grant is not None else None
    return hold is not None and hold.live


def _permits(contender: Contender) -> int:
    writes = contender.plan.kind == "write" and not contender.downgraded
    return ALL_PERMITS if writes else contender.plan.permits


def _tokens(process: Process, cleanups: list[Any]) -> Iterator[str]:
    for contender in process.contenders:
        if contender.grant is not None:
            yield contender.grant.hold.token
    for cleanup in cleanups:
        if cleanup[2].name.endswith("/unregister"):
            address, grant = cleanup[2].args
            yield from address.split(" ")[2:3] if grant is None else [grant.token]
        elif cleanup[2].name.endswith("/release"):
            yield cleanup[2].args.token


def _queue_numbers(process: Process, requests: list[Command[Any]], cleanups: list[Any]) -> Iterator[int]:
    for by_line in process.engine._queues._queues.values():
        for queue in by_line.values():
            yield int(queue.number, 16)
    for contender in process.contenders:
        if contender.queue_number:
            yield contender.queue_number
    for request in (*requests, *(cleanup[2] for cleanup in cleanups)):
        yield from numbers_in(request.args)


def numbers_in(args: tuple[Any, ...]) -> set[int]:
    """The queue numbers in the addresses among the arguments of a command."""
    return {int(arg.split()[1], 16) for arg in positional(args) if isinstance(arg, str) and arg.startswith(KEYS.inbox)}

"""What the explorer sees of a process in a state: all that it needs to know of it to go on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from django_redis_locks.core.commands import Command
from django_redis_locks.core.effects import Subscribe, Wait

from .plans import Plan
from .process import KEYS, Contender, Input, Process


class Sight(NamedTuple):
    """Contenders are named by their index."""

    steps: tuple[Input, ...]
    """What it may do without the store."""
    requests: tuple[tuple[int, Command[Any]], ...]
    listens: tuple[int, ...]
    cleanups: tuple[tuple[int, Command[Any]], ...]
    """Due now."""
    sleeping: tuple[int, ...]
    interruptible: tuple[int, ...]
    """Contenders at a local effect that others may notice."""
    timers: tuple[float, ...]
    sleepers: tuple[float, ...]
    """Those of the timers that wake contenders who wait."""
    inside: int
    """How many hold the lock, as far as they know."""
    tokens: frozenset[str]
    """What may stand in the store: held, or to be deleted by the janitor."""
    last: int
    """The last arrival that it knows of."""
    numbers: frozenset[int]
    """Of its queues, as far as it knows of them."""
    listening: bool
    deaf: bool
    """Its inbox was lost."""
    queued: bool
    over: bool
    gave_up: bool
    complaint: str


def sight(process: Process, last: int) -> Sight:
    """``last`` is the last arrival that it knows of."""
    now = process.now
    requests: list[tuple[int, Command[Any]]] = []
    listens: list[int] = []
    sleeping: list[int] = []
    interruptible: list[int] = []
    timers: list[float] = []
    sleepers: list[float] = []
    for index, contender in enumerate(process.contenders):
        effect = contender.effect
        if isinstance(effect, Command):
            requests.append((index, effect))
        elif isinstance(effect, Subscribe):
            listens.append(index)
        elif effect is not None:
            (interruptible if effect.local else sleeping).append(index)
        if _asleep(contender):
            assert contender.until is not None
            sleepers.append(contender.until - now)
        elif contender.phase == "inside" and contender.leaves > now:
            timers.append(contender.leaves - now)
    cleanups = process.cleanups()
    timers += [errand[0] - now for errand in cleanups if errand[0] > now]
    blocked = any(contender.plan.blocked for contender in process.contenders)
    return Sight(
        steps=tuple(_steps(process)),
        requests=tuple(requests),
        listens=tuple(listens),
        cleanups=tuple((index, errand[2]) for index, errand in enumerate(cleanups) if errand[0] <= now),
        sleeping=tuple(sleeping),
        interruptible=tuple(interruptible),
        timers=tuple(timers + sleepers),
        sleepers=tuple(sleepers),
        inside=sum(_inside(contender) for contender in process.contenders),
        tokens=frozenset(_tokens(process, cleanups)),
        last=last,
        numbers=frozenset(_numbers(process, [request for _, request in requests], cleanups)),
        listening=process.backend.listening,
        deaf=process.deaf,
        queued=len(process.engine._queues) > 0 and not blocked,
        over=all(contender.phase == "over" or contender.plan.blocked for contender in process.contenders),
        gave_up=process.gave_up,
        complaint=process.complaint,
    )


def _steps(process: Process) -> Iterator[Input]:
    coming: set[Plan] = set()
    for index, contender in enumerate(process.contenders):
        if contender.phase != "new":
            step = _step(contender, process.now)
        elif contender.schedule or contender.plan not in coming:  # of equal ones the first one comes first
            step = "begin"
        else:
            step = ""
        if step:
            yield step, index
        if contender.phase == "new" and not contender.schedule:
            coming.add(contender.plan)


def _step(contender: Contender, now: float) -> str:
    effect = contender.effect
    if contender.phase == "inside":
        if not contender.extended:
            return "extend"
        return "release" if contender.leaves <= now else ""
    if isinstance(effect, Wait) and contender.until is not None:
        return "wake" if contender.awake and not contender.plan.blocked else ""
    return "" if isinstance(effect, (Command, Subscribe, type(None))) else "do"


def _asleep(contender: Contender) -> bool:
    return contender.until is not None and not contender.awake and not contender.plan.blocked


def _inside(contender: Contender) -> bool:
    """A hold counts although its program hasn't ended, and its holder doesn't know yet."""
    wish, grant = contender.ask, contender.grant
    hold = wish.hold if wish is not None else grant.hold if grant is not None else None
    return hold is not None and hold.live


def _tokens(process: Process, cleanups: list[Any]) -> Iterator[str]:
    for contender in process.contenders:
        if contender.grant is not None:
            yield contender.grant.hold.token
    for errand in cleanups:
        if errand[2].name == "lock/release":
            yield errand[2].args[0]


def _numbers(process: Process, requests: list[Command[Any]], cleanups: list[Any]) -> Iterator[int]:
    for by_loop in process.engine._queues._queues.values():
        for queue in by_loop.values():
            yield int(queue.number, 16)
    for contender in process.contenders:
        if contender.number:
            yield contender.number
    for request in (*requests, *(errand[2] for errand in cleanups)):
        yield from numbers_in(request.args)


def numbers_in(args: tuple[str | int, ...]) -> set[int]:
    """Of queues, in the addresses among the arguments of a command."""
    return {int(arg.split()[1], 16) for arg in args if isinstance(arg, str) and arg.startswith(KEYS.inbox)}

"""Formats a path through the state space as a readable trace."""

from __future__ import annotations

from typing import Any

from django_redis_locks.core.steps import positional

from .environment import FIRST_ARRIVAL
from .process import PROCESS, Input
from .transitions import Transition

_STEPS = {
    "begin": "begins to acquire",
    "run_effect": "runs its next effect",
    "wake": "has its turn",
    "subscribe": "subscribes its process",
    "extend": "is about to extend",
    "downgrade": "goes on as a reader",
    "release": "begins to release",
    "cancel": "is cancelled",
    "signal": "is interrupted",
    "message": "receives a message that the lock may be free",
    "disconnect": "loses the connection of its subscriber",
    "reconnect": "reconnects its subscriber",
}

_OUTCOMES = {"reply": "is executed", "request": "is lost", "late": "is delayed"}


class TraceFormatter:
    """Process P has the contenders Pa and Pb, and Pa the tokens Pa1, Pa2."""

    def __init__(self, processes: int) -> None:
        self._names = "PQRS"[:processes]

    def reorder(self, order: tuple[int, ...]) -> None:
        """Apply a new numbering of the processes to the following transitions."""
        self._names = "".join(self._names[p] for p in order)

    def format(self, transition: Transition) -> str:
        text = self._text(*transition.event)
        return f"{text}  [{transition.fault}]" if transition.fault else text

    def _text(self, kind: str, *event: Any) -> str:
        if kind == "time":
            return f"{event[0]:.3f} s pass"
        if kind == "late_request":
            return f"the store executes a late request: {self._request(event[0].sender, event[0])}"
        process, *more = event
        if kind == "death":
            return f"{self._names[process]} dies" + ("; its requests arrive later" if more[0] else "")
        contender = self._contender(process, more[0])
        if kind == "step":
            return f"{contender} {_STEPS[more[0][0]]}"
        request = self._request(process, more[1])
        if kind == "request":
            reply = more[2]
            return (
                f"{contender}: {request} -> {[_short(part) for part in reply] if isinstance(reply, tuple) else reply}"
            )
        outcome = "the caller is cancelled" if more[0][0] == "cancel" else "no reply arrives"
        return f"{contender}: {request}, which {_OUTCOMES[more[2]]}; {outcome}"

    def _contender(self, process: int, input: Input) -> str:
        name = self._names[process]
        if input[0] == "cleanup_reply":
            return f"{name}'s maintenance thread"
        return name if input[0] in {"message", "disconnect", "reconnect"} else name + "abcdef"[input[1]]

    def _request(self, process: int, request: Any) -> str:
        args = " ".join(str(_short(arg)) or "-" for arg in positional(request.args))
        return f"{request.name} {args}".replace(PROCESS, self._names[process])


def _short(arg: Any) -> Any:
    return arg - FIRST_ARRIVAL if isinstance(arg, int) and arg > FIRST_ARRIVAL else arg

"""A path as a story that people can read."""

from __future__ import annotations

from typing import Any

from .moments import ARRIVALS
from .moves import Move
from .process import ME, Input

_STEPS = {
    "begin": "comes",
    "do": "goes on",
    "wake": "has its turn",
    "listen": "has its process listen",
    "extend": "is about to extend",
    "release": "leaves",
    "cancel": "is cancelled",
    "signal": "is interrupted",
    "told": "is told that the lock may be free",
    "deafen": "loses the connection of its inbox",
    "hear_again": "has an inbox again",
}

_FATES = {"reply": "is carried out", "request": "gets lost", "late": "is delayed"}


class Teller:
    """Process P has the contenders Pa and Pb, and Pa the tokens Pa1, Pa2."""

    def __init__(self, processes: int) -> None:
        self._names = "PQRS"[:processes]

    def reorder(self, order: tuple[int, ...]) -> None:
        """The processes are numbered otherwise from now on."""
        self._names = "".join(self._names[p] for p in order)

    def tell(self, move: Move) -> str:
        text = self._text(*move.what)
        return f"{text}  [{move.fault}]" if move.fault else text

    def _text(self, kind: str, *what: Any) -> str:
        if kind == "time":
            return f"{what[0]:.3f} s pass"
        if kind == "arrives":
            return f"the store carries out a late copy: {self._request(what[0].sender, what[0])}"
        process, *more = what
        if kind == "dies":
            return f"{self._names[process]} dies" + ("; what it has sent is on its way" if more[0] else "")
        who = self._who(process, more[0])
        if kind == "step":
            return f"{who} {_STEPS[more[0][0]]}"
        request = self._request(process, more[1])
        if kind == "asks":
            reply = more[2]
            return f"{who}: {request} -> {[_short(part) for part in reply] if isinstance(reply, tuple) else reply}"
        told = "he is cancelled" if more[0][0] == "cancel" else "nobody hears the answer"
        return f"{who}: {request}, which {_FATES[more[2]]}; {told}"

    def _who(self, process: int, input: Input) -> str:
        name = self._names[process]
        if input[0] == "errand":
            return f"{name}'s janitor"
        return name if input[0] in {"told", "deafen", "hear_again"} else name + "abcdef"[input[1]]

    def _request(self, process: int, request: Any) -> str:
        args = " ".join(str(_short(arg)) or "-" for arg in request.args)
        return f"{request.name} {args}".replace(ME, self._names[process])


def _short(arg: Any) -> Any:
    return arg - ARRIVALS if isinstance(arg, int) and arg > ARRIVALS else arg

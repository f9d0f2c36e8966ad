"""Tokens of holds, unique over all processes."""

from __future__ import annotations

import os
from base64 import urlsafe_b64encode
from itertools import count
from typing import TYPE_CHECKING, TypeAlias

from . import forks

if TYPE_CHECKING:
    from collections.abc import Callable

_Source: TypeAlias = "tuple[str, Callable[[], int]]"


class Tokens:
    """Tokens nobody else has and nobody can guess: a random prefix of the process, and a counter.

    72 bits of chance, since processes of many hosts share a server; short, since every lock in Redis holds one."""

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> _Source:
        """Begin anew. In one assignment: of two threads that do so at once none may mix the halves of both, and none
        may go on with the parent's."""
        source = self._source = urlsafe_b64encode(os.urandom(9)).decode(), count(1).__next__
        return source

    def mint(self) -> str:
        prefix, number = self._source
        return f"{prefix}{number():x}"


_tokens = Tokens()
mint_token = _tokens.mint

forks.in_child(_tokens.renew)

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
    """Unique tokens that can't be guessed: a random prefix of the process, and a counter.

    The prefix has 72 random bits, because processes of many hosts share a server. Tokens are short, because every lock
    in Redis stores one."""

    def __init__(self) -> None:
        self.after_fork_in_child()
        forks.reset_in_child(self)

    def after_fork_in_child(self) -> None:
        """Choose a new prefix and restart the counter, in one assignment: threads that run this at the same time must
        neither combine two sources nor keep the parent's."""
        self._source: _Source = urlsafe_b64encode(os.urandom(9)).decode(), count(1).__next__

    def mint(self) -> str:
        """Return a new token, which is never repeated in the cluster."""
        prefix, number = self._source
        return f"{prefix}{number():x}"


_tokens = Tokens()
mint_token = _tokens.mint

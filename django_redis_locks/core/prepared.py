"""Commands that are sent often: what is constant in them is prepared once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from .commands import Command
from .errors import LockBackendError
from .steps import STEPS


class CommandExecutor(Protocol):
    """What a prepared command needs of a backend."""

    def call(self, command: Command[Any], /) -> Any:
        """Execute a command once and return the raw reply."""

    async def acall(self, command: Command[Any], /) -> Any:
        """Execute a command once and return the raw reply, without blocking the event loop."""


class PreparedCommand:
    """A command that is sent often with the same keys: only its arguments differ. A backend with a quicker way to pack
    its requests overrides the methods.

    Args:
        backend: sends it.
        name: the step, as ``Command.name``.
        keys: the keys in the store that it uses. The optional group of the step's arguments is left out.
    """

    __slots__ = ("_backend", "_keys", "_name")

    def __init__(self, backend: CommandExecutor, name: str, keys: tuple[str, ...]) -> None:
        self._backend = backend
        self._name = name
        self._keys = keys

    def packed(self, *args: str | int) -> Any:
        """Return the arguments after the first as ``send`` takes them."""
        return args

    def packed_once(self, *args: str | int) -> Any:
        """As ``packed``, for arguments that don't recur."""
        return args

    def send(self, first: str, rest: Any = (), *, messages_first: bool = False) -> Any:
        """Send the command once and return the raw reply, or the ``LockBackendError``.

        Args:
            first: the first argument, which is different in each call.
            rest: the other arguments, from ``packed``.
            messages_first: the messages that the command publishes are to be sent before its reply, if the store can.
        """
        try:
            return self._backend.call(self._as_command(first, rest))
        except LockBackendError as failure:
            return failure

    async def asend(self, first: str, rest: Any = ()) -> Any:
        """As ``send``, without blocking the event loop."""
        try:
            return await self._backend.acall(self._as_command(first, rest))
        except LockBackendError as failure:
            return failure

    def post(self, first: str, rest: Any, on_reply: Callable[[Any], object]) -> LockBackendError | None:
        """Send the command once; a backend needn't wait for the reply. Return the error if it can't be sent.

        Args:
            first: the first argument, which is different in each call.
            rest: the other arguments, from ``packed``.
            on_reply: called once with the raw reply, an error reply too, or with None if none is received; in any
                thread. It must neither raise nor block.
        """
        reply = self.send(first, rest)
        if isinstance(reply, LockBackendError):
            return reply
        on_reply(reply)
        return None

    def _as_command(self, first: str, rest: tuple[str | int, ...]) -> Command[Any]:
        return Command(self._name, self._keys, STEPS[self._name](first, *rest), _raw)


def _raw(reply: Any) -> Any:
    return reply

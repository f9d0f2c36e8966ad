"""What a store must offer: one atomic step, sent once.

A backend meets the locks only at ``Command.name`` and the shape of the reply. Whatever goes wrong becomes a
``LockBackendError`` that says whether the step may have been carried out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from ..core.errors import LockBackendError
from ..core.server_info import Facts
from ..core.tuning import DEFAULT, Tuning

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ..core.commands import Command


class MessageHandler(Protocol):
    """What an inbox notifies, from a thread of its own."""

    @property
    def tuning(self) -> Tuning: ...

    def on_message(self, number: str, lock: str) -> None:
        """The queue of this number was taken out of the line, since this lock may be free; or it is ``LOOK``."""

    def on_reconnect(self) -> None:
        """Wake-ups may have been lost."""

    def expects_messages(self) -> bool:
        """Whether messages may concern this process: it waits for a lock, or holds one."""


class Subscriber:
    """How a store's wake-ups reach this process. This one is deaf: waiters ask now and then."""

    def channel_name(self, channel: str) -> str:
        """The whole name of our inbox among the channels that begin so; "" unless wake-ups sent there reach us."""
        return ""

    def open(self, channel: str, callback: Callable[[], object]) -> None:
        """Begin to listen, and call ``callback`` when we do, or can't. Doesn't wait for it."""
        callback()

    def close(self) -> None:
        """Stop listening. It may be opened again."""

    def after_fork_in_child(self) -> None:
        """Forget what belongs to the parent, its name above all."""


class Backend:
    """One store. ``identity`` is equal for two backends of one store: their locks exclude each other."""

    identity: str

    @property
    def node(self) -> str:
        """Equal for two backends of one server: when it is down, it is down for both."""
        return self.identity

    buckets: ClassVar[int] = 1
    """Into how many parts the keys are divided; a script touches keys of one part."""

    def __init__(self, location: str, options: Mapping[str, Any], tuning: Tuning = DEFAULT) -> None:
        raise NotImplementedError

    @classmethod
    def validation_error(cls, location: str, options: Mapping[str, Any]) -> str | None:
        """What is wrong with these settings, in one sentence; no I/O."""
        try:
            cls(location, options)
        except (TypeError, ValueError) as error:
            return str(error)
        return None

    @classmethod
    def incompatibility(cls) -> str | None:
        """Why it can't work with what is installed, in one sentence."""
        return None

    @classmethod
    def compatibility_warning(cls) -> str | None:
        """Why it may not."""
        return None

    def call(self, command: Command[Any]) -> Any:
        """Carry a command out, once, and return the raw reply."""
        raise NotImplementedError

    async def acall(self, command: Command[Any]) -> Any:
        """As ``call``, without blocking the loop."""
        raise NotImplementedError

    def call_many(self, commands: Sequence[Command[Any]], timeout: float) -> list[Any]:
        """Carry independent commands out, as fast as the store can; replies in order, each a reply or the error."""
        replies: list[Any] = []
        for command in commands:
            try:
                replies.append(self.call(command))
            except LockBackendError as failure:
                replies.append(failure)
        return replies

    def probe(self) -> None:
        """Ask the server for nothing but an answer.

        Raises:
            LockBackendError: it can't be reached, or refuses.
        """

    def facts(self, prefix: str, timeout: float) -> Facts:
        """What the store says of itself, within so many seconds, and of the keys that begin with this prefix. Changes
        nothing there.

        Raises:
            LockBackendError: it can't be reached, or doesn't let us in.
        """
        return Facts(type(self).__name__)

    def subscriber(self, handler: MessageHandler) -> Subscriber:
        """An inbox of this process."""
        return Subscriber()

    def close(self) -> None:
        """Close idle connections. The backend stays usable."""

    def after_fork_in_child(self) -> None:
        """Forget what belongs to the parent, without a word on its connections."""

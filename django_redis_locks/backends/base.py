"""The interface of a backend, which executes commands on a store. Each command is atomic, and is sent once.

A backend and the primitives share only ``Command.name`` and the format of the reply. Every failure is raised as a
``LockBackendError`` that says whether the command may have been executed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol

from ..core.errors import LockBackendError
from ..core.prepared import PreparedCommand
from ..core.server_info import Facts, Topology
from ..core.tuning import DEFAULT, Tuning

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence

    from ..core.commands import Command
    from ..core.wait_events import ThreadEvent


class MessageHandler(Protocol):
    """Receives the messages of a subscriber, one at a time, in any thread. The engine implements it."""

    @property
    def tuning(self) -> Tuning: ...

    def on_message(self, word: str, lock: str) -> None:
        """Handle a message about a lock.

        Args:
            word: If the store has granted the lock to a local queue: the number of the queue, the token and the fence,
                with commas between them. If it wakes a queue, because the lock may be free: the number. In both cases
                it has removed the entry of the queue. Or ``CONFIRM``, which requests that every process confirms its
                holds of this lock.
            lock: the key of the lock.
        """

    def on_reconnect(self) -> None:
        """Handle a new subscription. Messages published before may have been lost."""

    def expects_messages(self) -> bool:
        """Return whether this process waits for a lock or holds one. If not, an idle subscriber may disconnect."""


class Subscriber:
    """Delivers the messages of a store to this process. This default receives none, so waiters poll."""

    def channel_name(self, channel: str) -> str:
        """Return the full name of this process's channel.

        Args:
            channel: the prefix of the name.

        Returns:
            "" unless the subscription is confirmed, because messages sent there would be lost.
        """
        return ""

    def open(self, channel: str, callback: Callable[[], object]) -> None:
        """Start to subscribe to a channel, and return at once. ``callback`` is called when the subscription is
        confirmed or has failed."""
        callback()

    def wait(self, event: ThreadEvent, seconds: float, channel: str) -> None:
        """Sleep until an event is set, at most for this many seconds of the engine's clock, then reset it. The calling
        thread may handle the messages of a channel until then."""
        event.wait(seconds)

    def close(self) -> None:
        """Unsubscribe. The subscriber may be opened again."""

    def after_fork_in_child(self) -> None:
        """Discard the parent's state and choose another channel name."""


FEATURES: Final = {
    "counters": "fence counters need Redis",
    "detach": "detached holds need Redis",
    "fair": "fair locks need Redis or ZooKeeper",
    "kept": "locks with auto_release=False need Redis",
    "latches": "latches need Redis",
    "loads": "loads of a cache need Redis",
    "multi": "multi locks need Redis",
    "records": "records need Redis",
    "rwlocks": "read-write locks need Redis",
    "semaphores": "semaphores need Redis",
    "wakes": "wake-ups of waiters need Redis or ZooKeeper",
}
"""What a backend may lack, with the stores that have it: the beginning of the message for one that doesn't."""


class Backend:
    """One store. Backends with equal ``identity`` use the same store, so their locks exclude each other."""

    identity: str

    supports: frozenset[str] = frozenset()
    """The words of ``FEATURES`` that the store can do beside locks."""

    @property
    def node(self) -> str:
        """The name of the server. Backends with equal ``node`` share their knowledge of its outages."""
        return self.identity

    fails_as_one: bool = True
    """Whether a request that can't reach the store says so of all others. False if its parts fail one by one."""

    replicas: int = 0
    """The number of replicas that must have an acquired lock before its caller gets it."""

    buckets: int = 1
    """The number of parts that keys are divided into; the keys of one command belong to one part. It may differ between
    the stores of a class: then ``__init__`` sets it."""

    lists_servers: ClassVar = False
    """Whether ``LOCATION`` is a list of addresses."""

    fences: bool = True
    """Whether grants have a fence."""

    always_fair: ClassVar = False
    """Whether every mutex is fair, because the store knows each waiter."""

    longest_is_expire: ClassVar = False
    """Whether no lease is longer than that of the alias, because it is that of a session."""

    incompatible: ClassVar = "E035"
    """The id of the system check that reports ``incompatibility``."""

    def __init__(self, location: Any, options: Mapping[str, Any], tuning: Tuning = DEFAULT) -> None:
        raise NotImplementedError

    @classmethod
    def validation_error(cls, location: Any, options: Mapping[str, Any]) -> str | None:
        """Return what is wrong with these settings, as one sentence, or None. Does no I/O."""
        try:
            cls(location, options)
        except (TypeError, ValueError) as error:
            return str(error)
        return None

    @classmethod
    def with_lease(cls, options: Mapping[str, Any], lease: int) -> Mapping[str, Any]:
        """Return the options of a store whose connections depend on the lease of the alias, in milliseconds."""
        return options

    @classmethod
    def incompatibility(cls) -> str | None:
        """Return why this backend can't work with the installed packages, as one sentence, or None."""
        return None

    @classmethod
    def compatibility_warning(cls) -> str | None:
        """Return why this backend may not work with the installed packages, as one sentence, or None."""
        return None

    def tuned(self, tuning: Tuning) -> Tuning:
        """Return the tuning of an engine on this store."""
        return tuning

    def call(self, command: Command[Any]) -> Any:
        """Execute a command once and return the raw reply.

        Raises:
            LockBackendError: there is no reply, or the store returns an error.
        """
        raise NotImplementedError

    async def acall(self, command: Command[Any]) -> Any:
        """Execute a command once and return the raw reply, without blocking the event loop.

        Raises:
            LockBackendError: there is no reply, or the store returns an error.
        """
        raise NotImplementedError

    def prepare(self, name: str, keys: tuple[str, ...]) -> PreparedCommand:
        """Prepare a command that is sent often with the same keys. Arguments as of ``PreparedCommand``."""
        return PreparedCommand(self, name, keys)

    def why_unsupported(self, feature: str) -> str | None:
        """Return why the store doesn't support a word of ``FEATURES``, as one sentence without its full stop; None if it
        does."""
        return None if feature in self.supports else f"{FEATURES[feature]}; {self.refusal(feature)}"

    def refusal(self, feature: str) -> str:
        """Return why the store doesn't support a feature, as the second half of that sentence."""
        return f"{type(self).__name__} can't have them"

    def together(self, keys: tuple[str, ...]) -> Hashable:
        """Return the part of the store that these keys are in. Keys of one part may be in one command."""
        return None

    def call_many(self, commands: Sequence[Command[Any]], timeout: float) -> list[Any]:
        """Execute independent commands, together if the store can.

        Args:
            timeout: seconds in which all replies must arrive.

        Returns:
            For each command its reply or its ``LockBackendError``.
        """
        replies: list[Any] = []
        for command in commands:
            try:
                replies.append(self.call(command))
            except LockBackendError as failure:
                replies.append(failure)
        return replies

    def probe(self) -> None:
        """Check that the server answers.

        Raises:
            LockBackendError: the server can't be reached, or returns an error.
        """

    def facts(self, prefix: str, timeout: float) -> Facts:
        """Read the version, configuration and state of the server, and the rights of the user. Changes no data.

        Args:
            prefix: the prefix of the keys and channels for which rights are checked.
            timeout: seconds for all requests together.

        Raises:
            LockBackendError: the server can't be reached, or rejects the login.
        """
        return Facts(type(self).__name__)

    def topology(self, key: str = "") -> Topology:
        """Return the servers of the store as they are known. Does no I/O.

        Args:
            key: the key of a lock in the store; ``asked`` has its servers then.
        """
        return Topology(type(self).__name__)

    def subscriber(self, handler: MessageHandler) -> Subscriber:
        """Return the subscriber of this process, which calls ``handler``."""
        return Subscriber()

    def close(self) -> None:
        """Close idle connections. The backend stays usable."""

    def after_fork_in_child(self) -> None:
        """Discard the parent's connections without sending anything on them."""

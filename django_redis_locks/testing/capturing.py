"""``capture_locks``: collects the events of locks in a block."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .. import signals
from ..core import events
from .asserting import wait_until_idle
from .other_thread import by_test_helper


class Captured(list[events.Event]):
    """The events, in their order. Each property returns the keys of the events of one kind."""

    @property
    def acquired(self) -> list[str]:
        """The keys of locks that were acquired."""
        return self.keys(events.Acquired)

    @property
    def contended(self) -> list[str]:
        """The keys of locks that were busy until the wait was over."""
        return self.keys(events.Contended)

    @property
    def released(self) -> list[str]:
        """The keys of locks that were released."""
        return self.keys(events.Released)

    @property
    def lost(self) -> list[str]:
        """The keys of locks that were lost while they were held."""
        return self.keys(events.Lost)

    @property
    def force_released(self) -> list[str]:
        """The keys of locks that were released by force."""
        return self.keys(events.ForceReleased)

    def keys(self, kind: type[events.Event]) -> list[str]:
        """Return the keys of events of one kind.

        Args:
            kind: the class of the events.
        """
        return [event.key for event in self if type(event) is kind]


@contextmanager
def capture_locks(using: str | None = None) -> Iterator[Captured]:
    """Collect the events of locks in all threads of this process until the block ends, except those of ``hold_lock``.

    Args:
        using: only events of this alias.

    Yields:
        The list of events, which grows while the block runs.

    Example::

        with capture_locks() as events:
            client.post("/orders/1/")
        assert events.acquired == ["order:1"]
    """
    found = Captured()

    def receive(event: events.Event, **_: Any) -> None:
        if not by_test_helper.get() and using in {None, event.alias}:
            found.append(event)

    each = [signal for signal in vars(signals).values() if isinstance(signal, signals.LockSignal)]
    for signal in each:
        signal.connect(receive, weak=False)
    try:
        yield found
    finally:
        try:
            wait_until_idle()  # another thread may be about to report a loss
        finally:
            for signal in each:
                signal.disconnect(receive)

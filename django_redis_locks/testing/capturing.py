"""What happened to locks meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .. import signals
from ..core import events
from .asserting import settle
from .other_thread import staged


class Captured(list[events.Event]):
    """The events, in their order, and the keys of the locks that they happened to."""

    @property
    def acquired(self) -> list[str]:
        """The keys of locks that were acquired."""
        return self.keys(events.Acquired)

    @property
    def contended(self) -> list[str]:
        """Of those that were busy until the wait was over."""
        return self.keys(events.Contended)

    @property
    def released(self) -> list[str]:
        """Of those that were released."""
        return self.keys(events.Released)

    @property
    def lost(self) -> list[str]:
        """Of those that were lost while they were held."""
        return self.keys(events.Lost)

    @property
    def force_released(self) -> list[str]:
        """Of those that were freed by force."""
        return self.keys(events.ForceReleased)

    def keys(self, kind: type[events.Event]) -> list[str]:
        """The keys of events of one kind."""
        return [event.key for event in self if type(event) is kind]


@contextmanager
def capture_locks(using: str | None = None) -> Iterator[Captured]:
    """What happens to locks until the block ends, in any thread of this process; of one alias only, if ``using`` names it.
    What ``hold_lock`` does isn't told."""
    found = Captured()

    def receive(event: events.Event, **_: Any) -> None:
        if not staged.get() and using in {None, event.alias}:
            found.append(event)

    each = [signal for signal in vars(signals).values() if isinstance(signal, signals.LockSignal)]
    for signal in each:
        signal.connect(receive, weak=False)
    try:
        yield found
    finally:
        try:
            settle()  # another thread may be about to report a loss
        finally:
            for signal in each:
                signal.disconnect(receive)

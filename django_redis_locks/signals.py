"""Django signals for events of locks. Each is sent after the event, with the argument ``event``.

An exception of a receiver is logged, and has no other effect. Receivers run in the thread of the event, or in its event
loop, and delay it. For events of the maintenance thread, such as lost locks, they run in a separate thread.
"""

from __future__ import annotations

from typing import Any

from django.dispatch import Signal

from .core import events


class LockSignal(Signal):
    """A signal that listens for events once it has a receiver, so that signals without receivers cost no time."""

    def connect(self, *args: Any, **kwargs: Any) -> None:
        """Connect a receiver, as Django's, and begin to listen for events."""
        super().connect(*args, **kwargs)
        events.listen(send)


lock_acquired = LockSignal()
"""``event``: ``Acquired(key, name, alias, fence, waited)``."""
lock_contended = LockSignal()
"""``event``: ``Contended(key, name, alias, waited)``. The lock wasn't acquired within the wait."""
lock_released = LockSignal()
"""``event``: ``Released(key, name, alias, fence, held, confirmed)``."""
lock_detached = LockSignal()
"""``event``: ``Detached(key, name, alias, fence, held)``. The process that attaches it sends ``lock_acquired``."""
lock_lost = LockSignal()
"""``event``: ``Lost(key, name, alias, fence, held, why)``."""
lock_force_released = LockSignal()
"""``event``: ``ForceReleased(key, name, alias, reason, actor)``."""
lock_backend_failed = LockSignal()
"""``event``: ``BackendFailed(key, name, alias, doing, problem)``. It is sent for errors of the store that aren't raised
in the caller."""

_signals: dict[type[events.Event], Signal] = {
    events.Acquired: lock_acquired,
    events.Contended: lock_contended,
    events.Released: lock_released,
    events.Detached: lock_detached,
    events.Lost: lock_lost,
    events.ForceReleased: lock_force_released,
    events.BackendFailed: lock_backend_failed,
}


def send(event: events.Event) -> None:
    """Send the signal of an event."""
    signal = _signals.get(type(event))
    if signal is not None and signal.receivers:
        signal.send_robust(sender=type(event), event=event)  # logs the exceptions of receivers

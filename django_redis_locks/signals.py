"""Django signals. Each is sent with ``event``, a value of ``core.events``, after the fact and robustly: a receiver that
fails is logged and changes nothing. Receivers are called in the thread where it happened, a task's loop included, which
they hold up; what the renewal of leases finds out is sent by a thread of its own."""

from __future__ import annotations

from typing import Any

from django.dispatch import Signal

from .core import events


class LockSignal(Signal):
    """Listens from its first receiver on: a lock of whose signals nobody hears doesn't pay for them."""

    def connect(self, *args: Any, **kwargs: Any) -> None:
        super().connect(*args, **kwargs)
        events.listen(send)


lock_acquired = LockSignal()
"""``event``: ``Acquired(key, name, alias, fence, waited)``."""
lock_contended = LockSignal()
"""``event``: ``Contended(key, name, alias, waited)``: given up."""
lock_released = LockSignal()
"""``event``: ``Released(key, name, alias, fence, held, confirmed)``."""
lock_lost = LockSignal()
"""``event``: ``Lost(key, name, alias, fence, held, why)``."""
lock_force_released = LockSignal()
"""``event``: ``ForceReleased(key, name, alias, reason, actor)``."""
lock_backend_failed = LockSignal()
"""``event``: ``BackendFailed(key, name, alias, doing, problem)``: and the section ran, or had run, all the same."""

_signals: dict[type[events.Event], Signal] = {
    events.Acquired: lock_acquired,
    events.Contended: lock_contended,
    events.Released: lock_released,
    events.Lost: lock_lost,
    events.ForceReleased: lock_force_released,
    events.BackendFailed: lock_backend_failed,
}


def send(event: events.Event) -> None:
    signal = _signals.get(type(event))
    if signal is not None and signal.receivers:
        signal.send_robust(sender=type(event), event=event)  # it logs what receivers raise

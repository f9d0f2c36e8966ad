"""Events of locks, for signals, metrics and the log.

``emit`` writes the log record and calls every listener; the exception of a listener is logged and never breaks a lock.
Listeners are called in the thread of the event; those of the maintenance thread's events in the thread of notices.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, fields
from functools import partial
from typing import ClassVar, TypeAlias

from .digests import digest_of
from .text import escape_unprintable

_log = logging.getLogger("django_redis_locks")


@dataclass(frozen=True, slots=True)
class Event:
    """An event of the lock ``key``, with the label ``name``, of the alias ``alias``."""

    level: ClassVar[int] = logging.DEBUG
    text: ClassVar[str] = ""
    kind: ClassVar[str] = ""

    key: str
    name: str
    alias: str


@dataclass(frozen=True, slots=True)
class Acquired(Event):
    """The lock was acquired after ``waited`` seconds. ``fence`` is None if the section runs without a lock."""

    text = "Lock %(lock_name)s acquired after %(lock_waited).3f s"
    kind = "acquire"

    fence: int | None
    waited: float


@dataclass(frozen=True, slots=True)
class Contended(Event):
    """The lock wasn't acquired within the wait of ``waited`` seconds."""

    level = logging.INFO
    text = "Lock %(lock_name)s is busy, given up after %(lock_waited).3f s"
    kind = "acquire"

    waited: float


@dataclass(frozen=True, slots=True)
class Released(Event):
    """The lock was released after ``held`` seconds. ``confirmed`` is False if a reply was lost, so that the lock may
    have been freed by its lease or by force instead."""

    text = "Lock %(lock_name)s released after %(lock_held).3f s"
    kind = "release"

    fence: int | None
    held: float
    confirmed: bool


@dataclass(frozen=True, slots=True)
class Detached(Event):
    """The hold was detached after ``held`` seconds, to be attached by another process. The lock stays held."""

    text = "Lock %(lock_name)s detached after %(lock_held).3f s"
    kind = "release"

    fence: int | None
    held: float


@dataclass(frozen=True, slots=True)
class Lost(Event):
    """The lease ended, or the lock was taken away, while it was held. ``why`` is "expired", "taken" or "max_hold"."""

    level = logging.ERROR
    text = "Lock %(lock_name)s was lost while it was held (%(lock_why)s): its section may have run beside another one"
    kind = "lost"

    fence: int | None
    held: float
    why: str


@dataclass(frozen=True, slots=True)
class Vanished(Event):
    """A lock that was handed over at its release was gone before the next waiter of this process adopted it. It may
    have been lost before its release. There is no signal for this event."""

    level = logging.WARNING
    text = "Lock %(lock_name)s was gone when it was handed over after its release: it may have been lost before that"
    kind = "lost"

    fence: int | None


@dataclass(frozen=True, slots=True)
class ForceReleased(Event):
    """The lock was released by force, for a ``reason`` or "", by an ``actor`` or ""."""

    level = logging.WARNING
    text = "Lock %(lock_name)s was released by force: %(lock_reason)s"
    kind = "release"

    reason: str
    actor: str = ""


@dataclass(frozen=True, slots=True)
class BackendFailed(Event):
    """The store couldn't be reached, or refused a request, during the operation ``doing``."""

    level = logging.ERROR
    text = "Lock %(lock_name)s: the store failed during %(lock_doing)s: %(lock_problem)s"
    kind = "backend"

    doing: str
    problem: str


Listener: TypeAlias = Callable[[Event], object]
listeners: list[Listener] = []
"""Called on every event."""


def listen(listener: Listener) -> None:
    """Call ``listener(event)`` on every event. Registering the same listener twice has no effect."""
    if listener not in listeners:
        listeners.append(listener)


_submit: ContextVar[Callable[[Callable[[], object]], object] | None] = ContextVar("submit", default=None)


def deliver_with(submit: Callable[[Callable[[], object]], object]) -> None:
    """Have ``submit`` call the listeners to this thread's events in another thread, so that they don't block this
    one."""
    _submit.set(submit)


def emit(event: Event) -> None:
    """Log an event and pass it to the listeners, in another thread if ``deliver_with`` was called in this one."""
    submit = _submit.get()
    if submit is None:
        _deliver(event)
    else:
        submit(partial(_deliver, event))


def _deliver(event: Event) -> None:
    for listen in (_write, *listeners):
        try:
            listen(event)
        except Exception:  # noqa: BLE001 - an exception of a listener must not affect the lock
            with contextlib.suppress(Exception):  # a logging filter may have failed
                _log.exception("A listener to lock events failed")


_with_keys: set[str] = set()


def log_keys(alias: str, on: bool) -> None:
    """Set whether log records of an alias contain keys; from level INFO on they otherwise contain a digest."""
    (_with_keys.add if on else _with_keys.discard)(alias)


def forget_log_keys() -> None:
    """Let log records of no alias contain keys, until its settings are read again."""
    _with_keys.clear()


def key_field(key: str, alias: str) -> dict[str, str]:
    """Return the field of a log record from level INFO on that identifies a key."""
    return {"lock_key": key} if alias in _with_keys else {"lock_digest": digest_of(key)}


def _write(event: Event) -> None:
    log = _loggers[event.kind]
    if log.isEnabledFor(event.level):
        log_fields = {f"lock_{field.name}": getattr(event, field.name) for field in fields(event)}
        if event.level >= logging.INFO:
            log_fields |= key_field(log_fields.pop("lock_key"), event.alias)
        shown = {
            name: escape_unprintable(value) if isinstance(value, str) else value for name, value in log_fields.items()
        }
        shown["lock_reason"] = shown.get("lock_reason") or "no reason was given"
        log.log(event.level, event.text, shown, extra=log_fields)


_loggers = {kind: _log.getChild(kind) for kind in ("acquire", "release", "lost", "backend", "renew")}

acquire_log, release_log = _loggers["acquire"], _loggers["release"]
"""The loggers of the frequent events, which aren't created unless their level, or a listener, wants them."""

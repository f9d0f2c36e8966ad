"""What happens to locks, as values: for signals, metrics and the log.

``emit`` writes the log line and calls every listener; a listener that fails never breaks a lock. Listeners are called in
the thread where it happens, but for the maintenance thread, which has them called by another one.
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
    """Something happened to the lock ``key``, whose label is ``name``, of the alias ``alias``."""

    level: ClassVar[int] = logging.DEBUG
    text: ClassVar[str] = ""
    kind: ClassVar[str] = ""

    key: str
    name: str
    alias: str


@dataclass(frozen=True, slots=True)
class Acquired(Event):
    """Acquired after ``waited`` seconds. ``fence`` is None if the section runs without a lock."""

    text = "Lock %(lock_name)s acquired after %(lock_waited).3f s"
    kind = "acquire"

    fence: int | None
    waited: float


@dataclass(frozen=True, slots=True)
class Contended(Event):
    """Not acquired within the wait."""

    level = logging.INFO
    text = "Lock %(lock_name)s is busy, given up after %(lock_waited).3f s"
    kind = "acquire"

    waited: float


@dataclass(frozen=True, slots=True)
class Released(Event):
    """Released after ``held`` seconds. ``confirmed`` is False if an answer was lost on the way, so that the lock may
    have been freed by its lease or by force instead."""

    text = "Lock %(lock_name)s released after %(lock_held).3f s"
    kind = "release"

    fence: int | None
    held: float
    confirmed: bool


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
    """Handed over at its release, and gone before the next waiter of this process took it over. It may have been lost before
    its release. There is no signal of it."""

    level = logging.WARNING
    text = "Lock %(lock_name)s was gone when it was handed over after its release: it may have been lost before that"
    kind = "lost"

    fence: int | None


@dataclass(frozen=True, slots=True)
class ForceReleased(Event):
    """Freed by an operator, whoever held it, for a ``reason``, or "". ``actor`` says who did it, "" if nobody did."""

    level = logging.WARNING
    text = "Lock %(lock_name)s was released by force: %(lock_reason)s"
    kind = "release"

    reason: str
    actor: str = ""


@dataclass(frozen=True, slots=True)
class BackendFailed(Event):
    """The store could not be reached, or refused; ``doing`` says what was going on."""

    level = logging.ERROR
    text = "Lock %(lock_name)s: the store failed during %(lock_doing)s: %(lock_problem)s"
    kind = "backend"

    doing: str
    problem: str


Listener: TypeAlias = Callable[[Event], object]
_listeners: list[Listener] = []


def listen(listener: Listener) -> None:
    """Call ``listener(event)`` on every event. Twice the same counts once."""
    if listener not in _listeners:
        _listeners.append(listener)


def wanted(kind: type[Event]) -> bool:
    """Whether anybody wants to hear of such events: the frequent ones aren't made for nobody."""
    return True if _listeners else _loggers[kind.kind].isEnabledFor(kind.level)


_post: ContextVar[Callable[[Callable[[], object]], object] | None] = ContextVar("post", default=None)


def post_with(post: Callable[[Callable[[], object]], object]) -> None:
    """From now on ``post`` has another thread call the listeners to events of this one, which they mustn't hold up."""
    _post.set(post)


def emit(event: Event) -> None:
    post = _post.get()
    if post is None:
        _deliver(event)
    else:
        post(partial(_deliver, event))


def _deliver(event: Event) -> None:
    for listen in (_write, *_listeners):
        try:
            listen(event)
        except Exception:  # noqa: BLE001 - whatever a listener does, the lock goes on
            with contextlib.suppress(Exception):  # a logging filter may be what fails
                _log.exception("A listener to lock events failed")


_with_keys: set[str] = set()


def log_keys(alias: str, on: bool) -> None:
    """Whether log records of this alias from level INFO on have the keys of locks; a digest otherwise."""
    (_with_keys.add if on else _with_keys.discard)(alias)


def key_field(key: str, alias: str) -> dict[str, str]:
    """What a log record from level INFO on has of a key."""
    return {"lock_key": key} if alias in _with_keys else {"lock_digest": digest_of(key)}


def _write(event: Event) -> None:
    log = _loggers[event.kind]
    if log.isEnabledFor(event.level):
        about = {f"lock_{field.name}": getattr(event, field.name) for field in fields(event)}
        if event.level >= logging.INFO:
            about |= key_field(about.pop("lock_key"), event.alias)
        shown = {name: escape_unprintable(value) if isinstance(value, str) else value for name, value in about.items()}
        shown["lock_reason"] = shown.get("lock_reason") or "no reason was given"
        log.log(event.level, event.text, shown, extra=about)


_loggers = {kind: _log.getChild(kind) for kind in ("acquire", "release", "lost", "backend", "renew")}

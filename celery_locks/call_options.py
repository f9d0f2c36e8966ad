"""Options of the lock that are given to ``apply_async`` for one call. They are sent in the message, so that the worker
has them too."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from .options import OPTIONS, PREFIXES, errors_of, seconds, unknown_options

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .options import TaskOptions

PER_CALL: Final = (
    "lock_expire",
    "lock_wait",
    "lock_min_hold",
    "lock_max_hold",
    "lock_on_duplicate",
    "lock_on_conflict",
    "lock_retry_delay",
    "lock_max_retries",
    "lock_on_backend_error",
    "lock_queue_ttl",
    "lock_canvas",
    "idempotency_ttl",
)
"""Options that a call may set. The others decide where the record of a job is, or can't be sent in a message."""

_DECLARED_ONLY: Final = frozenset(OPTIONS) - frozenset(PER_CALL)


def call_options(task: TaskOptions, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of the lock among the options of a call, as the message carries them.

    Raises:
        TypeError: an option is misspelled, or is the task's only.
        ValueError: an option has a wrong value.
    """
    found = {name: value for name, value in options.items() if name.startswith(PREFIXES)}
    if not found:
        return found
    wrong = unknown_options(found, (*OPTIONS, "idempotency_key"))
    wrong += [f"{name} can only be declared, not given in a call" for name in found if name in _DECLARED_ONLY]
    if wrong:
        raise TypeError(f"apply_async() of task {task.name}: {'; '.join(wrong)}")
    wrong = errors_of(with_options(task, found))
    if wrong:
        raise ValueError(f"apply_async() of task {task.name}: {'; '.join(wrong)}")
    return {name: seconds(value) if isinstance(value, timedelta) else value for name, value in found.items()}


def with_options(task: TaskOptions, options: Mapping[str, Any]) -> TaskOptions:
    """The task with the options of a call in place of its own."""
    if not options:
        return task
    called = object.__new__(type(task))
    vars(called).update(vars(task), **options)
    return called

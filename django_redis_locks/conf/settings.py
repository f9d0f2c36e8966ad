"""``AliasSettings``: the settings of one alias, with defaults."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from django.utils.module_loading import import_string

from ..backends.base import Backend
from ..core.tuning import BACKEND_WAIT
from . import overrides
from .decorator_options import Handler
from .overrides import Overrides
from .schema import DEFAULTS, VERSION_WARNING, InvalidLockBackend
from .validation import location_of, problems

_log = logging.getLogger("django_redis_locks.backend")


@dataclass(frozen=True, slots=True)
class AliasSettings:
    """One entry of ``REDIS_LOCKS``, validated and with defaults. The lease is in ms, other times are in seconds."""

    alias: str
    backend: type[Backend]
    location: Any = field(repr=False)  # these two may hold passwords
    options: Mapping[str, Any] = field(repr=False)
    key_prefix: str
    lease: int
    wait: float
    max_hold: float
    fail_open: bool
    index: bool
    log_keys: bool
    metadata: tuple[str, ...]
    on_conflict: str | Handler
    names: Mapping[str, Overrides] = field(default_factory=dict)
    backend_wait: float = BACKEND_WAIT


def read(alias: str, entry: Mapping[str, Any]) -> AliasSettings:
    """Read the settings of one alias.

    Raises:
        InvalidLockBackend: the entry has an error. The message is that of the first error.
    """
    for problem in problems(alias, entry):
        if problem.serious:
            raise InvalidLockBackend(f"{problem.message} {problem.hint}".strip())
        if problem.id == VERSION_WARNING:
            _warn(problem.message)
    entry = {**DEFAULTS, **entry}
    backend: type[Backend] = import_string(entry["BACKEND"])
    location, options = location_of(entry)
    general = overrides.read(entry)
    assert general.lease is not None and general.wait is not None  # noqa: S101, PT018 - the defaults have them
    assert general.max_hold is not None and general.backend_wait is not None  # noqa: S101, PT018
    return AliasSettings(
        alias=alias,
        backend=backend,
        location=location,
        options=backend.with_lease(options, general.lease),
        key_prefix=entry["KEY_PREFIX"],
        lease=general.lease,
        wait=general.wait,
        max_hold=general.max_hold,
        fail_open=bool(general.fail_open),
        index=entry["INDEX"],
        log_keys=entry["LOG_KEYS"],
        metadata=general.metadata or (),
        on_conflict=general.decorator_options.on_conflict or "answer",
        names={name: overrides.read(override) for name, override in entry["LOCKS"].items()},
        backend_wait=general.backend_wait,
    )


@cache
def _warn(message: str) -> None:
    """Log a warning once, for processes that don't run the system checks, such as workers."""
    _log.warning(message)

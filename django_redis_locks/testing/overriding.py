"""``override_locks``: keeps the locks of all aliases in memory, separately for each test."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.test.utils import TestContextDecorator, override_settings

from ..backends.memory import MemoryBackend
from ..conf import SETTING
from ..core.hold import State
from ..core.registry import registry
from ..handler import DEFAULT, locks

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..engine.engine import Engine

BACKEND = "django_redis_locks.backends.memory.MemoryBackend"

_STORE_KEYS = {"BACKEND", "LOCATION", "CACHE", "OPTIONS"}

_unused_names: list[str] = []
"""Names of stores that aren't in use. They are reused, since each used store keeps a thread."""

_names = count(1)


class override_locks(TestContextDecorator):  # noqa: N801 - as Django's override_settings
    """Keeps the locks of all aliases in the memory of this process. None is held at first.

    A context manager, and a decorator for functions, coroutines and ``TestCase`` classes, where it applies to each
    test. The aliases and their other options are those of the settings; aliases on one server still share their locks.
    Locks that are held at the end are forgotten.

    Example::

        with override_locks(WAIT=0):
            ...
    """

    def __init__(self, **entry: Any) -> None:
        """
        Args:
            entry: options that override those of each alias, such as ``WAIT=0``.
        """
        super().__init__()
        self._entry = entry
        self._inner: list[tuple[override_settings, object, str, list[Engine]]] = []

    def enable(self) -> None:
        """Begin to keep the locks in memory. Blocks and decorated tests call it."""
        name = _unused_names.pop() if _unused_names else f"tests {next(_names)}"
        override = override_settings(**{SETTING: self._in_memory(locks.configuration(), name)})
        override.enable()
        try:
            engines = [locks[alias].engine for alias in locks]
        except BaseException:
            override.disable()
            raise
        self._inner.append((override, settings._wrapped, name, engines))

    def disable(self) -> None:
        """Forget the locks in memory, and restore the settings."""
        override, wrapped, name, engines = self._inner.pop()
        for engine in engines:
            _forget(engine)
        if settings._wrapped is wrapped:
            override.disable()
        else:  # an override that began inside this one ends later, as pytest's fixtures may
            vars(wrapped).pop(SETTING, None)
            locks.reset()
        _unused_names.append(name)

    def _in_memory(self, table: Mapping[str, Any], name: str) -> dict[str, dict[str, Any]]:
        servers: dict[str, str] = {}
        aliases = {DEFAULT: {}, **table}
        found = {}
        for alias, entry in aliases.items():
            server = repr([entry.get(key) for key in sorted(_STORE_KEYS)])
            location = servers.setdefault(server, f"{name}.{len(servers)}")
            options = {key: value for key, value in entry.items() if key not in _STORE_KEYS}
            found[alias] = {**options, **self._entry, "BACKEND": BACKEND, "LOCATION": location}
        return found


def _forget(engine: Engine) -> None:
    """Remove all locks and records of an engine, without reporting a loss now or at a later renewal."""
    for hold in [*engine.renewed(), *(grant.hold for grant in registry.grants())]:
        if hold.lock_id.store == engine.backend.identity:
            with hold.mutex.rlock:
                hold.open_grants.clear()
                hold.state = State.GONE
    if isinstance(engine.backend, MemoryBackend):
        engine.backend.clear()

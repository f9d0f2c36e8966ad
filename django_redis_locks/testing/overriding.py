"""All aliases in memory, each test with locks of its own."""

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

_OF_A_STORE = {"BACKEND", "LOCATION", "CACHE", "OPTIONS"}

_free: list[str] = []
"""Names of stores that nobody uses. They are used again, since each has a thread of its own once it was used."""

_names = count(1)


class override_locks(TestContextDecorator):  # noqa: N801 - as Django's override_settings
    """Keeps the locks of all aliases in the memory of this process, none of them held at first. A context manager, and a
    decorator for functions, coroutines and ``TestCase`` classes, each of whose tests begins anew.

    The aliases and what else is said of them are those of the settings; those on one server go on to share their locks.
    Locks that are still held in the end are forgotten, so that they are not the next test's.
    """

    def __init__(self, **entry: Any) -> None:
        """
        Args:
            entry: what each alias is to say otherwise, such as ``WAIT=0``.
        """
        super().__init__()
        self._entry = entry
        self._inner: list[tuple[override_settings, object, str, list[Engine]]] = []

    def enable(self) -> None:
        name = _free.pop() if _free else f"tests {next(_names)}"
        override = override_settings(**{SETTING: self._in_memory(locks.configuration(), name)})
        override.enable()
        try:
            engines = [locks[alias].engine for alias in locks]
        except BaseException:
            override.disable()
            raise
        self._inner.append((override, settings._wrapped, name, engines))

    def disable(self) -> None:
        override, ours, name, engines = self._inner.pop()
        for engine in engines:
            _forget(engine)
        if settings._wrapped is ours:
            override.disable()
        else:  # another override began inside of this one and ends later, as that of a fixture of pytest may
            vars(ours).pop(SETTING, None)
            locks.reset()
        _free.append(name)

    def _in_memory(self, table: Mapping[str, Any], name: str) -> dict[str, dict[str, Any]]:
        servers: dict[str, str] = {}
        aliases = {DEFAULT: {}, **table}
        found = {}
        for alias, entry in aliases.items():
            server = repr([entry.get(key) for key in sorted(_OF_A_STORE)])
            location = servers.setdefault(server, f"{name}.{len(servers)}")
            about = {key: value for key, value in entry.items() if key not in _OF_A_STORE}
            found[alias] = {**about, **self._entry, "BACKEND": BACKEND, "LOCATION": location}
        return found


def _forget(engine: Engine) -> None:
    """Free all its locks and records. No loss is reported, neither now nor by a renewal that finds them gone."""
    for hold in [*engine.renewed(), *(grant.hold for grant in registry.grants())]:
        if hold.lock_id.store == engine.backend.identity:
            with hold.mutex:
                hold.open_grants.clear()
                hold.state = State.GONE
    if isinstance(engine.backend, MemoryBackend):
        engine.backend.clear()

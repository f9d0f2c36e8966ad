"""``locks``: the aliases of ``REDIS_LOCKS``, with one client per alias and process.

Django's connection handlers have a connection per thread. Here all threads and tasks share a client, because queues,
renewal and connections belong to the process.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from .client import Locks
from .conf import SETTING, InvalidLockBackend, read
from .conf import cache_settings as caches
from .conf.reload import on_settings_change
from .core.events import forget_log_keys
from .core.forks import ForkSafeLock
from .core.tuning import Tuning
from .engine.engine import Engine
from .engine.exit_release import exit_at
from .lock_maker import LockMaker
from .mutex_maker import Options

if TYPE_CHECKING:
    from .backends.base import Backend
    from .conf.decorator_options import LockKind
    from .core.detached import DetachedHold
    from .core.durations import Duration
    from .core.grant import OnLost
    from .mutex_maker import OnBackendError
    from .primitives.latch import Latch
    from .primitives.lock import Lock
    from .primitives.record import RecordRef
    from .primitives.rwlock import ReadWriteLock
    from .primitives.semaphore import Semaphore
    from .primitives.shared.base_lock import BaseLock

DEFAULT = "default"


class LockHandler(LockMaker):
    """The locks, records and latches of all aliases of ``REDIS_LOCKS``. ``locks`` is its one object.

    ``locks["reports"]`` gives those of an alias; ``locks.lock()``, ``rlock()``, ``fair_lock()``, ``record()`` and
    ``latch()`` are those of "default".

    Example::

        with locks.lock("import"):
            run_import()

        with locks["reports"].lock("nightly", expire=120, wait=10):
            make_report()
    """

    def __init__(self) -> None:
        self._mutex = ForkSafeLock()
        self._clients: dict[str, Locks] = {}
        self._engines: dict[tuple[object, ...], Engine] = {}
        self._configured: Mapping[str, Any] | None = None
        self.tuning = Tuning()
        """The tuning of engines that are created later. For tests."""

    def __getitem__(self, alias: str) -> Locks:
        """Return the locks of an alias.

        Raises:
            InvalidLockBackend: there is no such alias, or its settings are wrong.
        """
        client = self._clients.get(alias)
        if client is None:
            with self._mutex.rlock:
                client = self._clients.get(alias) or self._clients.setdefault(alias, self._open(alias))
        return client

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of the aliases."""
        return iter(self.configuration())

    def _make(
        self, key: str, name: str | None, options: Options, on_lost: OnLost, reentrant: bool, kind: LockKind = "lock"
    ) -> Lock:
        try:
            client = self._clients[DEFAULT]
        except KeyError:
            client = self[DEFAULT]
        return client._make(key, name, options, on_lost, reentrant, kind)

    def _make_semaphore(self, key: str, limit: int, name: str | None, options: Options, on_lost: OnLost) -> Semaphore:
        return self[DEFAULT]._make_semaphore(key, limit, name, options, on_lost)

    def _make_rwlock(self, key: str, name: str | None, options: Options, on_lost: OnLost) -> ReadWriteLock:
        return self[DEFAULT]._make_rwlock(key, name, options, on_lost)

    def _attachable(self, text: str, on_lost: OnLost) -> tuple[BaseLock, DetachedHold]:
        return self[DEFAULT]._attachable(text, on_lost)

    def _make_record(
        self, key: str, name: str | None, wait: Duration | None, on_backend_error: OnBackendError | None
    ) -> RecordRef:
        return self[DEFAULT]._make_record(key, name, wait, on_backend_error)

    def _make_latch(self, key: str, name: str | None) -> Latch:
        return self[DEFAULT]._make_latch(key, name)

    def configure(self, configuration: Mapping[str, Any] | None) -> None:
        """Configure a program that has no Django settings. ``REDIS_LOCKS`` in Django's settings takes precedence.

        Args:
            configuration: as ``REDIS_LOCKS``: a dict of aliases. None removes it.
        """
        self._configured = configuration
        self.reset()

    def configuration(self) -> Mapping[str, Any]:
        """Return the aliases with their entries. Without ``REDIS_LOCKS``, the alias "default" uses the connection
        settings of the cache "default", if that cache is on Redis."""
        try:
            table = getattr(settings, SETTING, None)
        except ImproperlyConfigured:  # Django's settings aren't configured
            table = None
        if table is not None:
            if not isinstance(table, Mapping):
                raise InvalidLockBackend(f"{SETTING} must be a dict of aliases, not {type(table).__name__}.")
            return table
        if self._configured is not None:
            return self._configured
        if caches.why_not_usable(DEFAULT) is None:
            return {DEFAULT: {"CACHE": DEFAULT}}
        return {}

    def close_all(self) -> None:
        """Close idle connections of all aliases."""
        for client in list(self._clients.values()):
            client.close()

    def release_at_exit(self, signals: Iterable[int] = (signal.SIGTERM,)) -> None:
        """End this process by ``SystemExit`` at these signals, so that blocks end and its locks are released, as at any
        other exit of the interpreter. Without this, SIGTERM ends a Python program at once, and its locks stay held until
        their leases end. For programs that don't handle the signal themselves, such as management commands: servers and
        Celery workers do.

        Args:
            signals: the numbers of the signals. A second one ends the process at once.

        Raises:
            ValueError: called outside of the main thread, or a signal has a handler already.

        Example::

            class Command(BaseCommand):
                def handle(self, **options):
                    locks.release_at_exit()
                    with locks.lock("import"):
                        run_import()
        """
        exit_at(signals)

    def reset(self) -> None:
        """Read the settings again at the next use. Held locks don't change."""
        with self._mutex.rlock:
            self._clients = {}
            forget_log_keys()

    def _open(self, alias: str) -> Locks:
        table = self.configuration()
        if alias not in table:
            known = (
                ", ".join(map(repr, table)) or f"nothing: set {SETTING} = {{'default': {{'LOCATION': 'redis://…'}}}}"
            )
            loaded = settings.configured or "DJANGO_SETTINGS_MODULE" in os.environ
            hint = (
                "" if loaded else " Django's settings aren't loaded: set DJANGO_SETTINGS_MODULE, or locks.configure()."
            )
            raise InvalidLockBackend(f"There is no alias {alias!r} in {SETTING}; there is {known}.{hint}")
        found = read(alias, table[alias])
        return Locks(found, self._engine_of(found.backend, found.location, found.options))

    def _engine_of(self, backend: type[Backend], location: Any, options: Mapping[str, Any]) -> Engine:
        """Return the engine of a store. Aliases with equal settings share it."""
        key = (backend, location, repr(sorted(options.items())))
        with self._mutex.rlock:
            engine = self._engines.get(key)
            if engine is None:
                engine = self._engines[key] = Engine(backend(location, options, self.tuning), self.tuning)
            return engine

    def __repr__(self) -> str:
        return f"<LockHandler {sorted(self._clients)}>"


locks = LockHandler()
on_settings_change(locks.reset)


def engine_of(backend: type[Backend], location: Any, options: Mapping[str, Any]) -> Engine:
    """Return the engine of a store, for packages that use the store without an alias."""
    return locks._engine_of(backend, location, options)

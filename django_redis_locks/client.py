"""``Locks``: makes the locks, records and latches of one alias."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from . import open_transactions
from .backends.base import FEATURES
from .conf import AliasSettings
from .conf.overrides import EMPTY_OVERRIDES, Overrides
from .core import durations, events
from .core.arguments import validate_flag, validate_limit
from .core.detached import DetachedHold, decode
from .core.holder import validate_note
from .core.keys import KeyLayout, LockId, LockKeys, default_name, escape_again
from .lock_kinds import KINDS, SIDES
from .lock_maker import LockMaker
from .lock_options import (
    check_kept,
    first_given,
    limited,
    release_options,
    validate_on_lost,
    wait_options,
    with_on_lost,
)
from .mutex_maker import HoldUntil, OnBackendError, Options
from .primitives.latch import Latch
from .primitives.lock import Lock
from .primitives.record import RecordRef
from .primitives.rwlock import ReadWriteLock
from .primitives.semaphore import Semaphore
from .primitives.shared.fair_steps import FairSteps
from .primitives.shared.lock_spec import LockSpec
from .primitives.shared.mutex_steps import KIND, MutexSteps
from .primitives.shared.permit_lock import PermitLock
from .primitives.shared.permit_steps import SEMAPHORE, PermitSteps
from .primitives.shared.requests import LockOptions
from .primitives.shared.rwlock_steps import RWLOCK
from .transaction_lock import TransactionSemaphore

if TYPE_CHECKING:
    from collections.abc import Callable

    from .conf.decorator_options import LockKind
    from .core.durations import Duration
    from .core.grant import OnLost
    from .engine.engine import Engine
    from .primitives.shared.base_lock import BaseLock
    from .primitives.shared.lock_steps import LockSteps

T = TypeVar("T")

_NO_OPTIONS: Options = (None, None, None, None, None, None, True, None, False, None)

CACHED_KEYS = 4096
"""The number of keys, and of combinations of options, that are cached, because most locks are made repeatedly."""


class LockAddress(NamedTuple):
    """The arguments that identify a lock or record: its keys in the store, the user's key, its name and its alias."""

    lock_id: LockId
    keys: LockKeys
    key: str
    name: str
    alias: str


class Locks(LockMaker):
    """Makes the locks, records and latches of one alias. Lock objects are cheap: make a new one for each use."""

    def __init__(self, settings: AliasSettings, engine: Engine) -> None:
        self.settings = settings
        self.engine = engine
        events.log_keys(settings.alias, settings.log_keys)
        self._key_layout = KeyLayout(settings.key_prefix, engine.backend.buckets)
        self._cached_parts = lru_cache(CACHED_KEYS, typed=True)(self._lock_parts)  # a lazy string equals a str
        self._cached_semaphore_parts = lru_cache(CACHED_KEYS, typed=True)(self._semaphore_parts)
        self._cached_rwlock_parts = lru_cache(CACHED_KEYS, typed=True)(self._rwlock_parts)
        self._cached_options = lru_cache(CACHED_KEYS, typed=True)(self._lock_options)

    def __repr__(self) -> str:
        return f"<Locks {self.settings.alias!r} on {self.engine.backend!r}>"

    def close(self) -> None:
        """Close idle connections."""
        self.engine.close()

    def overrides(self, name: str) -> Overrides:
        """Return the options of ``LOCKS[name]``."""
        return self.settings.names.get(name, EMPTY_OVERRIDES)

    def _require(self, feature: str) -> None:
        self.engine.require(feature, self.settings.alias)

    def _make_record(
        self, key: str, name: str | None, wait: Duration | None, on_backend_error: OnBackendError | None
    ) -> RecordRef:
        self._require("records")
        address = self._address(key, name)
        options: Options = (None, wait, None, on_backend_error, None, None, True, None, False, None)
        return RecordRef(self.engine, *address, self._options_of(address.name, options))

    def _make_latch(self, key: str, name: str | None) -> Latch:
        self._require("latches")
        address = self._address(key, name)
        return Latch(self.engine, *address, self._options_of(address.name, _NO_OPTIONS))

    def _make(
        self, key: str, name: str | None, options: Options, on_lost: OnLost, reentrant: bool, kind: LockKind = "lock"
    ) -> Lock:
        if kind in FEATURES:
            self._require(kind)
        make_parts = self._cached_parts if options[-1] is None else self._lock_parts  # notes rarely recur
        try:
            made, spec = make_parts(kind, key, name, *options)
        except TypeError:  # not hashable, or wrong
            made, spec = self._lock_parts(kind, key, name, *options)
        return made(spec if on_lost is None else with_on_lost(spec, on_lost), reentrant)

    def _make_semaphore(self, key: str, limit: int, name: str | None, options: Options, on_lost: OnLost) -> Semaphore:
        make_parts = self._cached_semaphore_parts if options[-1] is None else self._semaphore_parts
        try:
            kind, spec = make_parts(key, limit, name, *options)
        except TypeError:  # not hashable, or wrong
            kind, spec = self._semaphore_parts(key, limit, name, *options)
        return kind(spec if on_lost is None else with_on_lost(spec, on_lost))

    def _make_rwlock(self, key: str, name: str | None, options: Options, on_lost: OnLost) -> ReadWriteLock:
        make_parts = self._cached_rwlock_parts if options[-1] is None else self._rwlock_parts
        try:
            (read, reads), (write, writes) = make_parts(key, name, *options)
        except TypeError:  # not hashable, or wrong
            (read, reads), (write, writes) = self._rwlock_parts(key, name, *options)
        return ReadWriteLock(read(with_on_lost(reads, on_lost)), write(with_on_lost(writes, on_lost)))

    def _rwlock_parts(self, key: str, name: str | None, *options: Any) -> list[tuple[Any, LockSpec]]:
        """Return what read-write locks of equal arguments share: the class and the spec of each side."""
        self._require("rwlocks")
        address = self._address(key, name)
        lock_options = self._options_of(address.name, options)
        return [
            (deferred if lock_options.database else usual, self._spec(address, lock_options, steps))
            for steps, usual, deferred in SIDES.values()
        ]

    def _semaphore_parts(
        self, key: str, limit: int, name: str | None, *options: Any
    ) -> tuple[type[Semaphore], LockSpec]:
        """Return what semaphores of equal arguments share: their class and their spec."""
        self._require("semaphores")
        address = self._address(key, name)
        lock_options = self._options_of(address.name, options)
        kind = TransactionSemaphore if lock_options.database else Semaphore
        return kind, self._semaphore_spec(address, lock_options, validate_limit(limit))

    def _semaphore_spec(self, address: LockAddress, options: LockOptions, limit: int) -> LockSpec:
        steps = PermitSteps(self.engine, address.keys, address.name, options, SEMAPHORE, limit, 1)
        return LockSpec(self.engine, *address, options, steps)

    def _attachable(self, text: str, on_lost: OnLost) -> tuple[BaseLock, DetachedHold]:
        """Return the lock of a detached hold, and what its text says."""
        found = decode(text)
        if found.alias != self.settings.alias:
            raise ValueError(
                f"this text is of a lock of alias {found.alias!r}: write locks[{found.alias!r}].attach(text)"
            )
        self._require("detach")
        if found.kind not in (*KINDS, *SIDES, SEMAPHORE):
            raise ValueError(f"this text is of a lock of kind {found.kind!r}, which this version can't attach")
        address = self._address(found.key, found.name)
        options = replace(
            self._default_options(self.overrides(found.name)),
            lease=found.lease,
            renew_for=inf if found.renew_for < 0 else found.renew_for,
            max_hold=None if found.max_hold is None else inf if found.max_hold < 0 else found.max_hold,
            note=found.note,
            on_lost=validate_on_lost(on_lost),
        )
        if found.kind == SEMAPHORE:
            permits = PermitSteps(self.engine, address.keys, found.name, options, *found.terms)
            return Semaphore(LockSpec(self.engine, *address, options, permits)), found
        steps, usual, _ = (SIDES if found.kind in SIDES else KINDS)[found.kind]
        return usual(self._spec(address, options, steps)), found

    def _lock_parts(self, kind: LockKind, key: str, name: str | None, *options: Any) -> tuple[type[Lock], LockSpec]:
        """Return what locks of equal arguments share: their class and their spec."""
        address = self._address(key, name)
        lock_options = self._options_of(address.name, options)
        steps, usual, deferred = KINDS[kind]
        if self.engine.backend.always_fair:
            steps = FairSteps
        return deferred if lock_options.database else usual, self._spec(address, lock_options, steps)

    def _spec(
        self, address: LockAddress, options: LockOptions, steps: Callable[..., LockSteps] = MutexSteps
    ) -> LockSpec:
        return LockSpec(self.engine, *address, options, steps(self.engine, address.keys, address.name, options))

    def _options_of(self, name: str, options: Any) -> LockOptions:
        make_options = self._cached_options if options[-1] is None else self._lock_options
        try:
            return make_options(name, *options)
        except TypeError:  # not hashable, or wrong
            return self._lock_options(name, *options)

    def _address(self, key: str, name: str | None) -> LockAddress:
        if name is not None and not isinstance(name, str):
            raise ValueError(f"name must be a str, not {name!r}")
        return self._at(self._key_layout.keys_of(key), key, name)

    def _at(self, keys: LockKeys, key: str, name: str | None) -> LockAddress:
        name = default_name(key) if name is None else name
        return LockAddress(LockId(self.engine.backend.identity, keys.lock), keys, key, name, self.settings.alias)

    def listed(self, key: str, kind: str = KIND, limit: int | None = None) -> Lock | PermitLock:
        """Return the lock of a kind, with a key that came from a list of locks, where long keys end with a hash."""
        keys = self._key_layout.keys_of_escaped(escape_again(key))
        address = self._at(keys, key, None)
        options = self._lock_options(address.name, *_NO_OPTIONS)
        if kind == SEMAPHORE:
            return Semaphore(self._semaphore_spec(address, options, limit or 1))
        if kind == RWLOCK:
            steps = PermitSteps(self.engine, address.keys, address.name, options, kind, 1, 1)
            return PermitLock(LockSpec(self.engine, *address, options, steps))
        return Lock(self._spec(address, options))

    @property
    def indexes(self) -> list[str]:
        """The store's keys of the indexes of this alias."""
        return self._key_layout.indexes()

    @property
    def fence_counters(self) -> list[str]:
        """The store's keys of the fence counters of this alias, in the order of their buckets."""
        return self._key_layout.fence_counters()

    def default_wait(self, name: str) -> float:
        """Return how long a caller waits for a lock by default.

        Args:
            name: the name of the lock.

        Returns:
            Seconds; infinity for ever.
        """
        return first_given(self.overrides(name).wait, self.settings.wait)

    def max_hold(self, name: str) -> float:
        """Return the seconds after which a lock of this name isn't renewed any more."""
        return first_given(self.overrides(name).max_hold, self.settings.max_hold)

    def _default_options(self, overrides: Overrides) -> LockOptions:
        """Return the options of a lock without arguments: its lease is renewed unless ``LOCKS`` says otherwise."""
        settings, backend = self.settings, self.engine.backend
        max_hold = first_given(overrides.max_hold, settings.max_hold)
        return LockOptions(
            lease=first_given(overrides.lease, settings.lease),
            wait=first_given(overrides.wait, settings.wait),
            renew_for=max_hold if first_given(overrides.renew, True) else 0.0,
            fail_open=first_given(overrides.fail_open, settings.fail_open),
            index=settings.index,
            metadata=first_given(overrides.metadata, settings.metadata),
            on_lost=None,
            after_release=open_transactions.warn_if_open,
            backend_wait=first_given(overrides.backend_wait, settings.backend_wait),
            replicas=backend.replicas,
            fenced=backend.fences,
        )

    def _lock_options(
        self,
        name: str,
        expire: Duration | None,
        wait: Duration | None,
        renew: bool | None,
        on_backend_error: OnBackendError | None,
        hold: HoldUntil | None,
        hold_using: str | None,
        auto_release: bool,
        max_hold: Duration | None,
        wait_for_parent: bool,
        note: str | None,
    ) -> LockOptions:
        """Return the options of a lock of this name. The arguments override the settings."""
        overrides = self.overrides(name)
        lock_options = self._default_options(overrides)
        if renew is not None:
            validate_flag(renew, "renew")
        if expire is not None:
            lock_options = replace(lock_options, lease=durations.lease_ms(expire))
        if not validate_flag(auto_release, "auto_release"):
            self._require("kept")
            check_kept(expire, renew, hold)
            renew = False
            lock_options = replace(lock_options, auto_release=False, after_release=None)
        if renew is None:
            renew = overrides.renew if expire is None or overrides.renew is not None else False
        if renew is not None:
            lock_options = replace(lock_options, renew_for=self.max_hold(name) if renew else 0.0)
        if max_hold is not None:
            lock_options = limited(
                lock_options, durations.hold_seconds(max_hold), renewable=overrides.renew is not False
            )
        given = release_options(hold, hold_using) | wait_options(wait, on_backend_error, wait_for_parent)
        if note is not None:
            given["note"] = validate_note(note)
        return replace(lock_options, **given) if given else lock_options

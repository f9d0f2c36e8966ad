"""``Locks``: makes the locks, records and latches of one alias."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from django.db import DEFAULT_DB_ALIAS, connections

from . import open_transactions
from .backends.base import FEATURES
from .conf import ON_BACKEND_ERROR, SETTING, AliasSettings, InvalidLockBackend
from .conf.overrides import EMPTY_OVERRIDES, Overrides
from .core import durations, events
from .core.arguments import validate_choice, validate_flag
from .core.detached import decode
from .core.holder import validate_note
from .core.keys import KeyLayout, LockId, LockKeys, default_name, escape_again
from .lock_kinds import KINDS
from .lock_maker import LockMaker
from .mutex_maker import HoldUntil, OnBackendError, Options
from .primitives.latch import Latch
from .primitives.lock import Lock
from .primitives.record import RecordRef
from .primitives.shared.lock_spec import LockSpec
from .primitives.shared.mutex_steps import MutexSteps
from .primitives.shared.requests import LockOptions

if TYPE_CHECKING:
    from .conf.decorator_options import LockKind
    from .core.durations import Duration
    from .core.grant import OnLost
    from .engine.engine import Engine

T = TypeVar("T")

_NO_OPTIONS: Options = (None, None, None, None, None, None, True, None, False, None)

FIXED_LEASE = "max_hold limits the renewal of the lease, and this one is fixed: add renew=True, or leave max_hold out"
"""The error of a call site that gives both."""

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
        self._cached_options = lru_cache(CACHED_KEYS, typed=True)(self._lock_options)

    def __repr__(self) -> str:
        return f"<Locks {self.settings.alias!r} on {self.engine.backend!r}>"

    def close(self) -> None:
        """Close idle connections."""
        self.engine.close()

    def overrides(self, name: str) -> Overrides:
        """Return the options of ``LOCKS[name]``."""
        return self.settings.names.get(name, EMPTY_OVERRIDES)

    def _make_record(
        self, key: str, name: str | None, wait: Duration | None, on_backend_error: OnBackendError | None
    ) -> RecordRef:
        require(self, "records")
        address = self._address(key, name)
        options: Options = (None, wait, None, on_backend_error, None, None, True, None, False, None)
        return RecordRef(self.engine, *address, self._options_of(address.name, options))

    def _make_latch(self, key: str, name: str | None) -> Latch:
        require(self, "latches")
        address = self._address(key, name)
        return Latch(self.engine, *address, self._options_of(address.name, _NO_OPTIONS))

    def _make(
        self, key: str, name: str | None, options: Options, on_lost: OnLost, reentrant: bool, kind: LockKind = "lock"
    ) -> Lock:
        if kind in FEATURES:
            require(self, kind)
        make_parts = self._cached_parts if options[-1] is None else self._lock_parts  # notes rarely recur
        try:
            made, spec = make_parts(kind, key, name, *options)
        except TypeError:  # not hashable, or wrong
            made, spec = self._lock_parts(kind, key, name, *options)
        if on_lost is not None:
            if not spec.options.auto_release:
                raise TypeError(
                    "a lock with auto_release=False always ends with its lease, so on_lost is never called: leave it out"
                )
            spec = replace(spec, options=replace(spec.options, on_lost=validate_on_lost(on_lost)))
        return made(spec, reentrant)

    def _attachable(self, text: str, on_lost: OnLost) -> tuple[Lock, str]:
        """Return the lock of a detached hold, and the token with which it is attached."""
        found = decode(text)
        if found.alias != self.settings.alias:
            raise ValueError(
                f"this text is of a lock of alias {found.alias!r}: write locks[{found.alias!r}].attach(text)"
            )
        if found.kind not in KINDS:
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
        steps, usual, _ = KINDS[found.kind]
        return usual(self._spec(address, options, steps)), found.token

    def _lock_parts(self, kind: LockKind, key: str, name: str | None, *options: Any) -> tuple[type[Lock], LockSpec]:
        """Return what locks of equal arguments share: their class and their spec."""
        address = self._address(key, name)
        lock_options = self._options_of(address.name, options)
        steps, usual, deferred = KINDS[kind]
        return deferred if lock_options.database else usual, self._spec(address, lock_options, steps)

    def _spec(self, address: LockAddress, options: LockOptions, steps: type[MutexSteps] = MutexSteps) -> LockSpec:
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

    def listed(self, key: str) -> Lock:
        """Return the lock with a key that came from a list of locks, where long keys end with a hash."""
        keys = self._key_layout.keys_of_escaped(escape_again(key))
        address = self._at(keys, key, None)
        return Lock(self._spec(address, self._lock_options(address.name, *_NO_OPTIONS)))

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
        return _first_given(self.overrides(name).wait, self.settings.wait)

    def max_hold(self, name: str) -> float:
        """Return the seconds after which a lock of this name isn't renewed any more."""
        return _first_given(self.overrides(name).max_hold, self.settings.max_hold)

    def _default_options(self, overrides: Overrides) -> LockOptions:
        """Return the options of a lock without arguments: its lease is renewed unless ``LOCKS`` says otherwise."""
        settings = self.settings

        max_hold = _first_given(overrides.max_hold, settings.max_hold)
        return LockOptions(
            lease=_first_given(overrides.lease, settings.lease),
            wait=_first_given(overrides.wait, settings.wait),
            renew_for=max_hold if _first_given(overrides.renew, True) else 0.0,
            fail_open=_first_given(overrides.fail_open, settings.fail_open),
            index=settings.index,
            metadata=_first_given(overrides.metadata, settings.metadata),
            on_lost=None,
            after_release=open_transactions.warn_if_open,
            backend_wait=_first_given(overrides.backend_wait, settings.backend_wait),
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
            _check_kept(expire, renew, hold)
            renew = False
            lock_options = replace(lock_options, auto_release=False, after_release=None)
        if renew is None:
            renew = overrides.renew if expire is None or overrides.renew is not None else False
        if renew is not None:
            lock_options = replace(lock_options, renew_for=self.max_hold(name) if renew else 0.0)
        if max_hold is not None:
            lock_options = _limited(
                lock_options, durations.hold_seconds(max_hold), renewable=overrides.renew is not False
            )
        given = _release_options(hold, hold_using) | _wait_options(wait, on_backend_error, wait_for_parent)
        if note is not None:
            given["note"] = validate_note(note)
        return replace(lock_options, **given) if given else lock_options


def _check_kept(expire: object, renew: object, hold: object) -> None:
    """
    Raises:
        TypeError: the options contradict ``auto_release=False``.
    """
    if expire is None or renew or hold is not None:
        raise TypeError(
            "a lock with auto_release=False stays until its lease ends: give it an expire=, and neither renew=True nor hold="
        )


def _limited(options: LockOptions, max_hold: float, *, renewable: bool) -> LockOptions:
    """Return the options of a lock with a limit of its own for the renewal.

    Args:
        options: the other options.
        max_hold: seconds; infinity for ever.
        renewable: False if the settings say that locks of this name aren't renewed. Then the limit has no effect.

    Raises:
        TypeError: the call site gives a lease that isn't renewed.
        ValueError: the limit is shorter than the lease.
    """
    if not options.renew_for:
        if renewable:
            raise TypeError(FIXED_LEASE)
        return options
    if max_hold < options.lease / 1000:
        raise ValueError(f"max_hold is shorter than the lease: {max_hold:g} against {options.lease / 1000:g} seconds")
    return replace(options, renew_for=max_hold, max_hold=max_hold)


def require(client: Locks, feature: str) -> None:
    """Check that the store of an alias has a feature, before an object that needs it is made.

    Args:
        client: the locks of the alias.
        feature: a word of ``FEATURES``.

    Raises:
        InvalidLockBackend: it hasn't.
    """
    backend = client.engine.backend
    if feature not in backend.supports:
        where = f"{SETTING}[{client.settings.alias!r}]"
        raise InvalidLockBackend(f"{where}: {FEATURES[feature]}; {backend.refusal(feature)}.")


def validate_on_lost(value: OnLost) -> OnLost:
    """Return the value of ``on_lost``.

    Raises:
        ValueError: neither None nor "cancel" nor a callable.
    """
    if value is not None and value != "cancel" and not callable(value):
        raise ValueError(f'on_lost is None, "cancel" or a callable, not {value!r}')
    return value


def validate_on_backend_error(on_backend_error: object) -> bool:
    """Return whether a section continues without its lock while the store is down.

    Raises:
        ValueError: neither "closed" nor "open".
    """
    return validate_choice(on_backend_error, "on_backend_error", ON_BACKEND_ERROR) == "open"


def _wait_options(wait: Duration | None, on_backend_error: object, wait_for_parent: object) -> dict[str, Any]:
    """Return the options that say how a caller waits.

    Raises:
        ValueError: one of them is out of its range.
    """
    given: dict[str, Any] = {}
    if wait is not None:
        given["wait"] = durations.wait_seconds(wait)
    if on_backend_error is not None:
        given["fail_open"] = validate_on_backend_error(on_backend_error)
    if validate_flag(wait_for_parent, "wait_for_parent"):
        given["wait_for_parent"] = True
    return given


def _release_options(hold: object, using: object) -> dict[str, Any]:
    """Return the options that say when a lock is released.

    Raises:
        ValueError: ``hold`` or the database is unknown.
    """
    if hold is None and using is None:
        return {}
    if hold == "block" and using is None:
        return {"after_release": None}
    if hold in (None, "block"):
        raise ValueError('hold_using names the database of hold="transaction", and needs it')
    if hold != "transaction":
        raise ValueError(f"hold of a lock object is 'block' or 'transaction', not {hold!r}")
    if using is not None and (not isinstance(using, str) or using not in connections.settings):
        raise ValueError(f"hold_using is one of {', '.join(map(repr, connections.settings))}, not {using!r}")
    return {"database": using or DEFAULT_DB_ALIAS}


def _first_given(override: T | None, default: T) -> T:
    return default if override is None else override

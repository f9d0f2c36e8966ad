"""Validates the arguments of ``@redis_lock``, and takes those that are left out from ``LOCKS`` in the settings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from ..conf import decorator_options
from ..conf.decorator_options import FEATURES_OF_KINDS, DecoratorOptions, HoldUntil, LockKind
from ..core import durations, key_templates
from ..core.arguments import validate_flag, validate_limit
from ..lock_options import FIXED_LEASE, validate_on_backend_error, validate_on_lost

if TYPE_CHECKING:
    from ..client import Locks
    from ..core.durations import Duration
    from ..core.grant import OnLost
    from ..mutex_maker import OnBackendError
    from ..primitives.shared.base_lock import BaseLock

_MAKERS: Final[dict[LockKind, Callable[..., BaseLock]]] = {
    "lock": lambda client, key, limit, **options: client.lock(key, **options),
    "fair": lambda client, key, limit, **options: client.fair_lock(key, **options),
    "read": lambda client, key, limit, **options: client.rwlock(key, **options).read,
    "write": lambda client, key, limit, **options: client.rwlock(key, **options).write,
    "semaphore": lambda client, key, limit, **options: client.semaphore(key, limit, **options),
}
"""Makes the lock of a call, for each kind. Only a semaphore has a limit."""


class DecoratorArguments:
    """The arguments of one use of ``@redis_lock``.

    Attributes:
        options: those that concern calls; None where left out.
        lock_options: those that are passed on to ``locks.lock``.
    """

    def __init__(
        self,
        *,
        key: Any,
        kind: LockKind | None,
        limit: int | None,
        expire: Duration | None,
        wait: Duration | None,
        renew: bool | None,
        max_hold: Duration | None,
        reentrant: bool | None,
        auto_release: bool | None,
        methods: Any,
        condition: Callable[..., object] | None,
        status: int | None,
        retry_after: bool | int | None,
        name: str | None,
        using: str,
        on_lost: OnLost,
        on_backend_error: OnBackendError | None,
        hold: HoldUntil | None,
        on_conflict: Any,
        on_key_error: Any,
    ) -> None:
        if expire is not None:
            durations.lease_ms(expire)
        if wait is not None:
            durations.wait_seconds(wait)
        _check_kind(kind, limit)
        if max_hold is not None:
            _check_max_hold(max_hold, expire, renew, auto_release)
        self.templates = _templates(key)
        if condition is not None and not callable(condition):
            raise TypeError(f"the condition of @redis_lock is a callable, not {condition!r}")
        if not using or type(using) is not str:
            raise ValueError(f"using is an alias of REDIS_LOCKS, not {using!r}")
        if on_backend_error is not None:
            validate_on_backend_error(on_backend_error)
        self.on_lost = validate_on_lost(on_lost)
        self.key = key
        self.wait = wait
        self.name = name or ", ".join(self.templates) or None
        self.using = using
        self.options = DecoratorOptions(
            kind=kind,
            limit=limit,
            reentrant=None if reentrant is None else validate_flag(reentrant, "reentrant"),
            auto_release=None if auto_release is None else validate_flag(auto_release, "auto_release"),
            methods=None if methods is None else decorator_options.validate_methods(methods),
            condition=condition,
            status=None if status is None else decorator_options.validate_status(status),
            retry_after=None if retry_after is None else decorator_options.validate_retry_after(retry_after),
            hold=None if hold is None else decorator_options.validate_hold(hold),
            on_conflict=None if on_conflict is None else decorator_options.validate_on_conflict(on_conflict),
            on_key_error=None if on_key_error is None else decorator_options.validate_on_key_error(on_key_error),
        )
        if self.options.keeps_lock and (expire is None or renew or reentrant):
            raise TypeError(
                "a lock with auto_release=False stays until its lease ends: give it an expire=, and neither renew=True "
                "nor reentrant=True"
            )
        if self.options.keeps_lock and isinstance(key, list | tuple):
            raise TypeError("auto_release=False is for one key: several keys are released together")
        self.lock_options: dict[str, Any] = {
            "expire": expire,
            "renew": renew,
            "max_hold": max_hold,
            "on_backend_error": on_backend_error,
            "hold": "block",  # LockedCall itself defers the release
        }

    @property
    def features(self) -> frozenset[str]:
        """What the lock needs of the store, words of ``FEATURES``, without what the settings or a callable add."""
        found = {
            FEATURES_OF_KINDS.get(self.options.kind or "lock"),
            "multi" if isinstance(self.key, list | tuple) else None,
        }
        return frozenset(feature for feature in found if feature is not None)

    def options_for(self, client: Locks, name: str) -> DecoratorOptions:
        """The options of the decorator; those that are left out are taken from ``LOCKS[name]`` in the settings."""
        return self.options.merged_with(client.overrides(name).decorator_options)

    def lock(self, client: Locks, key: str, name: str, options: DecoratorOptions, *, alone: bool = True) -> BaseLock:
        """The lock of one call. Of several that are not ``alone``, ``on_lost`` is called once, for all of them."""
        wait = self.wait
        if wait is None and client.overrides(name).wait is None:
            wait = 0
        given = {**self.lock_options, "wait": wait, "name": name, "on_lost": self.on_lost if alone else None}
        make = _MAKERS[options.kind or "lock"]
        if options.keeps_lock:
            return make(client, key, options.limit, **{**given, "renew": False})
        lock = make(client, key, options.limit, **given)
        return replace(lock, reentrant=True) if options.reentrant else lock


def _templates(key: Any) -> tuple[str, ...]:
    """Return the templates of a key; none if a callable makes it, or it is left out.

    Raises:
        TypeError: it is something else, or a template is wrong.
    """
    if key is None or callable(key):
        return ()
    templates = tuple(key) if isinstance(key, list | tuple) else (key,)
    if not templates or not all(isinstance(template, str) for template in templates):
        raise TypeError(f"the key of @redis_lock is a str, a list of them, or a callable, not {key!r}")
    for template in templates:
        key_templates.parse(template)
    return templates


def _check_kind(kind: object, limit: object) -> None:
    """
    Raises:
        ValueError: one of both has a wrong value.
        TypeError: a semaphore has no limit, or another lock has one.
    """
    if kind is not None:
        decorator_options.validate_kind(kind)
    if limit is not None:
        validate_limit(limit)
    if (kind == "semaphore") is not (limit is not None):
        raise TypeError(
            'kind="semaphore" and limit=, the number of its permits, need each other: give both to @redis_lock, or neither'
        )


def _check_max_hold(max_hold: Duration, expire: object, renew: bool | None, auto_release: bool | None) -> None:
    """
    Raises:
        ValueError: ``max_hold`` is out of its range.
        TypeError: the decorator gives a lease that isn't renewed.
    """
    durations.hold_seconds(max_hold)
    if renew is False or auto_release is False or (expire is not None and not renew):
        raise TypeError(FIXED_LEASE)

"""System checks of ``REDIS_LOCKS``. They read the settings only and connect to no server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from django.conf import settings
from django.core import checks
from django.urls import get_resolver

from . import conf
from .backends.memory import MemoryBackend
from .conf import cache_settings as caches
from .conf.decorator_options import FEATURES_OF_KINDS
from .conf.overrides import DECORATOR_KEYS
from .core.suggestions import closest, hint
from .decorated_callables import declared, needed_features
from .handler import DEFAULT, locks

TAG = "redis_locks"


def check_settings(app_configs: object = None, **_: Any) -> Sequence[checks.CheckMessage]:
    """Return all errors and warnings about all aliases."""
    table = getattr(settings, conf.SETTING, None)
    if table is None:
        return [_without_setting()]
    if not isinstance(table, Mapping):
        return [check_message(conf.Problem("E001", f"{conf.SETTING} must be a dict of aliases."))]
    found = [
        check_message(problem)
        for alias, entry in table.items()
        for find_problems in (conf.problems, conf.handler_problems)
        for problem in find_problems(alias, entry)
    ]
    if DEFAULT not in table:
        found.append(check_message(conf.Problem("E001", f"{conf.SETTING} has no alias {DEFAULT!r}.")))
    found += [check_message(problem) for problem in _decorator_problems(table)]
    if not any(message.is_serious() for message in found):
        found += [check_message(problem) for problem in (*_shared_databases(table), *_unsupported(table))]
    if not settings.DEBUG and not any(message.is_serious() for message in found):
        found += [
            check_message(
                conf.Problem(
                    "W004",
                    f"{conf.SETTING}[{alias!r}] keeps its locks in the memory of one process.",
                    "They don't exclude other processes. Use a Redis server, except in tests and development.",
                )
            )
            for alias in table
            if isinstance(locks[alias].engine.backend, MemoryBackend)
        ]
    return found


def _decorator_problems(table: Mapping[str, Any]) -> Iterator[conf.Problem]:
    """Yield aliases of decorated callables that aren't in the settings, and names in the settings that no decorated
    callable has."""
    with suppress(Exception):  # import the views, which decorates them; Django's own check reports failed imports
        _ = get_resolver().url_patterns
    uses = declared()
    for using, name in uses:
        if using not in table:
            yield conf.Problem(
                "E060",
                f"@redis_lock of {name} has using={using!r}, and {conf.SETTING} has no such alias.",
                f"There is {', '.join(map(repr, table))}.",
            )
    for alias, entry in table.items():
        names = entry.get("LOCKS", {}) if isinstance(entry, Mapping) else {}
        for name, override in names.items() if isinstance(names, Mapping) else ():
            if (alias, name) in uses or not isinstance(override, Mapping):
                continue
            where = f"{conf.SETTING}[{alias!r}]['LOCKS'][{name!r}]"
            others = [other for using, other in uses if using == alias and other not in names]
            close = closest(name, others, similarity=0.8)
            decorator_keys = [key for key in override if key in DECORATOR_KEYS]
            if close:
                yield conf.Problem(
                    "W060",
                    f"{where}: no @redis_lock has this name.",
                    f"{hint(close)} If lock objects have this name, silence this check.",
                )
            elif decorator_keys:
                yield conf.Problem(
                    "W060",
                    f"{where}: no @redis_lock has this name, and only @redis_lock uses {decorator_keys[0]}.",
                    "The name is the value of name=, or the template, or the module and the function. Perhaps its module isn't imported.",
                )


def _shared_databases(table: Mapping[str, Any]) -> Iterator[conf.Problem]:
    """Yield aliases that share a database and a prefix, so that equal keys are the same lock."""
    seen: dict[tuple[str, str], str] = {}
    for alias in table:
        client = locks[alias]
        first = seen.setdefault((client.engine.backend.identity, client.settings.key_prefix), alias)
        if first != alias:
            yield conf.Problem(
                "W061",
                f"{conf.SETTING}[{first!r}] and [{alias!r}] have the same database and the same KEY_PREFIX.",
                "Their locks with the same key exclude each other. Set another KEY_PREFIX for one of them.",
            )


def _unsupported(table: Mapping[str, Any]) -> Iterator[conf.Problem]:
    """Yield decorated callables, and entries of ``LOCKS``, with a kind of lock that the store doesn't support."""
    needed = [(using, f"@redis_lock of {name}", feature) for using, name, feature in needed_features()]
    for alias in table:
        for name, override in locks[alias].settings.names.items():
            feature = FEATURES_OF_KINDS.get(override.decorator_options.kind or "lock")
            if feature is not None:
                needed.append((alias, f"{conf.SETTING}[{alias!r}]['LOCKS'][{name!r}]", feature))
    for alias, where, feature in needed:
        why = locks[alias].engine.backend.why_unsupported(feature)
        if why is not None:
            yield conf.Problem("E068", f"{where}, alias {alias!r}: {why}.", "Choose another kind, or another alias.")


def check_deployment(app_configs: object = None, **_: Any) -> Sequence[checks.CheckMessage]:
    """Return warnings that matter in production only."""
    table = getattr(settings, conf.SETTING, None)
    if not isinstance(table, Mapping):
        return []
    return [
        check_message(
            conf.Problem(
                "W026",
                f"{where}: sections run without a lock while the store is down.",
                "Set ON_BACKEND_ERROR to 'closed', unless this is intended.",
            )
        )
        for alias, entry in table.items()
        for where in _open_entries(f"{conf.SETTING}[{alias!r}]", entry)
    ]


def _open_entries(where: str, entry: Any) -> Iterator[str]:
    """Yield the entries of one alias with ``ON_BACKEND_ERROR`` "open"."""
    if isinstance(entry, Mapping):
        if entry.get("ON_BACKEND_ERROR") == "open":
            yield where
        names = entry.get("LOCKS")
        if isinstance(names, Mapping):
            for name, override in names.items():
                yield from _open_entries(f"{where}['LOCKS'][{name!r}]", override)


def _without_setting() -> checks.CheckMessage:
    """Return the message for a project without ``REDIS_LOCKS``."""
    if caches.why_not_usable(DEFAULT) is None:
        return check_message(
            conf.Problem(
                "W010",
                f"{conf.SETTING} isn't set: locks are in the database of the cache {DEFAULT!r}.",
                "cache.clear() deletes the locks with the values: give the locks their own database, or their own server.",
            )
        )
    return check_message(
        conf.Problem(
            "W003",
            f"{conf.SETTING} isn't set, and the cache {DEFAULT!r} isn't on Redis: locks can't be used.",
            f"Set {conf.SETTING} = {{'default': {{'LOCATION': 'redis://127.0.0.1:6379/0'}}}}.",
        )
    )


def check_message(problem: conf.Problem) -> checks.CheckMessage:
    """Convert a problem to a message of Django's check framework."""
    kind = checks.Error if problem.serious else checks.Warning
    return kind(problem.message, hint=problem.hint or None, id=f"{TAG}.{problem.id}")

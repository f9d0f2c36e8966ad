"""Reads and validates the entry of a ``StampedeCache`` in ``CACHES``, whose options are the defaults of loads."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from django.core.cache import InvalidCacheBackendError, caches
from django.core.cache.backends.base import DEFAULT_TIMEOUT
from django.core.cache.backends.dummy import DummyCache
from django.core.cache.backends.locmem import LocMemCache
from django.utils.module_loading import import_string

from ..conf import SETTING, InvalidLockBackend, Problem
from ..conf import cache_settings as servers
from ..conf.cache_settings import wraps
from ..conf.reload import on_settings_change
from ..core.suggestions import closest, hint
from ..handler import DEFAULT, locks
from . import options as load_options
from .loading.coordinator import alias_of

if TYPE_CHECKING:
    from collections.abc import Iterator

USING: Final = "USING"

OPTION_NAMES: Final = (
    USING,
    *(name.upper() for name in load_options.NAMES if name not in ("ttl", "default", "groups")),
)
"""The names in OPTIONS. ``ttl`` is TIMEOUT; ``groups`` belong to a key; a ``default`` would look like a cached value to callers of
``get_or_set``."""

ENTRY_KEYS: Final = ("BACKEND", "LOCATION", "TIMEOUT", "OPTIONS")
"""The keys of an entry."""

WRAPPED_KEYS: Final = ("KEY_PREFIX", "VERSION", "KEY_FUNCTION")
WRAPPED_OPTIONS: Final = ("MAX_ENTRIES", "CULL_FREQUENCY")
"""Keys and options of the wrapped cache only."""

SYNONYMS: Final = {**load_options.SYNONYMS, "locks": "using", "ttl": "timeout"}
"""Other names of the keys and options. ``TIMEOUT`` is always a known name, which ends the circle of ttl and timeout."""


def read_entry(location: Any, params: Mapping[str, Any], table: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the alias of ``REDIS_LOCKS`` and the options of loads, ttl included.

    Raises:
        InvalidCacheBackendError: for the first problem in the entry.
    """
    for problem in problems(f"The StampedeCache of {location!r}", {**params, "LOCATION": location}, table):
        raise InvalidCacheBackendError(f"{problem.message} {problem.hint}".strip())
    given = dict(params.get("OPTIONS", {}))
    using = given.pop(USING, DEFAULT)
    ttl = params.get("TIMEOUT", DEFAULT_TIMEOUT)
    return using, {"ttl": ttl, **{name.lower(): value for name, value in given.items()}}


def options_for(cache: Any, given: Mapping[str, Any]) -> load_options.CheckedOptions:
    """Return the options of a load: those that the call gives, and for the others those of the cache's entry.

    Raises:
        InvalidCacheBackendError: the entry of the cache is invalid.
        TypeError: there is no such option.
        ValueError: an option is out of its range.
    """
    alias = cache if type(cache) is str else alias_of(cache)
    if _OF_ONE_CALL.isdisjoint(given) and not callable(given.get("ttl")):
        try:
            return _known(alias, **given)
        except TypeError as error:
            if "unhashable" not in str(error):
                raise
    return _checked(alias, **given)


_OF_ONE_CALL: Final = frozenset(("default", "store_if", "groups"))
"""Options that aren't remembered: equal defaults of other calls must not replace this one, and a function may be made
anew for each call."""


def _checked(alias: str, /, **given: Any) -> load_options.CheckedOptions:
    preset = _preset(alias)
    return load_options.options(completed(preset, given) if preset else given)


_known = lru_cache(1024, typed=True)(_checked)
on_settings_change(_known.cache_clear)


def completed(preset: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the given options, and for the others those of the cache's entry."""
    merged = {**preset, **given}
    if merged["ttl"] is None and "early" not in given:
        merged.pop("early", None)  # a value that never becomes stale isn't refreshed early
    return merged


@lru_cache(64)
def _preset(alias: str) -> Mapping[str, Any]:
    """The options in the entry of a ``StampedeCache``; empty for other caches."""
    entry = caches.settings.get(alias, {})
    if not wraps(entry):
        return {}
    params = {name: value for name, value in entry.items() if name not in ("BACKEND", "LOCATION")}
    return read_entry(entry.get("LOCATION"), params, caches.settings)[1]


on_settings_change(_preset.cache_clear)


def problems(where: str, entry: Mapping[str, Any], table: Mapping[str, Any]) -> Iterator[Problem]:
    """Return all problems of an entry, without I/O."""
    yield from _location(where, entry.get("LOCATION"), table)
    for name in entry:
        if name in WRAPPED_KEYS:
            yield Problem(
                "E045", f"{where}: {name} is set at the wrapped cache.", f"Move it to {entry.get('LOCATION')!r}."
            )
        elif name not in ENTRY_KEYS:
            moved = "Move it into OPTIONS." if name in OPTION_NAMES else _hint(name, (*ENTRY_KEYS, *OPTION_NAMES))
            yield Problem("E042", f"{where}: unknown key {name!r}.", moved)
    yield from _ttl(where, entry)
    given = entry.get("OPTIONS", {})
    if not isinstance(given, Mapping):
        yield Problem("E042", f"{where}: OPTIONS must be a dict, not {type(given).__name__}.")
        return
    yield from _using(where, given, entry.get("LOCATION"), table)
    for name, value in given.items():
        if name in WRAPPED_OPTIONS:
            yield Problem(
                "E045", f"{where}: {name} is set at the wrapped cache.", f"Move it to {entry.get('LOCATION')!r}."
            )
        elif name not in OPTION_NAMES:
            yield Problem("E042", f"{where}: unknown option {name!r}.", _hint(name, OPTION_NAMES))
        elif name != USING:
            yield from _value(where, name, value)


def _is_alias(alias: Any, table: Mapping[str, Any]) -> bool:
    return isinstance(alias, str) and alias in table


def _location(where: str, location: Any, table: Mapping[str, Any]) -> Iterator[Problem]:
    if not _is_alias(location, table):
        others = [alias for alias, entry in table.items() if not wraps(entry)]
        suggestion = hint(closest(location, others), "LOCATION is the alias of the cache that is wrapped.")
        yield Problem("E040", f"{where}: LOCATION {location!r} isn't in CACHES.", suggestion)
    elif wraps(table[location]):
        chain = [location]
        while chain.count(chain[-1]) == 1 and _is_alias(chain[-1], table) and wraps(table[chain[-1]]):
            chain.append(table[chain[-1]].get("LOCATION"))
        shown = " → ".join(map(repr, chain))
        what = f"it wraps itself: {shown}" if chain.count(chain[-1]) > 1 else f"{location!r} is a wrapper itself"
        yield Problem("E041", f"{where}: {what}.", "LOCATION is the alias of the cache that keeps the values.")


def _ttl(where: str, entry: Mapping[str, Any]) -> Iterator[Problem]:
    try:
        load_options.seconds_or_ever(entry.get("TIMEOUT", DEFAULT_TIMEOUT), "ttl")
    except ValueError as error:
        yield Problem("E043", f"{where}: {str(error).replace('ttl', 'TIMEOUT')}.")
    given = entry.get("OPTIONS", {})
    if isinstance(given, Mapping) and given.get("EARLY") is not None and entry.get("TIMEOUT", 0) is None:
        yield Problem("E043", f"{where}: EARLY needs a TIMEOUT: a value that is kept for ever is never refreshed.")


def _value(where: str, name: str, value: Any) -> Iterator[Problem]:
    try:
        load_options.options({name.lower(): value})
    except ValueError as error:
        yield Problem("E043", f"{where}: {str(error).replace(name.lower(), name, 1)}.")
        return
    if name == "ON_TIMEOUT" and value == "default":
        yield Problem("E043", f"{where}: ON_TIMEOUT is one of 'load', 'raise': get_or_set has no default to return.")
    if name == "REFRESH" and value == "celery":
        yield Problem(
            "E043",
            f"{where}: REFRESH 'celery': a worker can't import the argument of get_or_set.",
            "Use 'thread', or decorate functions with @cached(refresh=\"celery\").",
        )


def _using(where: str, given: Mapping[str, Any], location: Any, table: Mapping[str, Any]) -> Iterator[Problem]:
    if USING not in given and not (_is_alias(location, table) and _needs_locks(location, table[location])):
        return
    alias = given.get(USING, DEFAULT)
    try:
        known = list(locks.configuration())
    except InvalidLockBackend:  # reported by the check of REDIS_LOCKS
        return
    if alias not in known:
        suggestion = hint(closest(alias, known), f"There is {', '.join(map(repr, known)) or 'none'}.")
        yield Problem("E044", f"{where}: USING {alias!r} isn't in {SETTING}.", suggestion)


def _needs_locks(alias: str, entry: Any) -> bool:
    """Whether the leases of loads are on a server of ``REDIS_LOCKS``. Those of a Redis cache are on its own server,
    those of a local-memory cache in this process."""
    try:
        backend = import_string(entry["BACKEND"])
    except (ImportError, KeyError, TypeError, AttributeError):
        return False
    if not isinstance(backend, type) or issubclass(backend, (LocMemCache, DummyCache)):
        return False
    return servers.why_not_usable(alias) is not None


def _hint(name: object, known: tuple[str, ...]) -> str:
    close = closest(name, ("TIMEOUT", *known), SYNONYMS)
    return (
        "Did you mean TIMEOUT, beside OPTIONS?" if close == "TIMEOUT" else hint(close, f"Known are {', '.join(known)}.")
    )

"""Validation of ``REDIS_LOCKS``. Does no I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from django.utils.module_loading import import_string

from ..backends.base import Backend
from ..core import durations
from ..core.arguments import SYNONYMS, validate_choice, validate_flag, validate_limit
from ..core.holder import FIELDS
from ..core.suggestions import closest, hint
from ..core.tuning import REDLOCK_TIMEOUT
from . import cache_settings, decorator_options, overrides
from .overrides import PER_NAME
from .schema import DEFAULTS, ON_BACKEND_ERROR, PLANNED, SETTING, VERSION_WARNING, Problem


def problems(alias: str, entry: Any) -> Iterator[Problem]:
    """Yield all errors and warnings about the entry of one alias."""
    where = f"{SETTING}[{alias!r}]"
    if not isinstance(entry, Mapping):
        yield Problem("E001", f"{where} must be a dict, not {type(entry).__name__}.")
        return
    yield from _unknown_keys(entry, where, tuple(DEFAULTS))
    entry = {**DEFAULTS, **entry}
    yield from _times(entry, where)
    yield from _values(entry, where)
    yield from _names(entry, where)
    yield from _store(entry, where)


def handler_problems(alias: str, entry: Any) -> Iterator[Problem]:
    """Yield errors about handlers of one alias that can't be imported. Only the system checks import handlers: at the
    first use of an alias, the module of a handler may be in the middle of its own import."""
    if not isinstance(entry, Mapping):
        return
    entries: list[tuple[str, Any]] = [(f"{SETTING}[{alias!r}]", entry)]
    if isinstance(entry.get("LOCKS"), Mapping):
        entries += [(f"{SETTING}[{alias!r}]['LOCKS'][{name!r}]", override) for name, override in entry["LOCKS"].items()]
    for where, value in entries:
        if isinstance(value, Mapping) and "ON_CONFLICT" in value and not [*_on_conflict(value, where)]:
            try:
                overrides.import_handler(value["ON_CONFLICT"])
            except ValueError as error:
                yield Problem("E022", f"{where}: {error}.")


def _unknown_keys(entry: Mapping[str, Any], where: str, known: tuple[str, ...]) -> Iterator[Problem]:
    for key in entry:
        if key not in known:
            suggestion = hint(closest(key, known, SYNONYMS), f"Known are {', '.join(known)}.")
            yield Problem("E031" if known is PER_NAME else "E001", f"{where}: unknown key {key!r}.", suggestion)


def _times(entry: Mapping[str, Any], where: str) -> Iterator[Problem]:
    lease: dict[str, float] = {}
    for key, id, convert in (("EXPIRE", "E013", durations.lease_ms), ("MAX_HOLD", "E016", durations.hold_seconds)):
        if key in entry:
            try:
                lease[key] = convert(entry[key], key)
            except ValueError as error:
                yield Problem(id, f"{where}: {error}.")
    if lease.get("EXPIRE", 1000) < 1000:
        yield Problem("W014", f"{where}: EXPIRE is below one second.", "A short pause of the process may outlast it.")
    if len(lease) == 2 and 1000 * lease["MAX_HOLD"] < lease["EXPIRE"]:
        yield Problem(
            "E016", f"{where}: MAX_HOLD is shorter than EXPIRE: {entry['MAX_HOLD']} against {entry['EXPIRE']} seconds."
        )
    yield from _waits(entry, where)


def _waits(entry: Mapping[str, Any], where: str) -> Iterator[Problem]:
    for key, id, warning_id in (("WAIT", "E017", "W018"), ("BACKEND_WAIT", "E065", "W065")):
        if key in entry:
            try:
                wait = durations.wait_seconds(entry[key], key)
            except ValueError as error:
                yield Problem(id, f"{where}: {error}.")
            else:
                if wait > 25:
                    yield Problem(
                        warning_id, f"{where}: {key} is longer than 25 seconds.", "Web servers kill a worker after 30."
                    )


def _values(entry: Mapping[str, Any], where: str) -> Iterator[Problem]:
    yield from _check(entry, where, "E025", partial(validate_choice, known=ON_BACKEND_ERROR), "ON_BACKEND_ERROR")
    yield from _check(entry, where, "E027", validate_flag, "INDEX", "LOG_KEYS", "RENEW", "REENTRANT", "AUTO_RELEASE")
    yield from _on_conflict(entry, where)
    metadata = entry.get("METADATA", ())
    if isinstance(metadata, str) or not isinstance(metadata, list | tuple | set | frozenset):
        yield Problem("E029", f"{where}: METADATA is a list of names, not {metadata!r}.")
    else:
        for name in metadata:
            if name in PLANNED["METADATA"]:
                yield Problem("E034", f"{where}: METADATA {name!r} comes in a later version.", "Leave it out for now.")
            elif name not in FIELDS:
                yield Problem("E029", f"{where}: unknown METADATA {name!r}.", f"Known are {', '.join(FIELDS)}.")


def _on_conflict(entry: Mapping[str, Any], where: str) -> Iterator[Problem]:
    check = partial(decorator_options.validate_on_conflict, skip=False)
    return _check(entry, where, "E022", check, "ON_CONFLICT")


def _names(entry: Mapping[str, Any], where: str) -> Iterator[Problem]:
    if not isinstance(entry["LOCKS"], Mapping):
        yield Problem("E031", f"{where}: LOCKS must be a dict of dicts, not {type(entry['LOCKS']).__name__}.")
        return
    for name, override in entry["LOCKS"].items():
        here = f"{where}['LOCKS'][{name!r}]"
        if not isinstance(override, Mapping):
            yield Problem("E031", f"{here} must be a dict, not {type(override).__name__}.")
            continue
        yield from _unknown_keys(override, here, PER_NAME)
        yield from _times(override, here)
        yield from _values(override, here)
        yield from _decorator_keys(override, here)


def _decorator_keys(entry: Mapping[str, Any], where: str) -> Iterator[Problem]:
    for key, id, check in (
        ("KIND", "E066", decorator_options.validate_kind),
        ("LIMIT", "E067", validate_limit),
        ("HOLD", "E021", decorator_options.validate_hold),
        ("STATUS", "E023", decorator_options.validate_status),
        ("RETRY_AFTER", "E024", decorator_options.validate_retry_after),
        ("METHODS", "E037", decorator_options.validate_methods),
        ("ON_KEY_ERROR", "E061", decorator_options.validate_on_key_error),
        ("CONDITION", "E038", overrides.import_callable),
    ):
        yield from _check(entry, where, id, check, key)
    if (entry.get("KIND") == "semaphore") is not ("LIMIT" in entry):
        yield Problem(
            "E067",
            f"{where}: KIND 'semaphore' and LIMIT, the number of its permits, need each other.",
            "Set both, or neither of them.",
        )
    if entry.get("AUTO_RELEASE") is False and (
        "EXPIRE" not in entry or entry.get("RENEW") is True or entry.get("REENTRANT") is True
    ):
        yield Problem(
            "E039",
            f"{where}: a lock with AUTO_RELEASE False stays until its lease ends.",
            "Give it an EXPIRE, and neither RENEW nor REENTRANT.",
        )


def _check(
    entry: Mapping[str, Any], where: str, id: str, check: Callable[[Any, str], object], *keys: str
) -> Iterator[Problem]:
    """Yield a problem for each of these keys if the check refuses its value with a ``ValueError``."""
    for key in keys:
        if key in entry:
            try:
                check(entry[key], key)
            except ValueError as error:
                yield Problem(id, f"{where}: {error}.")


def _store(entry: Mapping[str, Any], where: str) -> Iterator[Problem]:
    if entry["HISTORY"] != 0 or isinstance(entry["HISTORY"], bool):
        yield Problem("E034", f"{where}: HISTORY comes in a later version.", "Leave it at 0 for now.")
    prefix = entry["KEY_PREFIX"]
    if (
        not isinstance(prefix, str)
        or not prefix
        or any(c in "{}%" or c.isspace() or not c.isprintable() for c in prefix)
    ):
        yield Problem("E011", f"{where}: KEY_PREFIX is a text without braces, percent signs and white space.")
    if not isinstance(entry["OPTIONS"], Mapping):
        yield Problem("E032", f"{where}: OPTIONS must be a dict, not {type(entry['OPTIONS']).__name__}.")
        return
    try:
        backend = import_string(entry["BACKEND"])
    except (ImportError, TypeError, AttributeError) as error:
        yield Problem("E002", f"{where}: BACKEND can't be imported: {error}.")
        return
    if not (isinstance(backend, type) and issubclass(backend, Backend)):
        yield Problem("E003", f"{where}: BACKEND {entry['BACKEND']!r} isn't a lock backend.")
        return
    incompatibility, warning = backend.incompatibility(), backend.compatibility_warning()
    if incompatibility is not None:
        yield Problem(backend.incompatible, f"{where}: {incompatibility}.")
        return
    if warning is not None:
        yield Problem(VERSION_WARNING, f"{where}: {warning}.")
    yield from _address(entry, where, backend)
    if backend.longest_is_expire:
        yield from _long_leases(entry, where)


def _long_leases(entry: Mapping[str, Any], where: str) -> Iterator[Problem]:
    """Check the leases of names on a store that has none longer than ``EXPIRE``."""
    for name, override in entry["LOCKS"].items() if isinstance(entry["LOCKS"], Mapping) else ():
        try:
            longer = durations.lease_ms(override["EXPIRE"]) > durations.lease_ms(entry["EXPIRE"])
        except (TypeError, ValueError, LookupError):
            continue  # it has none, or a wrong one
        if longer:
            yield Problem(
                "E055",
                f"{where}['LOCKS'][{name!r}]: EXPIRE is longer than that of the alias: {override['EXPIRE']} against "
                f"{entry['EXPIRE']} seconds.",
                "On ZooKeeper the alias has the longest lease, that of its session: raise it, or leave this one out.",
            )


def _address(entry: Mapping[str, Any], where: str, backend: type[Backend]) -> Iterator[Problem]:
    if isinstance(entry["LOCATION"], list | tuple) and not backend.lists_servers:
        yield Problem(
            "E006",
            f"{where}: LOCATION is one URL.",
            "Sentinels are listed in one URL; independent servers need the BACKEND of a Redlock.",
        )
        return
    if entry["CACHE"] is not None:
        if entry["LOCATION"] is not None:
            yield Problem("E007", f"{where} has LOCATION and CACHE.", "Keep one of them.")
            return
        problem = cache_settings.why_not_usable(entry["CACHE"])
        if problem is not None:
            id, message = problem
            yield Problem(id, f"{where}: CACHE {message}", "Set LOCATION instead.")
            return
    elif backend.lists_servers:
        yield from _servers(entry, where, backend)
        return
    elif entry["LOCATION"] is not None and not isinstance(entry["LOCATION"], str):
        yield Problem("E005", f"{where}: LOCATION is a URL, not {type(entry['LOCATION']).__name__}.")
        return
    location, options = location_of(entry)
    error = backend.validation_error(location, options)
    if error is not None:
        id = "E032" if "argument" in error or "option" in error else "E005"
        yield Problem(id, f"{where}: {error}.")
    elif cache_settings.shares_database(location, options):
        yield _shared_with_cache(where)


def _servers(entry: Mapping[str, Any], where: str, backend: type[Backend]) -> Iterator[Problem]:
    """Check the servers of a Redlock."""
    location, options = location_of(entry)
    error = backend.validation_error(location, options)
    if error is not None:
        id = "E032" if "argument" in error or "option" in error else "E006"
        yield Problem(id, f"{where}: {error}.")
        return
    for url in location:
        if cache_settings.shares_database(url, options):
            yield _shared_with_cache(where)
            break
    timeout, lease = options.get("socket_timeout", REDLOCK_TIMEOUT), entry.get("EXPIRE")
    if isinstance(timeout, int | float) and isinstance(lease, int | float) and timeout > lease / 3:
        yield Problem(
            "W116",
            f"{where}: OPTIONS['socket_timeout'] is above a third of EXPIRE: {timeout:g} against {lease:g} seconds.",
            "A silent server may use up the lease before a majority has granted it. Set a shorter time, such as 0.2.",
        )


def _shared_with_cache(where: str) -> Problem:
    return Problem(
        "W010",
        f"{where} shares its database with a cache.",
        "cache.clear() deletes the locks with the values: give the locks their own database, or their own server.",
    )


def location_of(entry: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return the address and the options of the backend, from the entry itself or from the cache in its ``CACHE``."""
    if entry["CACHE"] is None:
        location = entry["LOCATION"] or ""
        return tuple(location) if isinstance(location, list) else location, dict(entry["OPTIONS"])
    location, options = cache_settings.connection_settings(entry["CACHE"])
    return location, {**options, **entry["OPTIONS"]}

"""The options of loads, and their checks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from datetime import timedelta
from functools import partial
from math import inf
from typing import Any, Final, Literal, TypedDict

from django.core.cache.backends.base import DEFAULT_TIMEOUT, BaseCache

from ..core import durations
from ..core.arguments import validate_choice, validate_flag
from ..core.durations import Duration
from ..core.suggestions import closest, did_you_mean
from .results import MISSING

ON_TIMEOUT: Final = ("load", "default", "raise")
IN_ATOMIC: Final = ("on_commit", "now", "skip")
STALE_ERROR_TTL: Final = 5.0
"""The ``error_ttl`` of a stale value, if none is given: seconds."""

REFRESH: Final = ("inline", "thread", "celery")

SYNONYMS = {
    "timeout": "ttl",
    "lock_timeout": "wait",
    "blocking_timeout": "wait",
    "on_conflict": "on_timeout",
    "expire": "ttl",
    "lease": "max_hold",
    "renew": "max_hold",
    "hard_timeout": "load_timeout",
    "soft_timeout": "wait_stale",
    "grace": "stale",
    "none_timeout": "none_ttl",
    "background": "refresh",
    "retry_after_error": "error_ttl",
    "tags": "groups",
    "condition": "store_if",
    "should_cache_fn": "store_if",
}
"""Names of the options in other libraries."""


@dataclass(frozen=True, slots=True)
class XFetch:
    """Early refresh at random: it is the more probable, the closer the value is to its end and the longer its load
    takes.

    Source: "Optimal Probabilistic Cache Stampede Prevention" (Vattani, Chierichetti, Lowenstein, VLDB 2015).

    Args:
        beta: above 1 refreshes earlier, below 1 later.

    Raises:
        ValueError: beta isn't a positive number.

    Example::

        get_or_load("report", load, ttl=300, early=XFetch())
    """

    beta: float = 1.0

    def __post_init__(self) -> None:
        beta: object = self.beta
        if isinstance(beta, bool) or not isinstance(beta, int | float) or not 0 < beta < inf:
            raise ValueError(f"beta is a positive number, not {self.beta!r}")


class LoadOptions(TypedDict, total=False):
    """The options of ``get_or_load``, ``refresh``, ``get_or_load_many``, their asynchronous versions and ``@cached``.
    Times are seconds or a ``timedelta``.

    Attributes:
        cache: alias of ``CACHES``, or the cache.
        version: version of the key, as for the cache's own ``get``.
        using: alias of the locks on the server that coordinates loads. Without effect for a Redis cache.
        ttl: how long a value is fresh; None: for ever; 0 or less: it isn't stored, and each caller that finds none
            loads for itself. By default the cache's own. Or a function that takes a loaded value, but not None, and
            returns that.
        stale: for how long after that it is served while one caller loads it again, or when the loader fails.
        early: load it again before it is stale: when this fraction of its ttl is over, or as ``XFetch`` decides.
        refresh: where a stale or early value is loaded: ``"inline"`` by the caller that finds it, ``"thread"`` in a
            thread or task of its process, ``"celery"`` in a worker, with ``@cached`` only; or a callable that takes the
            ``Job``.
        wait: how long a caller without a value waits for another caller's load; None, or -1: until that ends.
        wait_stale: how long a caller with a stale value waits for the fresh one; then the stale value is served, and
            the load continues in a thread or task. 0: the caller that loads ``"inline"`` waits for its load, the others
            don't wait.
        load_timeout: the longest that a caller waits for a load, its own or another caller's. Then it gets the stale
            value, or ``default``, or raises ``LoadTimeout``, and the load continues in a thread or task. None, or -1:
            without limit. Inside a transaction or another load, a thread waits for its own load until that ends.
        on_timeout: after ``wait``, without ``load_timeout``: ``"load"``: one caller in the time of a lease loads the value, too, and doesn't
            store it; ``"default"``: return the option ``default``; ``"raise"``: raise ``LoadTimeout``.
        default: the value to return if there is none, because the loader failed or takes too long. It isn't stored.
        max_hold: how long a loader may run before other callers stop waiting for it and load themselves; None: without
            limit.
        start_within: how long a job of ``refresh`` may wait for its worker before another one is handed over.
        groups: names of the groups of the value, such as ``("user:42",)``: it is loaded again after an invalidation of one
            of them. Or a function that takes the key and returns them. Templates below ``@cached``.
        none_ttl: how long None is kept; 0: it isn't stored.
        store_if: a function that takes a loaded value; if its result is false, the value is returned and not stored.
        jitter: the largest share of ``ttl`` by which a value becomes stale earlier, at random, so that values that were
            stored together don't become stale together.
        stale_if_error: serve a stale value if the loader fails.
        error_ttl: how long a key isn't loaded again after its loader failed. Callers get the stale value; without one,
            callers with this option raise ``LoadFailed``. 0: each caller loads. None, the default: 5 s while a stale
            value is served, and 0 without one.
        store_in_atomic: when a value that was loaded inside a transaction is stored and shared: ``"on_commit"``, under
            READ COMMITTED only; ``"now"``; or ``"skip"``: never.
    """

    cache: str | BaseCache
    version: int | None
    using: str | None
    ttl: Duration | Callable[[Any], Duration | None] | None
    stale: Duration
    early: float | XFetch | None
    refresh: Literal["inline", "thread", "celery"] | Callable[..., Any]
    wait: Duration | None
    wait_stale: Duration
    load_timeout: Duration | None
    on_timeout: Literal["load", "default", "raise"]
    default: Any
    max_hold: Duration | None
    start_within: Duration
    groups: Iterable[str] | Callable[[str], Iterable[str]]
    none_ttl: Duration
    store_if: Callable[[Any], object] | None
    jitter: float
    stale_if_error: bool
    error_ttl: Duration | None
    store_in_atomic: Literal["on_commit", "now", "skip"]


@dataclass(frozen=True, slots=True)
class CheckedOptions:
    """``LoadOptions`` after their checks, without those that name the cache. Times in seconds."""

    ttl: Any = DEFAULT_TIMEOUT
    stale: float = 0.0
    early: float | XFetch | None = None
    refresh: str | Callable[..., Any] = "inline"
    wait: float = inf
    wait_stale: float = 0.0
    load_timeout: float = inf
    on_timeout: str = "load"
    default: Any = MISSING
    max_hold: float = inf
    start_within: float = 30.0
    groups: Any = ()
    none_ttl: float = 60.0
    store_if: Callable[[Any], object] | None = None
    jitter: float = 0.1
    stale_if_error: bool = True
    error_ttl: float | None = None
    store_in_atomic: str = "on_commit"

    def pause_after_error(self, *, stale_served: bool) -> float:
        """The seconds for which a key isn't loaded again after its loader failed."""
        if self.error_ttl is None:
            return STALE_ERROR_TTL if stale_served else 0.0
        return self.error_ttl


NAMES: Final = tuple(field.name for field in fields(CheckedOptions))


def options(given: Mapping[str, Any]) -> CheckedOptions:
    """Return the checked options of a call."""
    checked: dict[str, Any] = {}
    for name, value in given.items():
        if name not in NAMES:
            hint = did_you_mean(closest(name, NAMES, SYNONYMS), f"; there are {', '.join(NAMES)}")
            raise TypeError(f"a load has no option {name!r}{hint}")
        check = _CHECKS.get(name)
        checked[name] = value if check is None else check(value, name)
    made = CheckedOptions(**checked)
    if made.early is not None and made.ttl is None:
        raise ValueError("early needs a ttl: a value that is kept for ever is never refreshed")
    if isinstance(made.early, float | int) and callable(made.ttl):
        raise ValueError("a ttl that is a function has no share: use early=XFetch(), or a ttl in seconds")
    return made


def seconds_or_ever(value: Any, name: str) -> Any:
    """Return a length of time in seconds, None for ever, or Django's default.

    Raises:
        ValueError: it is neither.
    """
    if value is None or value is DEFAULT_TIMEOUT:
        return value
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not -inf < seconds < inf:
        raise ValueError(f"{name} is a number of seconds, a timedelta, or None for ever, not {value!r}")
    return seconds


def _ttl(value: Any, name: str) -> Any:
    return value if callable(value) else seconds_or_ever(value, name)


def _function_or_none(value: Any, name: str) -> Any:
    if value is None or callable(value):
        return value
    raise ValueError(f"{name} is a function that takes the loaded value, not {value!r}")


def group_names(value: Any, name: str) -> tuple[str, ...]:
    """Return the names of groups, sorted.

    Raises:
        ValueError: they aren't non-empty texts.
    """
    names = None if isinstance(value, str) or not isinstance(value, Iterable) else tuple(value)
    if names is None or not all(isinstance(each, str) and each for each in names):
        raise ValueError(f'{name} are names, such as ("user:42",), not {value!r}')
    return tuple(sorted(set(names)))


def _groups(value: Any, name: str) -> Any:
    return value if callable(value) else group_names(value, name)


_seconds = partial(durations.wait_seconds, for_ever=False)


def _seconds_or_none(value: Duration | None, name: str) -> float | None:
    return None if value is None else _seconds(value, name)


def _or_ever(value: Duration | None, name: str) -> float:
    return inf if value is None else durations.wait_seconds(value, name)


def _positive(value: Duration, name: str) -> float:
    return durations.lease_ms(value, name) / 1000


def _early(value: Any, name: str) -> Any:
    if value is None or isinstance(value, XFetch):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1:
        raise ValueError(f"{name} is None, a fraction of ttl between 0 and 1, or XFetch(), not {value!r}")
    return value


def _share(value: Any, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
        raise ValueError(f"{name} is a fraction from 0 to below 1, not {value!r}")
    return float(value)


def _refresh(value: Any, name: str) -> Any:
    if value in REFRESH or callable(value):
        return value
    raise ValueError(f"{name} is one of {', '.join(map(repr, REFRESH))}, or a callable, not {value!r}")


_CHECKS: dict[str, Callable[[Any, str], Any]] = {
    "ttl": _ttl,
    "stale": _seconds,
    "early": _early,
    "refresh": _refresh,
    "wait": _or_ever,
    "wait_stale": _seconds,
    "load_timeout": _or_ever,
    "on_timeout": partial(validate_choice, known=ON_TIMEOUT),
    "max_hold": _or_ever,
    "start_within": _positive,
    "groups": _groups,
    "none_ttl": _seconds,
    "store_if": _function_or_none,
    "jitter": _share,
    "stale_if_error": validate_flag,
    "error_ttl": _seconds_or_none,
    "store_in_atomic": partial(validate_choice, known=IN_ATOMIC),
}

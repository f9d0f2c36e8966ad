"""The options that the entry of a ``StampedeCache`` has for loads that leave them open, whoever asks for the value."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from django.core.cache import caches
from django.core.signals import setting_changed

from ..conf.cache_settings import wraps
from .backend.config import read
from .loading.coordinator import alias_of
from .options import options as checked

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .options import LoadOptions


def options_for(cache: Any, given: Mapping[str, Any]) -> LoadOptions:
    """The options of a load of this cache, of which a call site gave some.

    Raises:
        InvalidCacheBackendError: the entry of the cache is wrong.
        TypeError: there is no such option.
        ValueError: one is out of its range.
    """
    preset = _preset(alias_of(cache))
    return checked(completed(preset, given) if preset else given)


def completed(preset: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """What was given, and for the rest the preset."""
    both = {**preset, **given}
    if both["ttl"] is None and "early" not in given:
        both.pop("early", None)  # this value has no end to be ahead of
    return both


@lru_cache
def _preset(alias: str) -> Mapping[str, Any]:
    """Of a cache that wraps no other, nothing."""
    entry = caches.settings.get(alias, {})
    if not wraps(entry):
        return {}
    params = {name: value for name, value in entry.items() if name not in ("BACKEND", "LOCATION")}
    return read(entry.get("LOCATION"), params, caches.settings)[1]


def _reread(*, setting: str, **_: object) -> None:
    if setting == "CACHES":
        _preset.cache_clear()


setting_changed.connect(_reread, dispatch_uid="django_redis_locks.cache.presets")

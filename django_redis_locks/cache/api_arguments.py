"""Checks the arguments that ``get_or_load`` and the other public functions share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .loading.coordinator import alias_of, coordinator_of
from .stampede_settings import options_for

if TYPE_CHECKING:
    from .loading.coordinator import CacheCoordinator
    from .options import CheckedOptions


def coordinator_and_options(
    cache: Any, using: str | None, given: dict[str, Any]
) -> tuple[CacheCoordinator, CheckedOptions]:
    """Return the coordinator of a cache and the checked options.

    Raises:
        TypeError: an unknown option, or ``refresh="celery"``.
        ValueError: an option is out of its range.
    """
    alias = cache if type(cache) is str else alias_of(cache)
    coordinator, options = coordinator_of(alias, using), options_for(alias, given)
    if options.refresh == "celery":
        raise TypeError(
            'refresh="celery" is for functions with @cached, which a worker can import by name. Decorate the loader, or '
            'use refresh="thread"'
        )
    return coordinator, options

"""The backend for one Redis or Valkey server."""

from __future__ import annotations

from typing import NoReturn

__all__ = ["RedisBackend"]

_failure: Exception | None = None
try:
    from .backend import RedisBackend
except (ImportError, AttributeError) as error:  # raised when the backend is used
    _failure = error


def __getattr__(name: str) -> NoReturn:
    """Raise an ImportError that names the installed redis-py version if the import of the backend failed: another
    version may lack a name that is imported from it."""
    if name != "RedisBackend" or _failure is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .versions import incompatibility, unusable  # noqa: PLC0415

    raise ImportError(incompatibility() or unusable(_failure)) from _failure

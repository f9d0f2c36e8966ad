"""Redis and Valkey: one server."""

from __future__ import annotations

from typing import NoReturn

__all__ = ["RedisBackend"]

_failure: Exception | None = None
try:
    from .backend import RedisBackend
except (ImportError, AttributeError) as error:  # told to those who use it
    _failure = error


def __getattr__(name: str) -> NoReturn:
    """Another redis-py than ours may lack what we import of it: then it is the version that is told."""
    if name != "RedisBackend" or _failure is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .versions import incompatibility, unusable  # noqa: PLC0415

    raise ImportError(incompatibility() or unusable(_failure)) from _failure

"""What a load may raise besides what its loader raised. ``LoadError`` ← ``LoadFailed``, ``LoadTimeout``."""

from __future__ import annotations


class LoadError(Exception):
    """There is no value. ``key`` is the cache's."""

    def __init__(self, message: str, key: str = "") -> None:
        super().__init__(message)
        self.key = key

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (*self.args, self.key)


class LoadFailed(LoadError):
    """The loader of another process failed a moment ago, so it wasn't asked again. The message says how."""


class LoadTimeout(LoadError):
    """Another caller still loads the value, and this one doesn't wait any longer."""

"""The Python protocols of a lock object: repr, dir, copy and pickle."""

from __future__ import annotations

from typing import Any, NoReturn, Self

from .acquisition import LockAcquisition

_INTERNAL = frozenset(name for name in dir(LockAcquisition) if not name.startswith("__")) - {"key", "name", "alias"}
"""The attributes of a lock that only this package uses. ``dir`` hides them."""


class LockObject(LockAcquisition):
    """A lock with its repr, dir and copy. It can't be pickled."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} of {self.alias!r}>"

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if name not in _INTERNAL]

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError("a lock can't be pickled: pass its key, and call locks.lock(key) in the other process")

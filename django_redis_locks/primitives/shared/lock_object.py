"""What a lock is to Python: how it is shown, copied and pickled."""

from __future__ import annotations

from typing import Any, NoReturn, Self

from .acquisition import LockAcquisition

_INTERNAL = frozenset(name for name in dir(LockAcquisition) if not name.startswith("__")) - {"key", "name", "alias"}
"""What the engine has of a lock."""


class LockObject(LockAcquisition):
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
        raise TypeError("a lock isn't pickled: pass its key, and make it there by locks.lock(key)")

"""The Python protocols of a lock object: its attributes, repr, dir, copy and pickle."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, Self

from ...core.grant import GrantedLock

if TYPE_CHECKING:
    from ...core.effects import Performer
    from ...core.keys import LockId, LockKeys
    from .lock_spec import LockSpec
    from .requests import LockOptions


@dataclass(slots=True, weakref_slot=True, unsafe_hash=True, repr=False)
class LockObject:
    """A lock with its repr, dir and copy. It can't be pickled."""

    spec: LockSpec
    reentrant: bool = False

    @property
    def key(self) -> str:
        """The key of the lock."""
        return self.spec.key

    @property
    def name(self) -> str:
        """The name of the lock: its label in settings, messages and metrics."""
        return self.spec.name

    @property
    def alias(self) -> str:
        """The alias in ``REDIS_LOCKS``."""
        return self.spec.alias

    @property
    def exclusive(self) -> bool:
        """Whether an owner may have one hold of it at a time."""
        return self.spec.steps.exclusive

    @property
    def role(self) -> str:
        """The side of the lock, for kinds with two sides."""
        return self.spec.steps.role

    @property
    def performer(self) -> Performer:
        """The engine."""
        return self.spec.performer

    @property
    def lock_id(self) -> LockId:
        """The identity of the lock: locks with equal ids exclude each other."""
        return self.spec.lock_id

    @property
    def keys(self) -> LockKeys:
        """The keys in the store."""
        return self.spec.keys

    @property
    def options(self) -> LockOptions:
        """The options."""
        return self.spec.options

    def check_block(self) -> None:
        """
        Raises:
            TypeError: a block would release a lock that has ``auto_release=False``.
        """
        if not self.spec.options.auto_release:
            raise TypeError(
                f"lock {self.name!r}: a block releases at its end, and auto_release=False keeps the lock until its lease "
                "ends: write acquire(), or leave auto_release out"
            )

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} of {self.alias!r}>"

    def __dir__(self) -> list[str]:
        return [name for name in object.__dir__(self) if name not in _INTERNAL]

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError("a lock can't be pickled: pass its key, and call locks.lock(key) in the other process")


_INTERNAL = frozenset(name for kind in (LockObject, GrantedLock) for name in dir(kind) if not name.startswith("__")) - {
    "key",
    "name",
    "alias",
} | {"may_reenter", "waits_for", "why_not_reentered"}
"""The attributes of a lock that only this package uses. ``dir`` hides them."""

"""What a lock and a record have in common: their keys, names and options."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...core.effects import Performer
    from ...core.errors import LockBackendError
    from ...core.keys import LockId, LockKeys
    from .requests import LockOptions


@dataclass(slots=True, unsafe_hash=True)
class StoredObject:
    """A lock or a record without a caller. Immutable by convention (a frozen dataclass takes three times as long to make):
    the state is in the store, in the queue and in the grants.

    Attributes:
        performer: performs the effects of its programs.
        lock_id: identifies it in this process.
        keys: its keys in the store.
        key: the user's key.
        name: the label in settings, messages and metrics.
        alias: the alias of ``REDIS_LOCKS``.
        options: its options.
    """

    performer: Performer
    lock_id: LockId
    keys: LockKeys
    key: str
    name: str
    alias: str
    options: LockOptions

    @property
    def error_context(self) -> dict[str, str | None]:
        """What every error says of the object."""
        return {"key": self.key, "name": self.name, "alias": self.alias}

    def with_context(self, failure: LockBackendError) -> LockBackendError:
        """Have an error say of which object it is."""
        failure.key, failure.name, failure.alias = self.key, self.name, self.alias
        return failure

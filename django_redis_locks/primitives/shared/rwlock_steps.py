"""The steps of a read-write lock: those of permits. A reader takes one of them, a writer all."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from ...core.holder import ALL_PERMITS
from ...core.write_hold import READ, WRITE, WriteHold
from .permit_steps import PermitSteps

if TYPE_CHECKING:
    from ...core.effects import Performer
    from ...core.hold import Hold
    from ...core.keys import LockKeys
    from .requests import LockOptions

RWLOCK: Final = "rwlock"
"""The kind of a read-write lock."""


class ReadSteps(PermitSteps):
    """The steps of a reader, as in ``LockSteps``."""

    exclusive: ClassVar = True
    role: ClassVar = READ

    __slots__ = ()

    taken = 1

    def __init__(self, performer: Performer, keys: LockKeys, name: str, options: LockOptions) -> None:
        super().__init__(performer, keys, name, options, RWLOCK, ALL_PERMITS, self.taken)


class WriteSteps(ReadSteps):
    """The steps of a writer, as in ``LockSteps``."""

    role: ClassVar = WRITE
    hold_type: ClassVar[type[Hold]] = WriteHold

    __slots__ = ()

    taken = ALL_PERMITS

"""``WriteHold``: the hold of a write lock, which becomes that of a reader when its last write grant is released first."""

from __future__ import annotations

from typing import Any

from .hold import Hold

READ = "read"
WRITE = "write"


class WriteHold(Hold):
    """A hold that is a writer's while one of its write grants isn't released. Its other grants are those of reads inside
    of the write. A former writer never writes again.

    Attributes:
        write_grants: the ids of its write grants, also of released ones.
        downgraded: the store has confirmed that it is a reader's.
    """

    __slots__ = ("downgraded", "write_grants")

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.write_grants = set(self.open_grants)
        self.downgraded = False

    @property
    def writes(self) -> bool:
        """Whether a write grant is open."""
        return not self.write_grants.isdisjoint(self.open_grants)

    @property
    def waits_for_downgrade(self) -> bool:
        """Whether its last write grant is released, and the store may not know."""
        return self.held and not (self.downgraded or self.writes or self.loss_reason is not None)

    def add_grant(self, grant: int, like: int = 0, role: str = READ) -> bool:
        """Add a grant. One that is like a write grant is a write grant, too.

        Args:
            grant: the id of the grant.
            like: the id of another grant, as for ``Hold.add_grant``; 0 for none.
            role: the side of the lock, if ``like`` isn't given.

        Returns:
            False if the hold has ended, or doesn't write any more and ``role`` is ``WRITE``.
        """
        with self.mutex.rlock:
            if role == WRITE and not self.writes:
                return False
            if role == WRITE or like in self.write_grants:
                self.write_grants.add(grant)
            return super().add_grant(grant, like)

    def end_write(self, grant: int) -> bool:
        """Release the last write grant if other grants remain. Return True if the caller must downgrade the hold now.

        A signal handler may raise afterwards: ``waits_for_downgrade`` is then still true.
        """
        with self.mutex.rlock:
            others = self.open_grants - {grant}
            if not others or grant not in self.open_grants & self.write_grants or not self.held:
                return False
            if not self.write_grants.isdisjoint(others):
                return False
            self.remove_grant(grant)
            return True

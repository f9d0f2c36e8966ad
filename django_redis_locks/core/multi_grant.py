"""``MultiGrant``: the grant of several locks, which are held and released together. Each of them has a grant and a hold of its
own, so that it is renewed, listed, lost and released as any other lock."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from math import inf
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from .grant import Grant
from .hold import Hold, mint_id

if TYPE_CHECKING:
    from collections.abc import Sequence


class Siblings:
    """The grants that were acquired together, weakly: a hold is renewed while a caller can release it.

    Attributes:
        lock: the multi lock.
        block: the id of the ``with`` block; 0 if there is none.
    """

    __slots__ = ("_grants", "_loss_reported", "_whole", "block", "lock")

    def __init__(self, grants: Sequence[MemberGrant], lock: Any, block: int) -> None:
        self.lock = lock
        self.block = block
        self._grants = [weakref.ref(grant) for grant in grants]
        self._loss_reported = False
        self._whole: weakref.ref[MultiGrant] | None = None

    def whole(self) -> MultiGrant | None:
        """Return the grant of all locks; None if a part of it was forgotten."""
        found = None if self._whole is None else self._whole()
        if found is None:
            grants = [grant for ref in self._grants if (grant := ref()) is not None]
            if len(grants) < len(self._grants):
                return None
            found = MultiGrant(grants, self.lock, self.block)
            self._whole = weakref.ref(found)
        return found

    def first_loss(self) -> bool:
        """Return whether no loss of these locks was reported before."""
        with Hold.mutex.rlock:
            first, self._loss_reported = not self._loss_reported, True
        return first


class MemberGrant(Grant):
    """The grant of one lock of a multi lock."""

    __slots__ = ("siblings",)

    siblings: Siblings | None

    def __init__(self, hold: Hold, keeper: Any, id: int, block: int = 0) -> None:
        super().__init__(hold, keeper, id, block)
        self.siblings = None

    @property
    def whole(self) -> Grant:
        """The grant of all locks."""
        whole = None if self.siblings is None else self.siblings.whole()
        return self if whole is None else whole


class MultiGrant(Grant):
    """The proof that the caller holds several locks, and the handle to release them. ``locks.multi_lock()`` makes the lock.

    It has all of ``Grant``, but for ``detach``. It is lost if one of its locks is. Its ``key`` and ``name`` are those of all
    locks, with commas between them. Instead of one ``fence`` it has ``fences``.

    Attributes:
        grants: the grant of each lock, by its key. What protects rows with a fence gets one of these:
            ``account.save(grant=grant.grants["account:1"])``.

    Example::

        with locks.multi_lock("account:1", "account:2") as grant:
            book(1, fence=grant.fences["account:1"])
            book(2, fence=grant.fences["account:2"])
    """

    __slots__ = ("grants",)

    grants: Mapping[str, Grant]

    def __init__(self, grants: Sequence[Grant], keeper: Any, block: int = 0) -> None:
        self.id = mint_id()
        self.lock = keeper
        self._block = block
        self.grants = MappingProxyType({grant.key: grant for grant in grants})

    def __repr__(self) -> str:
        state = "released" if self.released else "lost" if self.lost else "held" if self.protected else "unprotected"
        return f"<MultiGrant of {len(self.grants)} locks: {self.name}, {state}>"

    @property
    def fences(self) -> Mapping[str, int | None]:
        """The fencing token of each lock, by its key. They are None if the grant isn't ``protected``."""
        return MappingProxyType({key: grant.fence for key, grant in self.grants.items()})

    @property
    def fence(self) -> int | None:
        """It has none.

        Raises:
            AttributeError: always.
        """
        raise AttributeError("a grant of several locks has a fence for each of them: grant.fences[key]")

    @property
    def key(self) -> str:
        """The keys of the locks."""
        return ", ".join(self.grants)

    @property
    def name(self) -> str:
        """The names of the locks."""
        return ", ".join(dict.fromkeys(grant.name for grant in self.grants.values()))

    @property
    def alias(self) -> str:
        """The aliases of the locks."""
        return ", ".join(dict.fromkeys(grant.alias for grant in self.grants.values()))

    @property
    def held(self) -> bool:
        """Whether all locks are held by this grant now, as far as this process knows: neither released nor lost."""
        return all(grant.held for grant in self.grants.values())

    @property
    def protected(self) -> bool:
        """False if a store was down and ``ON_BACKEND_ERROR`` is "open": the section runs without locks."""
        return all(grant.protected for grant in self.grants.values())

    @property
    def released(self) -> bool:
        """Whether all locks were released, or are being released."""
        return all(grant.released for grant in self.grants.values())

    @property
    def lost(self) -> bool:
        """Whether a lock was lost before its release, as far as this process knows, without a request. In a forked child
        always True."""
        return any(grant.lost for grant in self.grants.values())

    def remaining(self) -> float:
        """Return the seconds until the first lease ends, by this process's clock; 0.0 if a lock is lost or released."""
        return min((grant.remaining() for grant in self.grants.values()), default=inf)

    def _check(self) -> None:
        for grant in self.grants.values():
            grant._check()

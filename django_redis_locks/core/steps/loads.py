"""The steps of a load. The key of the value is left out if values are in another store."""

from __future__ import annotations

from typing import Any, NamedTuple


class GetValue(NamedTuple):
    """``load/get``: read a value.

    Keys: value.
    """


class ReadValues(NamedTuple):
    """``load/read``: read values, and the milliseconds until each expires.

    Keys: the values.
    """


class ClaimLoad(NamedTuple):
    """``load/claim``: give the load to this caller, or report its lease and what the cache holds.

    Keys: lease, wait queue, generation, replica lag, permit, value.

    Attributes:
        token: the token of the claim.
        lease: milliseconds until the claim ends.
        fresh_above: milliseconds that a fresh value has left at least; -1: no value is fresh.
        override: 0: nothing; 1: any claim; 2: the note of a failure.
        extra_interval: milliseconds after which one more caller may load; "" for never.
        address: the address to register if another caller has the claim; "" for none.
        enqueued_at: when the address was registered, on the store's clock; 0 for now.
        others_behind: 1 if other callers wait in this queue, so that it stays registered.
        waiter_ttl: milliseconds to keep the registration.
    """

    token: str
    lease: int
    fresh_above: int
    override: int
    extra_interval: int | str
    address: str = ""
    enqueued_at: int = 0
    others_behind: int = 0
    waiter_ttl: int = 0


class RenewLoad(NamedTuple):
    """``load/renew``: extend the lease or the permit that has this token.

    Keys: lease or permit, generation, replica lag.

    Attributes:
        token: the token of the claim or the permit.
        lease: milliseconds until it ends.
    """

    token: str
    lease: int


class StoreValue(NamedTuple):
    """``load/store``: store the value of a load that has its lease or permit, and end the load.

    Keys: lease, wait queue, generation, replica lag, permit, value.

    Attributes:
        token: the token of the claim or the permit.
        ttl: milliseconds to keep the value; -1: for ever, 0: not at all.
        value: the value. For leases in this process also a callable that stores the value, called with the milliseconds
            left of the replica lag.
        by_permit: 1 if the token is that of the permit.
    """

    token: str
    ttl: int
    value: Any
    by_permit: int


class DeferStore(NamedTuple):
    """``load/defer``: replace the lease by a permit to store the value after COMMIT.

    Keys: lease, wait queue, generation, permit.

    Attributes:
        token: the token of the claim.
        permit_ttl: milliseconds until the permit ends.
    """

    token: str
    permit_ttl: int


class GiveUpLoad(NamedTuple):
    """``load/give_up``: end a load without a value.

    Keys: lease, wait queue, generation.

    Attributes:
        token: the token of the claim.
        reason_ttl: milliseconds to keep the reason; 0: the next claim succeeds at once.
        reason: why there is no value.
    """

    token: str
    reason_ttl: int
    reason: str


class InvalidateValue(NamedTuple):
    """``load/invalidate``: void the running load, and delete the value or let it become stale.

    Keys: lease, wait queue, permit, replica lag, value.

    Attributes:
        stale_ttl: milliseconds for which the old value may still be served; 0 deletes it.
        replica_lag: milliseconds for which a replica may return the old data; 0 for none.
    """

    stale_ttl: int
    replica_lag: int


class PutValue(NamedTuple):
    """``load/put``: void the running load, and store a value.

    Keys: lease, wait queue, permit, value.

    Attributes:
        ttl: milliseconds to keep the value; -1: for ever, 0: delete it.
        value: the value.
    """

    ttl: int
    value: Any


class BlockLoads(NamedTuple):
    """``load/block``: void the running loads of some keys, and keep new ones out during a write.

    Keys: generation, and for each value lease and permit.

    Attributes:
        token: the token of the writer.
        lease: milliseconds until the block ends.
    """

    token: str
    lease: int


class UnblockLoads(NamedTuple):
    """``load/unblock``: let the keys be loaded again after a write.

    Keys: generation, and for each value lease, wait queue and permit.

    Attributes:
        token: the token of the writer.
    """

    token: str


class ClearLoads(NamedTuple):
    """``load/clear``: void all running loads by starting a new generation.

    Keys: generation.
    """

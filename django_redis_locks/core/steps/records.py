"""The steps of a record. An alias without an index leaves the two indexes out of the keys."""

from __future__ import annotations

from typing import NamedTuple


class RecordWaiter(NamedTuple):
    """What a read says for a caller that waits for a change.

    Attributes:
        known: the version that the caller knows; 0 if there was no record.
        address: the address to register if the record has this version; "" for none.
        enqueued_at: when the address was registered, on the store's clock; 0 for now.
        others_behind: 1 if other waiters of this queue may expect another version, so that it stays registered.
        waiter_ttl: milliseconds to keep the registration.
    """

    known: int
    address: str
    enqueued_at: int
    others_behind: int
    waiter_ttl: int


class GetRecord(NamedTuple):
    """``record/get``: read the record, and register the waiter for a change.

    Keys: record, wait queue.

    Attributes:
        waiter: for a caller that waits.
    """

    waiter: RecordWaiter | None = None


class PeekRecord(NamedTuple):
    """``record/peek``: read the value of the record's key as it is stored.

    Keys: record.
    """


class PutRecord(NamedTuple):
    """``record/put``: write the record if it has the expected version, and wake its waiters.

    Keys: record, wait queue, fence counter, indexes of what is held and queued.

    Attributes:
        nonce: the nonce of this write; its suffix names the index that lists the record.
        known: the expected version; 0 if there must be no record.
        lease: milliseconds until the lease ends.
        fields: the fields as JSON.
    """

    nonce: str
    known: int
    lease: int
    fields: str


class TouchRecord(NamedTuple):
    """``record/touch``: extend the lease of the record if it has the expected version.

    Keys: record, indexes of what is held and queued.

    Attributes:
        version: the expected version.
        lease: milliseconds until the lease ends.
        shorten: 1 if the lease may become shorter.
    """

    version: int
    lease: int
    shorten: int


class DropRecord(NamedTuple):
    """``record/drop``: delete the record if it has the expected version or nonce, and wake its waiters.

    Keys: record, wait queue, indexes of what is held and queued.

    Attributes:
        version: the expected version; 0 to compare the nonce only.
        nonce: the nonce of the write to undo; "" for none.
    """

    version: int
    nonce: str

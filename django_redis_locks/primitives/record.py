"""The record primitive: a small JSON value with a lease, changed by compare-and-set. State machines across processes
build on it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from ..core import owners
from ..core.durations import Duration, lease_ms, wait_seconds
from ..core.runner import arun, run
from .shared.record_values import ChangeRequest, Record, ShowInAdmin, Written
from .shared.record_writes import RecordWrites

__all__ = ["KIND", "Record", "RecordRef", "Written"]

KIND: Final = "record"


@dataclass(slots=True, unsafe_hash=True)
class RecordRef(RecordWrites):
    """A reference to the record under one key. Immutable. Each method except ``wait_for_change`` is one round trip, and
    each has an asynchronous twin with the prefix ``a``.

    Example::

        ref = locks.record("deploy:production")
        written = ref.put(None, {"state": "building"}, expire=600)
        if written:  # there was no record
            build()
            ref.put(written.record, {"state": "done"}, expire=600)
    """

    def get(self) -> Record | None:
        """Read the record.

        Returns:
            The record, or None if there is none.

        Raises:
            LockBackendError: the store can't be reached for ``BACKEND_WAIT`` seconds, or refuses requests for as long
                as the option ``wait``.
            LockKeyError: the key holds a value that is no record.
        """
        return run(self._getting(), self.performer)

    async def aget(self) -> Record | None:
        """Read the record.

        Returns:
            The record, or None if there is none.

        Raises:
            LockBackendError: the store can't be reached for ``BACKEND_WAIT`` seconds, or refuses requests for as long
                as the option ``wait``.
            LockKeyError: the key holds a value that is no record.
        """
        return await arun(self._getting(), self.performer)

    def put(
        self,
        expected: Record | None,
        fields: Mapping[str, Any],
        expire: Duration | None = None,
        renew: bool = False,
        *,
        max_hold: Duration | None = None,
        on_lost: Callable[[Record], object] | None = None,
        show_in_admin: ShowInAdmin = False,
    ) -> Written:
        """Write the record if its version is still the expected one.

        Args:
            expected: the record that the caller read or wrote last; None if there must be none.
            fields: a mapping of names to values that JSON can express.
            expire: seconds until the lease of the record ends; by default the alias's ``EXPIRE``.
            renew: renew the lease while this thread or task lives and the returned record is referenced.
            max_hold: the largest number of seconds for which the lease is renewed; -1 for ever; by default the alias's
                ``MAX_HOLD``. Only with ``renew``.
            on_lost: called with the record when the renewed lease is lost, in a thread for such calls, or in the event
                loop of the task that wrote the record. Only with ``renew``.
            show_in_admin: list the record among the held locks, where an operator can release it; ``"queued"``: among
                the queued jobs. It stays listed until another write or a drop.

        Returns:
            ``Written``: true with the written record, or false with the current one.

        Raises:
            TypeError: JSON can't express the fields, or ``expected`` is neither a record nor None.
            ValueError: an argument is out of its range, or needs ``renew``.
            LockBackendError: the store can't be reached for ``BACKEND_WAIT`` seconds, or refuses requests for as long
                as the option ``wait``.
            LockKeyError: the key holds a value that is no record.
        """
        write = self._prepare_write(expected, fields, expire, renew, max_hold, on_lost, show_in_admin)
        self.performer.may_block()  # checked before the program stops the renewal of the expected record
        return self._write(write)

    async def aput(
        self,
        expected: Record | None,
        fields: Mapping[str, Any],
        expire: Duration | None = None,
        renew: bool = False,
        *,
        max_hold: Duration | None = None,
        on_lost: Callable[[Record], object] | None = None,
        show_in_admin: ShowInAdmin = False,
    ) -> Written:
        """Write the record if its version is still the expected one.

        Args:
            expected: the record that the caller read or wrote last; None if there must be none.
            fields: a mapping of names to values that JSON can express.
            expire: seconds until the lease of the record ends; by default the alias's ``EXPIRE``.
            renew: renew the lease while this thread or task lives and the returned record is referenced.
            max_hold: the largest number of seconds for which the lease is renewed; -1 for ever; by default the alias's
                ``MAX_HOLD``. Only with ``renew``.
            on_lost: called with the record when the renewed lease is lost, in a thread for such calls, or in the event
                loop of the task that wrote the record. Only with ``renew``.
            show_in_admin: list the record among the held locks, where an operator can release it; ``"queued"``: among
                the queued jobs. It stays listed until another write or a drop.

        Returns:
            ``Written``: true with the written record, or false with the current one.

        Raises:
            TypeError: JSON can't express the fields, or ``expected`` is neither a record nor None.
            ValueError: an argument is out of its range, or needs ``renew``.
            LockBackendError: the store can't be reached for ``BACKEND_WAIT`` seconds, or refuses requests for as long
                as the option ``wait``.
            LockKeyError: the key holds a value that is no record.
        """
        write = self._prepare_write(
            expected, fields, expire, renew, max_hold, on_lost, show_in_admin, owners.running_loop()
        )
        return await self._awrite(write)

    def touch(self, expected: Record, expire: Duration, shorten: bool = False) -> Written:
        """Extend the lease of the record. A lease that ends later is left as it is, unless ``shorten`` is True.

        A renewed record that was lost isn't extended; the result is then false, with the current record.

        Args:
            expected: the record that the caller read or wrote last.
            expire: seconds from now until the lease ends.
            shorten: let the lease end then, even if it would have ended later.

        Returns:
            ``Written``: true with the record, its ``lease_left`` being ``expire``; or false with the current record.

        Raises:
            TypeError: ``expected`` is no record.
            ValueError: ``expire`` isn't a duration.
            LockBackendError: the store can't be reached for ``BACKEND_WAIT`` seconds, or refuses requests for as long
                as the option ``wait``.
            LockKeyError: the key holds a value that is no record.

        Example::

            if not ref.touch(record, expire=60):
                raise Cancelled  # the record was written or deleted, or its lease has ended
        """
        return run(self._touching(expected, lease_ms(expire), shorten), self.performer)

    async def atouch(self, expected: Record, expire: Duration, shorten: bool = False) -> Written:
        """Extend the lease of the record. A lease that ends later is left as it is, unless ``shorten`` is True.

        A renewed record that was lost isn't extended; the result is then false, with the current record.

        Args:
            expected: the record that the caller read or wrote last.
            expire: seconds from now until the lease ends.
            shorten: let the lease end then, even if it would have ended later.

        Returns:
            ``Written``: true with the record, its ``lease_left`` being ``expire``; or false with the current record.

        Raises:
            TypeError: ``expected`` is no record.
            ValueError: ``expire`` isn't a duration.
            LockBackendError: the store can't be reached for ``BACKEND_WAIT`` seconds, or refuses requests for as long
                as the option ``wait``.
            LockKeyError: the key holds a value that is no record.
        """
        return await arun(self._touching(expected, lease_ms(expire), shorten), self.performer)

    def drop(self, expected: Record) -> Written:
        """Delete the record if its version is still the expected one.

        Args:
            expected: the record that the caller read or wrote last.

        Returns:
            ``Written``: true if the record was deleted, or false with the current record.

        Raises:
            TypeError: ``expected`` is no record.
            LockBackendError: the store can't be reached for ``BACKEND_WAIT`` seconds, or refuses requests for as long
                as the option ``wait``.
            LockKeyError: the key holds a value that is no record.

        Example::

            written = ref.put(None, {"owner": 7})
            ref.drop(written.record)
        """
        self.performer.may_block()
        return run(self._dropping(expected), self.performer)

    async def adrop(self, expected: Record) -> Written:
        """Delete the record if its version is still the expected one.

        Args:
            expected: the record that the caller read or wrote last.

        Returns:
            ``Written``: true if the record was deleted, or false with the current record.

        Raises:
            TypeError: ``expected`` is no record.
            LockBackendError: the store can't be reached for ``BACKEND_WAIT`` seconds, or refuses requests for as long
                as the option ``wait``.
            LockKeyError: the key holds a value that is no record.
        """
        return await arun(self._dropping(expected), self.performer)

    def wait_for_change(self, expected: Record | None, timeout: Duration) -> Record | None:
        """Wait until the record's version differs from the expected one.

        Args:
            expected: the record that the caller read or wrote last; None waits until there is a record.
            timeout: seconds to wait; 0 reads the record once, -1 waits for ever.

        Returns:
            The current record, or None if there is none, after ``timeout`` seconds at the latest.

        Raises:
            TypeError: ``expected`` is no record.
            ValueError: ``timeout`` isn't a duration.
            LockBackendError: the store can't be reached for ``BACKEND_WAIT`` seconds, or refuses requests for as long
                as the option ``wait``.
            LockKeyError: the key holds a value that is no record.

        Example::

            record = ref.get()
            while record is not None and record.fields["state"] == "building":
                record = ref.wait_for_change(record, timeout=30)
        """
        request = ChangeRequest(expected, wait_seconds(timeout, "timeout"), None)
        try:
            return run(self._waiting_for_change(request), self.performer)
        except BaseException as failure:
            self._undo_request(request, failure)
            raise

    async def await_for_change(self, expected: Record | None, timeout: Duration) -> Record | None:
        """Wait until the record's version differs from the expected one.

        Args:
            expected: the record that the caller read or wrote last; None waits until there is a record.
            timeout: seconds to wait; 0 reads the record once, -1 waits for ever.

        Returns:
            The current record, or None if there is none, after ``timeout`` seconds at the latest.

        Raises:
            TypeError: ``expected`` is no record.
            ValueError: ``timeout`` isn't a duration.
            LockBackendError: the store can't be reached for ``BACKEND_WAIT`` seconds, or refuses requests for as long
                as the option ``wait``.
            LockKeyError: the key holds a value that is no record.
        """
        request = ChangeRequest(expected, wait_seconds(timeout, "timeout"), owners.running_loop())
        try:
            return await arun(self._waiting_for_change(request), self.performer)
        except BaseException as failure:
            self._undo_request(request, failure)
            raise

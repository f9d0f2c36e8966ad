"""The fast path of a record's write: one request that is answered at once. Any other write is left to the program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from ...core import clock
from ...core.commands import PARSE_ERRORS, Command
from ...core.durations import Duration
from ...core.effects import Cleanup
from ...core.errors import LockBackendError
from ...core.runner import arun, run, run_twice_if_interrupted
from .record_programs import RecordPrograms
from .record_values import Record, ShowInAdmin, Write, Written, is_version, parse_nothing
from .retry import FirstReply


@dataclass(slots=True, unsafe_hash=True)
class RecordWrites(RecordPrograms):
    """Writes a record."""

    def _write(self, write: Write) -> Written:
        """Write on the fast path, or else by the program."""
        first: FirstReply | None = None
        if self._is_fast(write):
            prepared = self.prepared_put or self._prepare_put()
            sent = clock.now()
            try:
                reply = prepared.send(write.args.nonce, prepared.packed_once(*write.args[1:]))
                written = self._written(write, reply)
                if written is not None:
                    return written
            except BaseException as failure:
                self._undo_write(write, failure)
                raise
            first = FirstReply(sent, reply)
            del reply  # an error and a frame that refer to each other stay in memory
        return run(self._putting(write, first), self.performer)

    def peek(self) -> Record | None:
        """Read the record without its lease, by a plain GET. ``lease_left`` is nan."""
        try:
            record: Record | None = self.performer.handlers[Command](self._peek_command())
        except LockBackendError:
            return run(self._getting(), self.performer)
        return record

    def post(self, expected: Record, fields: Mapping[str, Any], expire: Duration, show_in_admin: ShowInAdmin) -> None:
        """Write as ``put``, without waiting for the reply. A write that the store may not have carried out is repeated in
        the background, until the lease of the expected record would end."""
        write = self._prepare_write(expected, fields, expire, False, show_in_admin=show_in_admin)
        self.performer.may_block()
        if self._is_fast(write):
            prepared = self.prepared_put or self._prepare_put()
            rest = prepared.packed_once(*write.args[1:])
            if prepared.post(write.args.nonce, rest, partial(self._check_posted, write, expected.lease_left)) is None:
                return
        self._write(write)

    def _check_posted(self, write: Write, seconds: float, reply: Any) -> None:
        if not isinstance(reply, (int, list)):  # an error, or none: neither written nor refused
            repeat = Command("record/put", self._put_keys, write.args, parse_nothing)
            self.performer.handlers[Cleanup](Cleanup(self.lock_id, repeat, seconds))

    async def _awrite(self, write: Write) -> Written:
        """Write on the fast path, or else by the program."""
        first: FirstReply | None = None
        if self._is_fast(write):
            prepared = self.prepared_put or self._prepare_put()
            sent = clock.now()
            try:
                reply = await prepared.asend(write.args.nonce, prepared.packed_once(*write.args[1:]))
                written = self._written(write, reply)
                if written is not None:
                    return written
            except BaseException as failure:
                self._undo_write(write, failure)
                raise
            first = FirstReply(sent, reply)
            del reply  # an error and a frame that refer to each other stay in memory
        return await arun(self._putting(write, first), self.performer)

    def _is_fast(self, write: Write) -> bool:
        """Return whether one request is likely to suffice, and no renewal is to be started or stopped."""
        expected = write.expected
        return (
            write.renew_for is None
            and (expected is None or expected._hold is None)
            and not self.performer.outage.suspected
        )

    def _written(self, write: Write, reply: Any) -> Written | None:
        """Return the result of a write, or None if the program is to continue from this reply."""
        if is_version(reply):
            return Written(True, Record(reply, write.fields, write.lease / 1000))
        if type(reply) is list and reply[:1] == [0]:
            try:
                return Written(False, self._parse(reply).record)
            except PARSE_ERRORS:  # as a reply of something else, which the program reports
                return None
        return None

    def _undo_write(self, write: Write, failure: BaseException) -> None:
        cleanup = self._cleanup_of(write, failure)
        if cleanup is not None:
            run_twice_if_interrupted(partial(self.performer.handlers[Cleanup], cleanup))

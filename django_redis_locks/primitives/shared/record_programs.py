"""The programs of a record: read, write, extend, delete, and wait for a change."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from functools import partial

from ...core import clock, owners
from ...core.commands import Command, Program
from ...core.effects import Cleanup
from ...core.errors import LockBackendError
from ...core.hold import Hold, State, mint_id
from ...core.queue_values import Attempt
from ...core.steps.records import TouchRecord
from .record_commands import RecordCommands
from .record_values import ChangeRequest, Record, RecordReply, Write, Written, parse_dropped, renewed_record
from .retry import CommandReply, FirstReply
from .wait_loop import Outcome


@dataclass(slots=True, unsafe_hash=True)
class RecordPrograms(RecordCommands):
    """The programs of a record."""

    def _getting(self) -> Program[Record | None]:
        reply: RecordReply = (yield from self._asking(self._get_command()))[0]
        return reply.record

    def _putting(self, write: Write, first: FirstReply | None = None) -> Program[Written]:
        self._stop_renewal(write.expected)
        try:
            reply, sent, _ = yield from self._asking(self._put_command(write), first)
        except GeneratorExit:  # the program was abandoned; a record that it wrote ends with its lease
            raise
        except BaseException as failure:
            cleanup = self._cleanup_of(write, failure)
            if cleanup is not None:
                yield cleanup
            raise
        if not reply.ok or reply.record is None:
            return Written(False, reply.record)
        hold: Hold | None = None
        if write.renew_for is not None:
            hold = self._hold(write, reply.record.version, sent)
            self.performer.watch(hold, partial(self._renew_command, reply.record.version), write.lease)
        return Written(True, Record(reply.record.version, write.fields, write.lease / 1000, hold))

    def _cleanup_of(self, write: Write, failure: BaseException) -> Cleanup | None:
        """Return the effect that deletes a new record which a failed write may have left."""
        if write.expected is not None or (isinstance(failure, LockBackendError) and not failure.outcome_unknown):
            return None
        return Cleanup(self.lock_id, self._drop_command(0, write.args.nonce, parse_dropped), write.lease / 1000)

    def _touching(self, expected: Record, lease: int, shorten: bool) -> Program[Written]:
        hold = Record._checked(expected)._hold
        if hold is not None and hold.loss_reason is not None:  # its renewal has stopped
            return Written(False, (yield from self._getting()))
        command = Command(
            "record/touch", self._touch_keys, TouchRecord(expected.version, lease, int(shorten)), self._parse
        )
        reply, sent, _ = yield from self._asking(command)
        if not reply.ok:
            return Written(False, reply.record)
        if hold is not None and not hold.extend_deadline(sent, lease):  # the reply came after the loss was reported
            return Written(False, Record(expected.version, expected.fields, lease / 1000))
        return Written(True, Record(expected.version, expected.fields, lease / 1000, expected._hold))

    def _dropping(self, expected: Record) -> Program[Written]:
        self._stop_renewal(Record._checked(expected))
        reply, _, outcome_unknown = yield from self._asking(self._drop_command(expected.version, "", self._parse))
        return Written(reply.ok or (outcome_unknown and reply.record is None), reply.record)

    def _waiting_for_change(self, request: ChangeRequest) -> Program[Record | None]:
        record: Record | None = yield from self._asking_and_waiting(request)
        return record

    def _attempt_command(self, request: ChangeRequest, attempt: Attempt) -> Command[RecordReply]:
        return self._get_command(request.known, attempt)

    def _attempt_outcome(
        self, request: ChangeRequest, attempt: Attempt, command_reply: CommandReply
    ) -> Outcome[Record | None]:
        reply: RecordReply = command_reply[0]
        request.position = reply.position
        record = reply.record
        if (0 if record is None else record.version) != request.known:
            return record, True, 0.0  # 0.0: the next waiter asks at once, since it may expect another version
        return record, False, self.performer.tuning.max_poll_interval if record is None else record.lease_left

    def _stop_renewal(self, record: Record | None) -> None:
        if record is not None and record._hold is not None:
            self.performer.unwatch(record._hold)
            record._hold.state = State.GONE

    def _asking(self, command: Command[RecordReply], first: FirstReply | None = None) -> Program[CommandReply]:
        """Send a command for as long as the option ``wait``."""
        sent = clock.now() if first is None else first.sent
        return (yield from self._sending(command, sent + self.options.wait, first))

    def _hold(self, write: Write, version: int, sent: float) -> Hold:
        hold = Hold(
            self.lock_id,
            self.key,
            self.name,
            self.alias,
            token=write.args.nonce,
            grant=mint_id(),
            fence=version,
            lease=write.lease,
            sent=sent,
            renew_for=write.renew_for or 0.0,
            owner=owners.current_owner(),
            loop=write.loop,
            on_lost=write.on_lost,
            outcome_unknown=False,
        )
        if write.on_lost is not None:
            # on_lost is called with a new Record: the caller may have kept only the one that touch() returned. It
            # refers to the hold weakly, since the renewal ends when no record refers to the hold
            hold.grant = partial(renewed_record, version, write.fields, write.lease, weakref.ref(hold))
        return hold

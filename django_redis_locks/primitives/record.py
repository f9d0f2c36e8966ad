"""The record primitive: a small JSON value with a lease, changed by compare-and-set. State machines across processes
build on it.

Every write has a nonce, by which a repeated request recognizes its own write, and gets a version. Versions are never
reused, so they serve as fences.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ..core import clock, forks, owners, tokens
from ..core.commands import Command, Program
from ..core.durations import Duration, lease_ms, wait_seconds
from ..core.effects import Cleanup, LeaveQueue
from ..core.errors import LockBackendError, LockKeyError
from ..core.hold import Hold, State, mint_id
from ..core.queue_values import Attempt, QueuePosition, Waiter
from ..core.replies import parse_int, parse_json
from ..core.runner import arun, run, run_twice_if_interrupted
from .shared.record_values import (
    ChangeRequest,
    Record,
    RecordReply,
    ShowInAdmin,
    Write,
    Written,
    as_text,
    json_of,
    nonce_suffix,
    parse_dropped,
    parse_touched,
    queued_index,
    renewal_seconds,
    renewed_record,
)
from .shared.retry import CommandReply, retry_command
from .shared.wait_loop import Outcome, wait_loop

if TYPE_CHECKING:
    from ..core.effects import Performer
    from ..core.keys import LockId, LockKeys
    from .shared.requests import LockOptions, WaitRequest

__all__ = ["KIND", "Record", "RecordRef", "Written"]

KIND: Final = "record"


@dataclass(frozen=True, slots=True)
class RecordRef:
    """A reference to the record under one key. Immutable. Each method except ``wait_for_change`` is one round trip, and
    each has an asynchronous twin with the prefix ``a``.

    All methods raise ``LockBackendError`` if the store can't be reached for ``BACKEND_WAIT`` seconds, or refuses
    requests for as long as the option ``wait``, and ``LockKeyError`` if the key holds a value that is no record.
    """

    performer: Performer
    lock_id: LockId
    keys: LockKeys
    key: str
    name: str
    alias: str
    options: LockOptions

    def get(self) -> Record | None:
        """Read the record. Returns None if there is none."""
        return run(self._getting(), self.performer)

    async def aget(self) -> Record | None:
        """As ``get``."""
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
            TypeError: JSON can't express the fields.
            ValueError: an argument is out of its range, or needs ``renew``.
        """
        write = self._prepare_write(expected, fields, expire, renew, max_hold, on_lost, show_in_admin)
        self.performer.may_block()  # checked before the program stops the renewal of the expected record
        return run(self._putting(write), self.performer)

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
        """As ``put``."""
        write = self._prepare_write(
            expected, fields, expire, renew, max_hold, on_lost, show_in_admin, owners.running_loop()
        )
        return await arun(self._putting(write), self.performer)

    def touch(self, expected: Record, expire: Duration, shorten: bool = False) -> Written:
        """Extend the lease of the record to ``expire`` seconds from now. A lease that ends later is left as it is,
        unless ``shorten`` is True.

        A renewed record that was lost isn't extended; the result is then false, with the current record.
        """
        return run(self._touching(expected, lease_ms(expire), shorten), self.performer)

    async def atouch(self, expected: Record, expire: Duration, shorten: bool = False) -> Written:
        """As ``touch``."""
        return await arun(self._touching(expected, lease_ms(expire), shorten), self.performer)

    def drop(self, expected: Record) -> Written:
        """Delete the record if its version is still the expected one."""
        self.performer.may_block()
        return run(self._dropping(expected), self.performer)

    async def adrop(self, expected: Record) -> Written:
        """As ``drop``."""
        return await arun(self._dropping(expected), self.performer)

    def wait_for_change(self, expected: Record | None, timeout: Duration) -> Record | None:
        """Wait until the record's version differs from the expected one. Returns the current record, or None if there
        is none, after ``timeout`` seconds at the latest; -1 waits for ever."""
        request = ChangeRequest(expected, wait_seconds(timeout, "timeout"), None)
        try:
            return run(self._waiting_for_change(request), self.performer)
        except BaseException as failure:
            self._undo_request(request, failure)
            raise

    async def await_for_change(self, expected: Record | None, timeout: Duration) -> Record | None:
        """As ``wait_for_change``."""
        request = ChangeRequest(expected, wait_seconds(timeout, "timeout"), owners.running_loop())
        try:
            return await arun(self._waiting_for_change(request), self.performer)
        except BaseException as failure:
            self._undo_request(request, failure)
            raise

    # The programs.

    def _getting(self) -> Program[Record | None]:
        reply: RecordReply = (yield from self._sending(self._get_command()))[0]
        return reply.record

    def _putting(self, write: Write) -> Program[Written]:
        self._stop_renewal(write.expected)
        try:
            reply, sent, _ = yield from self._sending(write.command)
        except GeneratorExit:  # the program was abandoned; a record that it wrote ends with its lease
            raise
        except BaseException as failure:
            if write.expected is None and not (isinstance(failure, LockBackendError) and not failure.outcome_unknown):
                yield Cleanup(self.lock_id, self._drop_command(0, write.nonce, parse_dropped), write.lease / 1000)
            raise
        if not reply.ok or reply.record is None:
            return Written(False, reply.record)
        hold: Hold | None = None
        fields = parse_json(write.text)  # as a later get() returns them
        if write.renew_for is not None:
            hold = self._hold(write, fields, reply.record.version, sent)
            self.performer.watch(hold, partial(self._renew_command, reply.record.version), write.lease)
        return Written(True, Record(reply.record.version, fields, write.lease / 1000, hold))

    def _touching(self, expected: Record, lease: int, shorten: bool) -> Program[Written]:
        hold = Record._checked(expected)._hold
        if hold is not None and hold.lost_why is not None:  # its renewal has stopped
            return Written(False, (yield from self._getting()))
        command = Command("record/touch", self._touch_keys, (expected.version, lease, int(shorten)), self._parse)
        reply, sent, _ = yield from self._sending(command)
        if not reply.ok:
            return Written(False, reply.record)
        if hold is not None and not hold.extend_deadline(sent, lease):  # the reply came after the loss was reported
            return Written(False, Record(expected.version, expected.fields, lease / 1000))
        return Written(True, Record(expected.version, expected.fields, lease / 1000, expected._hold))

    def _dropping(self, expected: Record) -> Program[Written]:
        self._stop_renewal(Record._checked(expected))
        reply, _, outcome_unknown = yield from self._sending(self._drop_command(expected.version, "", self._parse))
        return Written(reply.ok or (outcome_unknown and reply.record is None), reply.record)

    def _waiting_for_change(self, request: ChangeRequest) -> Program[Record | None]:
        # The head of the local queue may know a newer version than this caller, so the caller asks once before it
        # queues
        started = clock.now()
        command_reply = yield from self._sending(self._attempt_command(request, Attempt()), started + request.wait)
        record, final, *_ = self._attempt_outcome(request, Attempt(), command_reply)
        request.wait -= clock.now() - started
        if final or request.wait <= 0:
            return record
        waiter = Waiter(self.lock_id, request.loop, self.keys.inbox, request=request)
        return (yield from wait_loop(self, request, waiter, record, self.options.acquire_limits))

    def _attempt_command(self, request: ChangeRequest, attempt: Attempt) -> Command[RecordReply]:
        return self._get_command(request.known, attempt)

    def _attempt_outcome(
        self, request: ChangeRequest, attempt: Attempt, command_reply: CommandReply
    ) -> Outcome[Record | None]:
        reply: RecordReply = command_reply[0]
        request.position = reply.position
        record = reply.record
        if (0 if record is None else record.version) != request.known:
            return record, True, 0.0, ()  # 0.0: the next waiter asks at once, since it may expect another version
        return record, False, self.performer.tuning.max_poll_interval if record is None else record.lease_left, ()

    def _stop_renewal(self, record: Record | None) -> None:
        if record is not None and record._hold is not None:
            self.performer.unwatch(record._hold)
            record._hold.state = State.GONE

    def _undo_request(self, request: WaitRequest, failure: BaseException) -> None:
        if request.waiter is not None:
            # 0.0: the next waiter asks at once, since a wake-up may have been consumed
            leave = LeaveQueue(request.waiter, 0.0)
            run_twice_if_interrupted(partial(self.performer.handlers[LeaveQueue], leave))
        if isinstance(failure, LockBackendError):
            self._with_context(failure)

    def _sending(self, command: Command[RecordReply], until: float | None = None) -> Program[CommandReply]:
        if until is None:
            until = clock.now() + self.options.wait
        try:
            return (yield from retry_command(command, until, self.options.acquire_limits, tuning=self.performer.tuning))
        except LockBackendError as failure:
            self._with_context(failure)
            raise

    def _with_context(self, failure: LockBackendError) -> LockBackendError:
        failure.key, failure.name, failure.alias = self.key, self.name, self.alias
        return failure

    # The commands.

    def _get_command(self, known: int = 0, attempt: Attempt | None = None) -> Command[RecordReply]:
        args: tuple[str | int, ...] = ()
        if attempt is not None:
            args = known, attempt.address, attempt.enqueued_at, int(attempt.more), self.performer.tuning.waiter_ttl
        return Command("record/get", self.keys[:2], args, self._parse_get)

    def _prepare_write(
        self,
        expected: Record | None,
        fields: Mapping[str, Any],
        expire: Duration | None,
        renew: bool,
        max_hold: Duration | None = None,
        on_lost: Callable[[Record], object] | None = None,
        show_in_admin: ShowInAdmin = False,
        loop: object = None,
    ) -> Write:
        text = json_of(fields, self.name)
        if not renew and (max_hold is not None or on_lost is not None):
            raise ValueError("max_hold and on_lost need renew=True")
        if on_lost is not None and not callable(on_lost):
            raise ValueError(f"on_lost is None or a callable, not {on_lost!r}")
        suffix = nonce_suffix(show_in_admin)
        lease = self.options.lease if expire is None else lease_ms(expire)
        default = self.options.renew_for
        renew_for = None if not renew else default if max_hold is None else renewal_seconds(max_hold)
        forks.pid()
        nonce = tokens.mint_token() + suffix
        args = 0 if expected is None else Record._checked(expected).version, nonce, lease, text
        command = Command("record/put", self.keys[:3] + self._index_keys, args, self._parse)
        return Write(expected, text, lease, renew_for, on_lost, loop, nonce, command)

    def _drop_command(self, version: int, nonce: str, parse: Any) -> Command[Any]:
        return Command("record/drop", self.keys[:2] + self._index_keys, (version, nonce), parse)

    def _renew_command(self, version: int, token: str, lease: int) -> Command[bool]:
        return Command("record/touch", self._touch_keys, (version, lease, 0), parse_touched)

    @property
    def _touch_keys(self) -> tuple[str, ...]:
        return (self.keys.lock, *self._index_keys)

    @property
    def _index_keys(self) -> tuple[str, ...]:
        """Return the indexes that may list the record; none if the alias has no index."""
        listing = self.keys.listing
        return (listing, queued_index(listing)) if self.options.index else ()

    def _hold(self, write: Write, fields: Mapping[str, Any], version: int, sent: float) -> Hold:
        hold = Hold(
            self.lock_id,
            self.key,
            self.name,
            self.alias,
            write.nonce,
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
            hold.grant = partial(renewed_record, version, fields, write.lease, weakref.ref(hold))
        return hold

    # The replies.

    def _parse(self, reply: list[Any]) -> RecordReply:
        """Parse ``[1, version]``, ``[1]``, ``[0, lease left ms, version, fields]``, ``[0]`` or ``[-1, what the key
        holds]``."""
        outcome, *rest = reply
        if outcome == -1:
            raise LockKeyError(
                f"the key of record {self.name!r} of alias {self.alias!r} holds {as_text(rest[0])}. "
                "Delete that value, or choose another key or KEY_PREFIX",
                key=self.key,
                name=self.name,
                alias=self.alias,
            )
        if outcome == 1:
            return RecordReply(True, Record(int(rest[0]), {}, 0.0) if rest else None)
        if not rest:
            return RecordReply(False, None)
        left, version, fields = rest
        return RecordReply(False, Record(parse_int(version), parse_json(as_text(fields)), parse_int(left) / 1000))

    def _parse_get(self, reply: list[Any]) -> RecordReply:
        """Parse as ``_parse``; the last element is this process's position in the store's wait queue."""
        if reply[0] == -1:
            return self._parse(reply)
        return self._parse(reply[:-1])._replace(position=QueuePosition(int(reply[-1])))

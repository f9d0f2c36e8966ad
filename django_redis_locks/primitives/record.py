"""A small value that processes change by compare-and-set, with a lease: what state machines across processes are built on.

Every write carries a nonce, so that a repeated request finds its own work and isn't taken for somebody else's; and a
version that never comes twice, since it is a fence.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ..core import clock, forks, owners
from ..core.constants import CAP
from ..core.durations import Duration, lease_ms, patience
from ..core.effects import Command, Leave, Program, Seat, Standing, Sweep, Turn
from ..core.errors import LockBackendError, LockKeyError
from ..core.hold import Hold, State, mint_id
from ..core.runner import arun, run, surely
from .asking import Answer, asking
from .waiting import Outcome, kept, waiting
from .wishes import Wish

if TYPE_CHECKING:
    from ..core.effects import Performer, Place
    from ..core.keys import LockKeys
    from .wishes import Terms

KIND: Final = "record"


@dataclass(frozen=True, slots=True)
class Record:
    """A record as it was at one moment.

    Attributes:
        version: grows with every write of this key; it never comes twice, so it serves as a fence too.
        fields: what was written.
        lease_left: seconds that its lease still had then.
    """

    version: int
    fields: Mapping[str, Any]
    lease_left: float
    _hold: Hold | None = field(default=None, repr=False, compare=False)

    @property
    def lost(self) -> bool:
        """Of a record that is renewed: whether it isn't ours any more, known without asking the store."""
        return self._hold is not None and (self._hold.over or self._hold.foreign)


class Written(NamedTuple):
    """What came of a write. ``record`` is what was written if it is ``ok``, else what is there; None if nothing is."""

    ok: bool
    record: Record | None

    def __bool__(self) -> bool:
        return self.ok


class _Reply(NamedTuple):
    ok: bool
    record: Record | None
    standing: Standing = Standing()


@dataclass(frozen=True, slots=True)
class RecordRef:
    """The record under one key. Immutable; each method is one round trip and stands beside its ``a`` twin.

    All raise ``LockBackendError`` if the store can't be reached within the ``wait`` of the terms, and ``LockKeyError`` if
    something else lives under the key.
    """

    world: Performer
    place: Place
    keys: LockKeys
    key: str
    name: str
    alias: str
    terms: Terms

    def get(self) -> Record | None:
        """The record as it is, or None."""
        return run(self._getting(), self.world)

    async def aget(self) -> Record | None:
        """As ``get``."""
        return await arun(self._getting(), self.world)

    def put(
        self, expected: Record | None, fields: Mapping[str, Any], expire: Duration | None = None, renew: bool = False
    ) -> Written:
        """Write, if the record is still the one that is expected.

        Args:
            expected: the record as the caller knows it; None: there is none.
            fields: what to write: names, and values that JSON knows.
            expire: seconds after which it is gone; by default the alias's ``EXPIRE``.
            renew: keep it while this thread or task lives and the returned record is reachable.

        Raises:
            TypeError: JSON can't express the fields.
        """
        write = self._write(expected, fields, expire, renew)
        return run(self._putting(write), self.world)

    async def aput(
        self, expected: Record | None, fields: Mapping[str, Any], expire: Duration | None = None, renew: bool = False
    ) -> Written:
        """As ``put``."""
        write = self._write(expected, fields, expire, renew)
        return await arun(self._putting(write), self.world)

    def touch(self, expected: Record, expire: Duration, shorten: bool = False) -> Written:
        """Let its lease end ``expire`` seconds from now, or later if it did anyway; ``shorten``: also earlier."""
        return run(self._touching(expected, lease_ms(expire), shorten), self.world)

    async def atouch(self, expected: Record, expire: Duration, shorten: bool = False) -> Written:
        """As ``touch``."""
        return await arun(self._touching(expected, lease_ms(expire), shorten), self.world)

    def drop(self, expected: Record) -> Written:
        """Delete it, if it is still the one that is expected."""
        return run(self._dropping(expected), self.world)

    async def adrop(self, expected: Record) -> Written:
        """As ``drop``."""
        return await arun(self._dropping(expected), self.world)

    def wait_for_change(self, expected: Record | None, timeout: Duration) -> Record | None:
        """The record once its version isn't the expected one any more, or as it is after ``timeout`` seconds; -1 waits for
        ever."""
        wish = _Change(expected, patience(timeout, "timeout"), None)
        try:
            return run(self._changing(wish), self.world)
        except BaseException as failure:
            self._give_up(wish, failure)
            raise

    async def await_for_change(self, expected: Record | None, timeout: Duration) -> Record | None:
        """As ``wait_for_change``."""
        wish = _Change(expected, patience(timeout, "timeout"), owners.running_loop())
        try:
            return await arun(self._changing(wish), self.world)
        except BaseException as failure:
            self._give_up(wish, failure)
            raise

    # The programs.

    def _getting(self) -> Program[Record | None]:
        reply: _Reply = (yield from self._ask(self._get()))[0]
        return reply.record

    def _putting(self, write: _Write) -> Program[Written]:
        self._let_go(write.expected)
        try:
            reply, sent, _ = yield from self._ask(write.command)
        except GeneratorExit:  # abandoned: its lease ends it
            raise
        except BaseException as failure:
            if write.expected is None and not (isinstance(failure, LockBackendError) and not failure.unanswered):
                yield Sweep(self.place, self._drop(0, write.nonce, _dropped), write.lease / 1000)
            raise
        if not reply.ok or reply.record is None:
            return Written(False, reply.record)
        hold: Hold | None = None
        if write.renew:
            hold = self._hold(write, reply.record.version, sent)
            self.world.watch(hold, partial(self._prolong, reply.record.version), write.lease)
        return Written(True, Record(reply.record.version, write.fields, write.lease / 1000, hold))

    def _touching(self, expected: Record, lease: int, shorten: bool) -> Program[Written]:
        command = Command("record/touch", (self.keys.lock,), (expected.version, lease, int(shorten)), self._read)
        reply, sent, _ = yield from self._ask(command)
        if not reply.ok:
            return Written(False, reply.record)
        if expected._hold is not None:
            expected._hold.prolong(sent, lease)
        return Written(True, Record(expected.version, expected.fields, lease / 1000, expected._hold))

    def _dropping(self, expected: Record) -> Program[Written]:
        self._let_go(expected)
        reply, _, unanswered = yield from self._ask(self._drop(expected.version, "", self._read))
        return Written(reply.ok or (unanswered and reply.record is None), reply.record)

    def _changing(self, wish: _Change) -> Program[Record | None]:
        # Who has seen an older version than the head of the queue waits for something else
        begin = clock.now()
        answer = yield from self._ask(self._question(wish, Turn()), begin + wish.wait)
        record, settled, *_ = self._outcome(wish, Turn(), answer)
        wish.wait -= clock.now() - begin
        if settled or wish.wait <= 0:
            return record
        return (yield from waiting(self, wish, Seat(self.place, wish.home, self.keys.inbox), record))

    def _question(self, wish: _Change, turn: Turn) -> Command[_Reply]:
        return self._get(wish.known, turn)

    def _outcome(self, wish: _Change, turn: Turn, answer: Answer) -> Outcome[Record | None]:
        reply: _Reply = answer[0]
        wish.standing = reply.standing
        record = reply.record
        if (0 if record is None else record.version) != wish.known:
            return record, True, 0.0, ()  # the next one, who may wait for another change, asks at once
        return record, False, CAP if record is None else record.lease_left, ()

    def _let_go(self, record: Record | None) -> None:
        if record is not None and record._hold is not None:
            self.world.unwatch(record._hold)
            record._hold.state = State.GONE

    def _give_up(self, wish: Wish, failure: BaseException) -> None:
        if wish.seat is not None:
            leave = Leave(wish.seat, 0.0)  # the next one asks at once: a wake-up may have been spent
            surely(partial(self.world.handlers[Leave], leave))
        if isinstance(failure, LockBackendError):
            self._named(failure)

    def _ask(self, command: Command[_Reply], until: float | None = None) -> Program[Answer]:
        if until is None:
            until = clock.now() + self.terms.wait
        try:
            return (yield from asking(command, until))
        except LockBackendError as failure:
            self._named(failure)
            raise

    def _named(self, failure: LockBackendError) -> LockBackendError:
        failure.key, failure.name, failure.alias = self.key, self.name, self.alias
        return failure

    # The commands.

    def _get(self, known: int = 0, turn: Turn | None = None) -> Command[_Reply]:
        args: tuple[str | int, ...] = ()
        if turn is not None:
            args = known, turn.address, turn.arrival, int(turn.more), kept()
        return Command("record/get", self.keys[:2], args, self._read_got)

    def _write(
        self, expected: Record | None, fields: Mapping[str, Any], expire: Duration | None, renew: bool
    ) -> _Write:
        given: object = fields
        if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in fields):
            raise TypeError("the fields of a record are a mapping of names to values")
        try:
            text = json.dumps(dict(fields), separators=(",", ":"), allow_nan=False)
        except (TypeError, ValueError) as error:
            raise TypeError(f"the fields of record {self.name!r} can't be written as JSON: {error}") from None
        lease = self.terms.lease if expire is None else lease_ms(expire)
        forks.pid()
        nonce = owners.mint_token()
        args = 0 if expected is None else expected.version, nonce, lease, text
        command = Command("record/put", self.keys[:3], args, self._read)
        return _Write(expected, json.loads(text), lease, renew, nonce, command)

    def _drop(self, version: int, nonce: str, parse: Any) -> Command[Any]:
        return Command("record/drop", self.keys[:2], (version, nonce), parse)

    def _prolong(self, version: int, token: str, lease: int) -> Command[bool]:
        return Command("record/touch", (self.keys.lock,), (version, lease, 0), _renewed)

    def _hold(self, write: _Write, version: int, sent: float) -> Hold:
        return Hold(
            self.place,
            self.key,
            self.name,
            self.alias,
            write.nonce,
            grant=mint_id(),
            fence=version,
            lease=write.lease,
            sent=sent,
            renew_for=self.terms.renew_for,
            owner=owners.me(),
            home=None,
            on_lost=None,
            unanswered=False,
        )

    # The replies.

    def _read(self, reply: list[Any]) -> _Reply:
        """``[1, version]``, ``[1]``, ``[0, lease left ms, version, fields]``, ``[0]`` or ``[-1, what lives there]``."""
        outcome, *rest = reply
        if outcome == -1:
            raise LockKeyError(
                f"the key of record {self.name!r} of alias {self.alias!r} holds {_text(rest[0])}. "
                "Delete that, or choose another key or KEY_PREFIX",
                key=self.key,
                name=self.name,
                alias=self.alias,
            )
        if outcome == 1:
            return _Reply(True, Record(int(rest[0]), {}, 0.0) if rest else None)
        if not rest:
            return _Reply(False, None)
        left, version, fields = rest
        return _Reply(False, Record(int(version), json.loads(fields), left / 1000))

    def _read_got(self, reply: list[Any]) -> _Reply:
        """As ``_read``, and at the end when this process lined up."""
        if reply[0] == -1:
            return self._read(reply)
        return self._read(reply[:-1])._replace(standing=Standing(int(reply[-1])))


class _Change(Wish):
    """A wish to see another version than the one expected."""

    __slots__ = ("known",)

    def __init__(self, expected: Record | None, wait: float, home: object) -> None:
        super().__init__(wait, home)
        self.known = 0 if expected is None else expected.version


class _Write(NamedTuple):
    expected: Record | None
    fields: Mapping[str, Any]
    lease: int
    renew: bool
    nonce: str
    command: Command[_Reply]


def _dropped(reply: list[Any]) -> int:
    return int(reply[0] == 1)


def _renewed(reply: list[Any]) -> bool:
    return bool(reply[0] == 1)


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)

"""The commands of a record, and the parsers of their replies.

Every write has a nonce, by which a repeated request recognizes its own write, and gets a version. Versions are never
reused, so they serve as fences.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ...core import forks, tokens
from ...core.commands import Command
from ...core.durations import Duration, hold_seconds, lease_ms
from ...core.queue_values import Attempt, QueuePosition
from ...core.replies import parse_int, parse_json
from ...core.steps.records import DropRecord, GetRecord, PeekRecord, PutRecord, RecordWaiter, TouchRecord
from .record_values import (
    Record,
    RecordReply,
    ShowInAdmin,
    Write,
    as_text,
    is_version,
    json_of,
    nonce_suffix,
    parse_stored,
    parse_touched,
    queued_index,
)
from .watched_value import WatchedValue

if TYPE_CHECKING:
    from ...core.prepared import PreparedCommand


@dataclass(slots=True, unsafe_hash=True)
class RecordCommands(WatchedValue):
    """The commands of the record under one key. ``prepared_put`` is the command of the fast path since its first
    use."""

    prepared_put: PreparedCommand | None = field(default=None, init=False, compare=False, repr=False)

    def _get_command(self, known: int = 0, attempt: Attempt | None = None) -> Command[RecordReply]:
        waiter: RecordWaiter | None = None
        if attempt is not None:
            waiter = RecordWaiter(
                known,
                attempt.address,
                attempt.enqueued_at,
                int(attempt.others_behind),
                self.performer.tuning.waiter_ttl,
            )
        return Command("record/get", self.keys[:2], GetRecord(waiter), self._parse_get)

    def _peek_command(self) -> Command[Record | None]:
        return Command("record/peek", self.keys[:1], PeekRecord(), parse_stored)

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
        text, copy = json_of(fields, self.name)
        if not renew and (max_hold is not None or on_lost is not None):
            raise ValueError("max_hold and on_lost need renew=True")
        if on_lost is not None and not callable(on_lost):
            raise ValueError(f"on_lost is None or a callable, not {on_lost!r}")
        suffix = nonce_suffix(show_in_admin)
        lease = self.options.lease if expire is None else lease_ms(expire)
        default = self.options.renew_for
        renew_for = None if not renew else default if max_hold is None else hold_seconds(max_hold)
        forks.pid()
        nonce = tokens.mint_token() + suffix
        args = PutRecord(nonce, 0 if expected is None else Record._checked(expected).version, lease, text)
        return Write(expected, copy, lease, renew_for, on_lost, loop, args)

    def _put_command(self, write: Write) -> Command[RecordReply]:
        return Command("record/put", self._put_keys, write.args, self._parse_put)

    def _drop_command(self, version: int, nonce: str, parse: Any) -> Command[Any]:
        return Command("record/drop", self.keys[:2] + self._index_keys, DropRecord(version, nonce), parse)

    def _renew_command(self, version: int, token: str, lease: int) -> Command[bool]:
        return Command("record/touch", self._touch_keys, TouchRecord(version, lease, 0), parse_touched)

    def _prepare_put(self) -> PreparedCommand:
        """Prepare the command of a write, and keep it."""
        self.prepared_put = self.performer.prepare("record/put", self._put_keys)
        return self.prepared_put

    @property
    def _put_keys(self) -> tuple[str, ...]:
        return self.keys[:3] + self._index_keys

    @property
    def _touch_keys(self) -> tuple[str, ...]:
        return (self.keys.lock, *self._index_keys)

    @property
    def _index_keys(self) -> tuple[str, ...]:
        """Return the indexes that may list the record; none if the alias has no index."""
        index = self.keys.index_key
        return (index, queued_index(index)) if self.options.index else ()

    def _parse(self, reply: list[Any]) -> RecordReply:
        """Parse ``[1, version]``, ``[1]``, ``[0, lease left ms, version, fields]``, ``[0]`` or ``[-1, what the key
        holds]``."""
        outcome, *rest = reply
        if outcome == -1:
            raise self._foreign_value_error("record", as_text(rest[0]))
        if outcome == 1:
            return RecordReply(True, Record(int(rest[0]), {}, 0.0) if rest else None)
        if not rest:
            return RecordReply(False, None)
        left, version, fields = rest
        return RecordReply(False, Record(parse_int(version), parse_json(as_text(fields)), parse_int(left) / 1000))

    def _parse_put(self, reply: Any) -> RecordReply:
        """Parse the version, or else as ``_parse``."""
        return RecordReply(True, Record(reply, {}, 0.0)) if is_version(reply) else self._parse(reply)

    def _parse_get(self, reply: list[Any]) -> RecordReply:
        """Parse as ``_parse``; the last element is this process's position in the store's wait queue."""
        if reply[0] == -1:
            return self._parse(reply)
        return self._parse(reply[:-1])._replace(position=QueuePosition(int(reply[-1])))

"""Values of the record primitive: the record, a write, and the result of a write."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import nan
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from ...core.queue_values import QueuePosition
from ...core.replies import parse_int, parse_json
from .requests import SMALLEST_FENCE, WaitRequest

if TYPE_CHECKING:
    import weakref

    from ...core.hold import Hold
    from ...core.steps.records import PutRecord

ShowInAdmin: TypeAlias = "bool | Literal['queued']"
"""Where the admin lists a record: nowhere, among the held locks, or among the queued jobs."""


@dataclass(frozen=True, slots=True)
class Record:
    """A record as it was at one moment.

    Attributes:
        version: increases with every write of this key, and is never reused, so it serves as a fence.
        fields: the fields that were written.
        lease_left: the seconds that its lease had left at that moment.
    """

    version: int
    fields: Mapping[str, Any]
    lease_left: float
    _hold: Hold | None = field(default=None, repr=False, compare=False)

    @property
    def lost(self) -> bool:
        """Whether a renewed record was lost, as far as this process knows; no request is sent."""
        return self._hold is not None and (self._hold.expired_or_lost or self._hold.inherited_by_fork)

    @staticmethod
    def _checked(expected: object) -> Record:
        """Return ``expected``.

        Raises:
            TypeError: it isn't a ``Record``.
        """
        if not isinstance(expected, Record):
            raise TypeError(
                "expected is the Record that get() returned, or the .record of the result of put(), or for put() None if there "
                f"is no record; {type(expected).__name__} is neither"
            )
        return expected


class Written(NamedTuple):
    """The result of a write.

    Attributes:
        ok: True if the record was written. It is also the truth value of this object.
        record: the written record if ``ok``, else the current one; None if there is none.
    """

    ok: bool
    record: Record | None

    def __bool__(self) -> bool:
        """Whether the write succeeded."""
        return self.ok


class RecordReply(NamedTuple):
    """The parsed reply of a record command."""

    ok: bool
    record: Record | None
    position: QueuePosition = QueuePosition()


class Write(NamedTuple):
    """A prepared write.

    Attributes:
        fields: the fields as a later ``get()`` returns them.
        renew_for: None if the record isn't renewed.
        args: the arguments of its command.
    """

    expected: Record | None
    fields: Mapping[str, Any]
    lease: int
    renew_for: float | None
    on_lost: Callable[[Record], object] | None
    loop: object
    args: PutRecord


class ChangeRequest(WaitRequest):
    """A request to wait for another version than the expected one."""

    __slots__ = ("known",)

    def __init__(self, expected: Record | None, wait: float, loop: object) -> None:
        super().__init__(wait, loop)
        self.known = 0 if expected is None else Record._checked(expected).version


_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


_NAMES = frozenset({str})

_SCALARS = frozenset({str, int, float, bool, type(None)})
"""Types whose values JSON returns unchanged."""


def json_of(fields: object, name: str) -> tuple[str, Mapping[str, Any]]:
    """Return the fields as JSON, and as they are read from it.

    Raises:
        TypeError: JSON can't express them.
    """
    if type(fields) is dict and _NAMES.issuperset(map(type, fields)):
        copy, flat = fields.copy(), _SCALARS.issuperset(map(type, fields.values()))
    elif isinstance(fields, Mapping) and all(isinstance(field, str) for field in fields):
        copy, flat = dict(fields), False
    else:
        raise TypeError("the fields of a record are a mapping of names to values")
    try:
        text = _encode(copy)
        return text, copy if flat else parse_json(text)
    except (TypeError, ValueError) as error:
        raise TypeError(f"the fields of record {name!r} can't be written as JSON: {error}") from None


def nonce_suffix(show_in_admin: object) -> str:
    """Return the suffix of a record's nonce. It names the index that lists the record, so that the next write can
    remove it there."""
    if isinstance(show_in_admin, bool):
        return ".held" if show_in_admin else ""
    if show_in_admin != "queued":
        raise ValueError(f'show_in_admin is True, False or "queued", not {show_in_admin!r}')
    return ".queued"


def is_version(reply: Any) -> bool:
    """Return whether a reply is the version of a record. Versions are fences."""
    return type(reply) is int and reply > SMALLEST_FENCE


def queued_index(index: str) -> str:
    """Return the key of the index of queued records, given the key of the index of held locks."""
    return f"{index}:queued"


def as_text(value: Any) -> str:
    """Return a part of a reply as a str."""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def renewed_record(version: int, fields: Mapping[str, Any], lease: int, hold: weakref.ref[Hold]) -> Record:
    """Return a renewed record as it was written."""
    return Record(version, fields, lease / 1000, hold())


def parse_dropped(reply: list[Any]) -> int:
    """Return the number of deleted records, 0 or 1."""
    return int(reply[0] == 1)


def parse_stored(reply: Any) -> Record | None:
    """Parse the value of a record's key, or None. The value doesn't have the lease, which is nan."""
    if reply is None:
        return None
    stored_format, kind, _, version, fields = as_text(reply).split(" ", 4)
    if (stored_format, kind) != ("1", "record"):
        raise ValueError("not a record")
    return Record(parse_int(version), parse_json(fields), nan)


def parse_touched(reply: list[Any]) -> bool:
    """Return whether a touch found its record. A malformed reply raises, because False would end the job of the
    record."""
    return {1: True, 0: False, -1: False}[reply[0]]


def parse_nothing(reply: Any) -> int:
    """Return 0: a repeated write frees nothing."""
    return 0

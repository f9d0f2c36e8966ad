"""The header of messages."""

from __future__ import annotations

from celery_locks.message import HEADER, Header, header_in


def test_header_written_and_read_is_unchanged() -> None:
    header = Header("k", "id", reserved=5, after="r", follow="f", line=True, turns=3, fingerprint="p")
    assert header_in({HEADER: header.written()}, "id") == header


UNKNOWN = [
    None,
    "text",
    {},
    {"v": 2, "key": "k", "id": "id"},
    {"v": 1, "key": "k", "id": "another"},
    {"v": 1, "id": "id"},
]


def test_header_of_another_version_or_task_counts_as_none() -> None:
    """[C46] The message is adopted. A header inherited from another task isn't taken for the message's own."""
    for found in UNKNOWN:
        assert header_in({HEADER: found}, "id") is None, found

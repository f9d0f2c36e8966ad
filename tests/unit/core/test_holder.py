"""The holder of a lock, as stored and as text."""

from __future__ import annotations

import os
import socket
from math import inf

from django_redis_locks.core.holder import FIELDS, Holder, describe, extras, read


def test_description_is_an_array_in_the_order_of_the_fields() -> None:
    """[F18] Wire format: null for the fields that METADATA doesn't list."""
    host, pid = socket.gethostname(), os.getpid()
    assert describe(pid, "MainThread", "order", FIELDS) == f'["{host}",{pid},"MainThread","order"]'
    assert describe(pid, "MainThread", "order", ("pid", "name")) == f'[null,{pid},null,"order"]'
    assert (
        describe(pid, "MainThread", "order", ("pid",), extras(inf, None)) == f'[null,{pid},null,null,{{"max_hold":-1}}]'
    )
    assert describe(pid, "MainThread", "order", ()) == ""


def test_description_with_long_names_is_cut() -> None:
    """The value in Redis stays small."""
    assert len(describe(1, "t" * 1000, "n" * 1000, ("thread", "name"))) < 140


def test_description_written_and_read_is_unchanged() -> None:
    """[F18] It has only the requested fields."""
    everything = {"host": socket.gethostname(), "pid": os.getpid(), "thread": "Täsk-1", "name": 'o"r,der'}
    for fields in (FIELDS, ("host",), ("thread", "name"), ()):
        for max_hold, note in ((None, None), (90.5, None), (inf, 'Ä"]}')):
            text = describe(os.getpid(), "Täsk-1", 'o"r,der', fields, extras(max_hold, note))
            holder = read(text, fence=7, since=1.5, lease_left=2.5)
            known = {field: everything[field] for field in fields}
            assert holder == Holder(7, 1.5, 2.5, **known, max_hold=max_hold, note=note)


def test_description_that_cannot_be_read_leaves_the_fields_empty() -> None:
    """[E8] [L45] From another version, or corrupt: the error of a busy lock, which names the holder, must not fail."""
    for text in (
        "[" * 100_000,
        "[[7], 1e9, null, {}]",
        "[null, 99999999999]",
        "",
        "nonsense",
        "{}",
        '{"host": "a"}',
        "null",
        "7",
        '"text"',
        "[]",
        "[",
        "\ufffd",
        '[null,null,null,null,{"max_hold":"5","more":1}]',
        '[null,null,null,null,{"max_hold":true,"note":[]}]',
        "[null,null,null,null,[]]",
    ):
        assert read(text, fence=7, since=1.5, lease_left=2.5) == Holder(7, 1.5, 2.5), text


def test_description_with_unknown_fields_is_read_without_them() -> None:
    """A later version may append fields."""
    for more in ('"more"', '{},"more"', '{"more":1}'):
        holder = read(f'["a",1,"b","c",{more}]', fence=7, since=1.5, lease_left=2.5)
        assert holder == Holder(7, 1.5, 2.5, "a", 1, "b", "c")


def test_holder_as_text_names_what_is_known() -> None:
    """As in the message of LockNotAcquired."""
    for about, text in [
        ({}, "unknown host"),
        ({"host": "web-1"}, "web-1"),
        ({"host": "web-1", "pid": 7}, "web-1 pid 7"),
        ({"pid": 7, "thread": "MainThread"}, "unknown host pid 7 MainThread"),
        ({"host": "web-1", "note": "for Ada"}, "web-1 (for Ada)"),
    ]:
        assert str(Holder(1, 0.0, 0.0, **about)) == text  # type: ignore[arg-type]

"""Who holds a lock, as the store keeps it and as people read it."""

from __future__ import annotations

import os
import socket

import pytest

from django_redis_locks.core.holder import FIELDS, Holder, describe, read


def test_a_description_is_an_array_in_the_order_of_the_fields() -> None:
    """[F18] Wire format: null for what METADATA doesn't name."""
    host, pid = socket.gethostname(), os.getpid()
    assert describe(pid, "MainThread", "order", FIELDS) == f'["{host}",{pid},"MainThread","order"]'
    assert describe(pid, "MainThread", "order", ("pid", "name")) == f'[null,{pid},null,"order"]'


def test_long_names_are_cut() -> None:
    """A lock in Redis stays small, whatever a thread is called."""
    assert len(describe(1, "t" * 1000, "n" * 1000, ("thread", "name"))) < 140


@pytest.mark.parametrize("fields", [FIELDS, ("host",), ("thread", "name")], ids=str)
def test_what_is_described_is_read(fields: tuple[str, ...]) -> None:
    """[F18] There and back, and nothing more than was wanted."""
    holder = read(describe(os.getpid(), "Täsk-1", 'o"r,der', fields), fence=7, since=1.5, lease_left=2.5)
    everything = {"host": socket.gethostname(), "pid": os.getpid(), "thread": "Täsk-1", "name": 'o"r,der'}
    assert holder == Holder(7, 1.5, 2.5, **{field: everything[field] for field in fields})


@pytest.mark.parametrize("text", ["", "nonsense", "{}", '{"host": "a"}', "null", "7", '"text"', "[]", "[", "\ufffd"])
def test_a_description_that_cannot_be_read_leaves_the_fields_empty(text: str) -> None:
    """[L45] Another version's, or a broken one: the refusal that names the holder doesn't fail."""
    assert read(text, fence=7, since=1.5, lease_left=2.5) == Holder(7, 1.5, 2.5)


def test_a_longer_description_is_read_as_far_as_it_is_known() -> None:
    """A later version may append fields."""
    assert read('["a",1,"b","c","more"]', fence=7, since=1.5, lease_left=2.5) == Holder(7, 1.5, 2.5, "a", 1, "b", "c")


@pytest.mark.parametrize(
    ("about", "text"),
    [
        ({}, "somebody"),
        ({"host": "web-1"}, "web-1"),
        ({"host": "web-1", "pid": 7}, "web-1 pid 7"),
        ({"pid": 7, "thread": "MainThread"}, "somebody pid 7 MainThread"),
    ],
    ids=str,
)
def test_a_holder_reads_well(about: dict[str, object], text: str) -> None:
    """It stands in the message of a refusal."""
    assert str(Holder(1, 0.0, 0.0, **about)) == text  # type: ignore[arg-type]

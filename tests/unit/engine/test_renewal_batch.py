"""Renewals of many locks in few commands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from django_redis_locks import LockBackendError
from django_redis_locks.backends.base import Backend
from django_redis_locks.core.commands import Command
from django_redis_locks.core.steps.locks import RenewLocks
from django_redis_locks.core.steps.records import TouchRecord
from django_redis_locks.engine.renewal_batch import MAX_HOLDS, renew
from django_redis_locks.primitives.shared.mutex_steps import parse_renew

DOWN = LockBackendError("down")


class Store(Backend):
    """Renews every lock whose token isn't "taken", and fails commands with the index "down"."""

    def __init__(self) -> None:
        self.sent: list[tuple[tuple[str, ...], tuple[Any, ...]]] = []

    def call_many(self, commands: Sequence[Command[Any]], timeout: float) -> list[Any]:
        assert timeout == 2
        self.sent += [(command.keys, command.args) for command in commands]
        return [self._answer(command) for command in commands]

    def together(self, keys: tuple[str, ...]) -> str:
        return keys[0].partition("}")[0]

    def _answer(self, command: Command[Any]) -> Any:
        if "down" in command.keys:
            return DOWN
        if command.name == "record/touch":
            return [1, b"7"]
        return [int(token != "taken") for token in command.args.tokens]


def renewal(lock: str, *index: str, token: str = "mine", lease: int = 30_000) -> Command[bool]:
    return Command("lock/renew", (f"p:{{0}}:k:{lock}", *index), RenewLocks(lease, (token,)), parse_renew, own_keys=1)


@pytest.fixture
def store() -> Store:
    return Store()


def test_renewals_of_one_lease_and_one_index_are_one_command(store: Store) -> None:
    """[H16] If they are of one step, in one part of the store; replies come in the order of the renewals."""
    taken, other = {"token": "taken"}, {"token": "other"}
    renewals = [
        renewal("a", "i"),
        renewal("b", "j", **taken),
        renewal("c", "i", **taken),
        renewal("d", "i", lease=5_000),
    ]
    renewals += [renewal("e"), renewal("f", "i", **other), renewal("g", **taken)]
    renewals += [replace(renewal("h"), keys=("p:{1}:k:h",)), replace(renewal("h"), name="permits/renew")]
    assert renew(renewals, store, 2) == [True, False, False, True, True, True, False, True, True]
    assert store.sent == [
        (("p:{0}:k:a", "p:{0}:k:c", "p:{0}:k:f", "i"), (30_000, ("mine", "taken", "other"))),
        (("p:{0}:k:b", "j"), (30_000, ("taken",))),
        (("p:{0}:k:d", "i"), (5_000, ("mine",))),
        (("p:{0}:k:e", "p:{0}:k:g"), (30_000, ("mine", "taken"))),
        (("p:{1}:k:h",), (30_000, ("mine",))),
        (("p:{0}:k:h",), (30_000, ("mine",))),
    ]


def test_merged_command_has_the_own_keys_of_each_hold_before_the_common_ones(store: Store) -> None:
    """For a kind of lock that needs several keys."""
    renewals = [
        replace(renewal(name), keys=(f"p:{{0}}:k:{name}", f"p:{{0}}:e:{name}", "i"), own_keys=2) for name in "ab"
    ]
    assert renew(renewals, store, 2) == [True, True]
    assert store.sent == [(("p:{0}:k:a", "p:{0}:e:a", "p:{0}:k:b", "p:{0}:e:b", "i"), (30_000, ("mine", "mine")))]


def test_renewal_of_a_record_is_a_command_of_its_own(store: Store) -> None:
    """A record is renewed by its version, not by a token."""
    touch = Command("record/touch", ("r",), TouchRecord(7, 30_000, 0), lambda reply: reply[0] == 1)
    assert renew([touch, renewal("a"), touch], store, 2) == [True, True, True]
    assert [type(args) for _, args in store.sent] == [TouchRecord, RenewLocks, TouchRecord]


def test_error_of_a_batch_is_raised_for_each_lock(store: Store) -> None:
    """[L9] Locks of other batches are renewed."""
    renewals = [renewal("a", "down"), renewal("b"), renewal("c", "down")]
    assert renew(renewals, store, 2) == [DOWN, True, DOWN]


def test_batch_is_bounded(store: Store) -> None:
    """The server executes nothing else during one command."""
    renewals = [
        renewal(str(number), "i", token="taken" if number % 3 else "mine") for number in range(2 * MAX_HOLDS + 50)
    ]
    assert renew(renewals, store, 2) == [number % 3 == 0 for number in range(2 * MAX_HOLDS + 50)]
    assert [len(keys) - 1 for keys, _ in store.sent] == [MAX_HOLDS, MAX_HOLDS, 50]

"""Mutations of latches, each without one of their rules: the simulation must report each of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from django_redis_locks.backends.memory import backend as memory
from django_redis_locks.backends.memory.store import Store
from django_redis_locks.primitives.shared.latch_commands import LatchReply, Verdict

Patch = pytest.MonkeyPatch


def requests_not_remembered(patch: Patch) -> None:
    """[L40] The copies of a request aren't recognized."""
    patch.setattr(Store, "remembers", lambda self, requests, nonce: False)


def changeless_requests_not_remembered(patch: Patch) -> None:
    """[L40] A late copy of a request that changed nothing changes a later latch."""
    for name in ("latch/set", "latch/count_down"):
        patch.setitem(memory._steps, name, partial(_remembered_if_it_changes, memory._steps[name]))


def _remembered_if_it_changes(step: Callable[..., Any], store: Store, keys: tuple[str, ...], args: Any) -> Any:
    def state() -> tuple[object, ...]:
        latch: Any = store.records.get(keys[0])
        return () if latch is None else (latch.fence, latch.left)

    before, nonces = state(), dict(store.requests.get(keys[3], {}))
    reply = step(store, keys, args)
    if state() == before:
        store.requests[keys[3]] = nonces
    return reply


def participants_not_remembered(patch: Patch) -> None:
    """[L40] A participant counts whenever it is passed."""
    real = memory._steps["latch/count_down"]
    patch.setitem(
        memory._steps,
        "latch/count_down",
        lambda store, keys, args: real(store, keys, args._replace(participant="")),
    )


def one_waiter_woken(patch: Patch) -> None:
    """[L40] The last count wakes one process."""
    patch.setattr(Store, "wake_all", Store.wake)


def latch_set_again_is_lost(patch: Patch) -> None:
    """A waiter takes an opened latch that was set again for one that has ended."""

    def verdict(self: LatchReply, known: int) -> Verdict:
        if known != self.generation:
            return Verdict.ENDED
        return Verdict.CLOSED if self.left else Verdict.OPEN

    patch.setattr(LatchReply, "verdict", verdict)


MUTATIONS: list[tuple[Callable[[Patch], None], str]] = [
    (requests_not_remembered, "counts twice"),
    (changeless_requests_not_remembered, "counts later"),
    (participants_not_remembered, "counts twice"),
    (one_waiter_woken, "waits although"),
    (latch_set_again_is_lost, "no latch ended"),
]
"""Each mutation with the messages that the first seed to detect it may report."""

"""The programs of a holder, stepped by hand: release, extension, inspection, force."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from django_redis_locks import Holder, LockBackendError, LockLost
from django_redis_locks.core import events, owners
from django_redis_locks.core.hold import Hold, State, validity
from django_redis_locks.primitives.wishes import Ask, Granted
from tests.unit.primitives.stepping import WORLD, a_lock, acquire, at, play, release

END = 100.0 + validity(10_000)
"""When the hold ends that was acquired at 100."""


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> list[events.Event]:
    heard: list[events.Event] = []
    monkeypatch.setattr(events, "_listeners", [heard.append])
    return heard


@pytest.fixture
def hold() -> Hold:
    """A hold that was acquired at 100, for ten seconds."""
    ask = Ask(0, owners.me(), None)
    story: list[tuple[str, Any]] = [("now", 100.0), ("lock/acquire A", Granted(7)), ("now", 100.0)]
    hold = acquire(a_lock(), ask, story)
    assert isinstance(hold, Hold)
    return hold


def leave(hold: Hold) -> None:
    assert hold.leave(next(iter(hold.inside)))


def begin(now: float, *, offered: bool = True) -> list[tuple[str, Any]]:
    """How a release begins at a time: within the lease the lock is offered to those who wait here, and nobody does."""
    offer = [("hand over A", False)] if offered and now < END else []
    return [("now", now), *offer]


def lost_answer(**about: Any) -> LockBackendError:
    return LockBackendError("no answer", unanswered=True, passing=True, **about)


@pytest.mark.parametrize(
    ("renew_until", "first"), [(0.0, []), (160.0, [("unwatch A", None)])], ids=["fixed", "renewed"]
)
def test_release_is_one_command_and_stops_the_renewal(
    hold: Hold, heard: list[events.Event], renew_until: float, first: list[tuple[str, Any]]
) -> None:
    """[L8] [H6] No renewal from before the first byte is sent; those who came meanwhile are woken after the answer."""
    hold.renew_until = renew_until
    leave(hold)
    story: list[tuple[str, Any]] = [
        *first,
        *begin(105.0),
        ("lock/free A", 1),
        ("freed", None),
    ]
    assert release(a_lock(), hold, story) is True
    assert hold.state is State.GONE
    assert heard == []


@pytest.mark.parametrize(
    ("answer", "joined", "then"),
    [(1, False, []), (1, True, ["freed"]), (2, False, ["freed, another woken"])],
    ids=["nobody", "somebody since", "another process"],
)
def test_release_without_local_waiters_offers_no_handover(
    hold: Hold, monkeypatch: pytest.MonkeyPatch, answer: int, joined: bool, then: list[str]
) -> None:
    """[H6] But who came while the release was on its way may have been told that the lock is busy; and another process
    that was told has the right to go first."""
    here = iter([False, joined])
    monkeypatch.setattr(WORLD, "queued", lambda place: next(here))
    leave(hold)
    story: list[tuple[str, Any]] = [("now", 105.0), ("lock/free A", answer), *((line, None) for line in then)]
    assert release(a_lock(), hold, story) is True


def test_release_after_an_unanswered_acquire_leaves_cleanup(hold: Hold) -> None:
    """[H2] [H3] A late copy of the acquire may come after the release: the token is swept, and nobody takes it over."""
    hold.unanswered = True
    leave(hold)
    story: list[tuple[str, Any]] = [
        *begin(105.0, offered=False),
        ("lock/free A", 1),
        ("freed", None),
        ("sweep A for 10", None),
    ]
    assert release(a_lock(), hold, story) is True


@pytest.mark.parametrize(
    ("now", "why"), [(105.0, "taken"), (END - 0.001, "taken"), (END, "expired"), (200.0, "expired")], ids=str
)
def test_release_of_a_lock_taken_by_others_raises_LockLost(
    hold: Hold, heard: list[events.Event], now: float, why: str
) -> None:
    """[L14] Without a lost answer it can only mean that the lease ended, or that somebody took the lock away."""
    leave(hold)
    with pytest.raises(LockLost, match=why) as caught:
        release(
            a_lock(),
            hold,
            [*begin(now), ("lock/free A", 0), ("freed", None)],
        )
    assert (caught.value.key, caught.value.name, caught.value.alias) == ("order:42", "order", "default")
    assert [event.why for event in heard if isinstance(event, events.Lost)] == [why]
    assert hold.state is State.GONE


def again(now: float, answer: bool) -> list[tuple[str, Any]]:
    """A release whose first copy went unanswered on a connection that had lain idle."""
    return [
        *begin(now),
        ("lock/free A", lost_answer(stale=True)),
        ("now", now),
        ("lock/free A", int(answer)),
        ("freed", None),
        ("sweep A for 10", None),
    ]


def test_release_not_owned_after_a_lost_answer_succeeds(hold: Hold, heard: list[events.Event]) -> None:
    """[H15] [L14] It is what success looks like the second time; it isn't confirmed."""
    leave(hold)
    assert release(a_lock(), hold, again(105.0, answer=False)) is False
    assert hold.state is State.GONE
    assert heard == []


def test_release_owned_after_a_lost_answer_is_confirmed(hold: Hold) -> None:
    """[H15] Only the first copy was lost, not the release."""
    leave(hold)
    assert release(a_lock(), hold, again(105.0, answer=True)) is True


def test_release_not_owned_after_a_lost_answer_and_the_lease_raises_LockLost(hold: Hold) -> None:
    """[H15] It was sent too late to be the reason."""
    leave(hold)
    with pytest.raises(LockLost, match="expired"):
        release(a_lock(), hold, again(END, answer=False))


def fail_to_release(hold: Hold, failure: LockBackendError) -> None:
    leave(hold)
    story: list[tuple[str, Any]] = [
        *begin(105.0),
        ("lock/free A", failure),
        ("now", 105.0),
        ("unwatch A", None),
        ("sweep A for 10", None),
        ("freed", None),
    ]
    with pytest.raises(LockBackendError) as caught:
        release(a_lock(), hold, story)
    assert caught.value is failure


@pytest.mark.parametrize("failure", [lost_answer(), LockBackendError("can't connect", passing=True)], ids=str)
def test_release_with_the_store_down_raises_and_keeps_the_state(hold: Hold, failure: LockBackendError) -> None:
    """[L15] [F12] The release goes to the janitor, the caller is told, and may try again."""
    fail_to_release(hold, failure)
    assert (failure.key, failure.name, failure.alias) == ("order:42", "order", "default")
    assert hold.state is State.RELEASING


@pytest.mark.parametrize("answer", [True, False])
def test_second_release_accepts_what_cleanup_did(hold: Hold, heard: list[events.Event], answer: bool) -> None:
    """[L15] [H15] "Not mine" is then the janitor's success, and no loss."""
    grant = next(iter(hold.inside))
    fail_to_release(hold, LockBackendError("can't connect", passing=True))
    assert hold.leave(grant)
    story: list[tuple[str, Any]] = [
        *begin(106.0, offered=False),
        ("lock/free A", int(answer)),
        ("freed", None),
    ]
    assert release(a_lock(), hold, story) is answer
    assert heard == []


def test_release_with_the_store_down_until_the_lease_ends_raises_LockLost(hold: Hold) -> None:
    """[L2] [L3] The local deadline tells, although nobody can be asked."""
    leave(hold)
    failure = lost_answer()
    with pytest.raises(LockLost, match="expired") as caught:
        release(
            a_lock(),
            hold,
            [
                *begin(109.0),
                ("lock/free A", failure),
                ("now", 111.0),
                ("unwatch A", None),
                ("sweep A for 10", None),
                ("freed", None),
            ],
        )
    assert caught.value.__cause__ is failure


@pytest.mark.parametrize("interruption", [KeyboardInterrupt(), asyncio.CancelledError()], ids=repr)
def test_release_interrupted_goes_on_in_the_background(hold: Hold, interruption: BaseException) -> None:
    """[L16] [X2] The janitor has the token, and the error passes."""
    leave(hold)
    with pytest.raises(type(interruption)) as caught:
        release(
            a_lock(),
            hold,
            [
                *begin(105.0),
                ("lock/free A", interruption),
                ("unwatch A", None),
                ("sweep A for 10", None),
                ("freed", None),
            ],
        )
    assert caught.value is interruption


# Extension


@pytest.mark.parametrize(
    ("lease", "deadline"),
    [(60_000, 105.0 + validity(60_000)), (1_000, END), (1, END)],
    ids=["longer", "shorter", "ask"],
)
def test_extend_never_shortens_the_lease(hold: Hold, lease: int, deadline: float) -> None:
    """[F10] [H2] The deadline counts from the sending, and never moves back."""
    play(a_lock().extending(hold, lease), [("now", 105.0), (f"lock/renew A {lease}", at(105.5, True))])
    assert hold.deadline == deadline


def test_extend_of_a_lost_lock_raises_LockLost(hold: Hold, heard: list[events.Event]) -> None:
    """[L3] It is told once, with the reason."""
    with pytest.raises(LockLost, match="taken"):
        play(a_lock().extending(hold, 60_000), [("now", 105.0), ("lock/renew A 60000", False)])
    assert [event.why for event in heard if isinstance(event, events.Lost)] == ["taken"]
    assert not hold.live


def test_extend_that_fails_changes_nothing(hold: Hold) -> None:
    """The lease is as it was, as far as anybody knows; a longer one than known harms nobody."""
    with pytest.raises(LockBackendError):
        play(a_lock().extending(hold, 60_000), [("now", 105.0), ("lock/renew A 60000", lost_answer()), ("now", 105.0)])
    assert hold.deadline == END
    assert hold.state is State.HELD


# Looking, and force


def test_looking_at_the_holder_is_one_command() -> None:
    """What the store tells is what is returned."""
    holder = Holder(7, 1.0, 2.0)
    assert play(a_lock().inspecting(), [("now", 100.0), ("lock/inspect", holder)]) is holder


def test_force_release_wakes_local_waiters_if_it_freed_the_lock() -> None:
    """[L24] [H3] All of them, also if another process was notified."""
    for fence, command in {None: "lock/force any", 7: "lock/force 7"}.items():
        for answer in (0, 1, 2):
            freed: list[tuple[str, Any]] = [("freed", None)] if answer else []
            assert play(a_lock().forcing(fence), [("now", 100.0), (command, answer), *freed]) is bool(answer)

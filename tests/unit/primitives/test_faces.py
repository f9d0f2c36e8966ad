"""The public methods over a modelled world: both faces ask for the same, and an exception that strikes anywhere leaves
nothing behind."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import pytest

from django_redis_locks import Grant, Lock, LockBackendError, LockError, LockLost
from django_redis_locks.core import clock, owners
from django_redis_locks.core.effects import (
    Command,
    Effect,
    Handed,
    HandOver,
    Leave,
    LineUp,
    Listen,
    Pause,
    Place,
    Seat,
    Standing,
    Sweep,
    Turn,
    Wait,
)
from django_redis_locks.core.hold import State
from django_redis_locks.core.owners import registry
from django_redis_locks.core.tuning import DEFAULT
from django_redis_locks.primitives.wishes import Busy, Granted
from tests.unit.primitives.stepping import PLACE, Teller, Unwatch, Watch, a_lock

LOST = partial(LockBackendError, "no answer", unanswered=True, passing=True)
DOWN = partial(LockBackendError, "can't connect", passing=True)
BUSY = Busy(1.0, None, Standing(7))


class Tale(NamedTuple):
    """What the store answers to the commands of an acquire and its release, and what the queue is like."""

    answers: list[Any]
    deaf: bool = False
    """The store's wake-ups don't reach this process."""
    inherits: bool = False
    """A lock is handed over to the one who acquires."""
    heirs: bool = False
    """Others wait behind him, so that he hands it over."""
    strangers: bool = False
    """Others wait who can't take it over from him."""
    calm: bool = False
    """Nobody waits, or did lately."""
    hand_overs: int = 0
    """As many times it was handed over before."""


STORIES = {
    "granted at once": Tale([Granted(7), 1]),
    "granted after a wait": Tale([BUSY, BUSY, Granted(7), 1]),
    "granted the second time": Tale([LOST, Granted(7), 1]),
    "busy after a lost answer": Tale([LOST, BUSY, Granted(7), 1]),
    "lost on the way back": Tale([Granted(7), LOST]),
    "lost while it was held": Tale([Granted(7), 0]),
    "granted where all is calm": Tale([Granted(7), 1], calm=True),
    "granted where it seemed calm": Tale([BUSY, BUSY, Granted(7), 1], calm=True),
    "calm, granted the second time": Tale([LOST, Granted(7), 1], calm=True),
    "calm, busy after a lost answer": Tale([LOST, BUSY, Granted(7), 1], calm=True),
    "calm, never reached": Tale([DOWN] * 20, calm=True),
    "never reached": Tale([DOWN] * 20),
    "never granted": Tale([BUSY] * 20),
    "heard after a while": Tale([BUSY, Granted(7), 2], deaf=True),
    "taken over": Tale([Granted(7, free=False), 1], inherits=True),
    "taken over the second time": Tale([LOST, Granted(7, free=False), 1], inherits=True),
    "stolen from the one before": Tale([BUSY, Granted(7), 1], inherits=True),
    "strangers wait": Tale([Granted(7), 1], strangers=True),
    "handed over": Tale([Granted(7)], heirs=True),
    "lined up": Tale([Granted(7), 2], heirs=True, hand_overs=16),
}


class Time:
    """Goes on a little whenever somebody looks."""

    def __init__(self) -> None:
        self.now = clock.now()

    def __call__(self) -> float:
        self.now += 0.001
        return self.now


TIME = Time()


@pytest.fixture(autouse=True)
def our_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "now", TIME)


class World:
    """Keeps account of what is left behind. ``strike`` is the effect at which an exception strikes, just before it is
    performed or just after."""

    tuning = DEFAULT

    def __init__(
        self, tale: Tale | list[Any], strike: int | None = None, after: bool = False, error: Any = None
    ) -> None:
        self.tale = tale if isinstance(tale, Tale) else Tale(tale)
        self.answers = list(self.tale.answers)
        self.strike, self.after, self.error = strike, after, error
        self.told: list[str] = []
        self.seats: set[Any] = set()
        self._watched: set[Any] = set()
        self.dirty: set[str] = set()
        """Tokens that may be in the store, and that nobody has."""
        self.swept: set[str] = set()
        self.given: Handed | None = None
        """What the heirs have."""
        self.inheritance = inheritance() if self.tale.inherits else None
        self.answered = False
        """The last question was."""
        self._teller = Teller()
        self.struck = False
        self.handlers = defaultdict(lambda: self._carry_out)
        self.ahandlers = defaultdict(lambda: self._acarry_out)

    def queued(self, place: Place) -> bool:
        assert place == PLACE
        return self.tale.heirs or self.tale.strangers

    def calm(self, seat: Seat) -> bool:
        assert seat.place == PLACE
        return self.tale.calm

    def cool(self, seat: Seat) -> bool:
        assert seat.place == PLACE
        return True

    def watch(self, hold: Any, prolong: Any, lease: int) -> None:
        self._carry_out(Watch(hold, prolong, lease))

    def unwatch(self, hold: Any) -> None:
        self._carry_out(Unwatch(hold))

    @property
    def watched(self) -> set[Any]:
        """The holds that the janitor goes on renewing."""
        return {hold for hold in self._watched if hold.state is State.HELD}

    def _carry_out(self, effect: Effect[Any]) -> Any:
        self.told.append(type(effect).__name__ if isinstance(effect, Wait | Listen) else self._teller.line(effect))
        here = not self.struck and len(self.told) - 1 == self.strike
        self.struck = self.struck or here
        question = isinstance(effect, Command) and effect.name == "lock/acquire"
        self.answered = self.answered and not question
        if here and not self.after:
            raise self.error
        try:
            reply = self._perform(effect)
        finally:
            if here:
                raise self.error
        self.answered = self.answered or question
        return reply

    async def _acarry_out(self, effect: Effect[Any]) -> Any:
        return self._carry_out(effect)

    def _perform(self, effect: Effect[Any]) -> Any:
        match effect:
            case Pause(seconds):
                TIME.now += seconds
            case Watch(hold):
                self._watched.add(hold)
            case Unwatch(hold):
                self._watched.discard(hold)
            case Sweep(delete=delete):
                self.dirty.discard(str(delete.args[0]))
                self.swept.add(str(delete.args[0]))
            case Command(name, _, args):
                return self._answer(name, str(args[0]))
            case _:
                return self._wait(effect)
        return None

    def _wait(self, effect: Effect[Any]) -> Any:
        match effect:
            case Wait(seat, until, pause, standing):
                self.seats.add(seat)
                self._hear(standing)
                TIME.now = min(until, TIME.now + (pause or 0.0))
                return Turn("" if self.tale.deaf else "inbox 0", 0, self.tale.heirs, self.inheritance)
            case Leave(seat, _, standing):
                self._hear(standing)
                self.seats.discard(seat)
            case HandOver(handed, home):
                assert home is owners.running_loop()
                if self.tale.heirs:
                    self.dirty.discard(handed.hold.token)
                    self.given = handed
                return self.tale.heirs
            case LineUp(home=home):
                assert home is owners.running_loop()
                return "inbox 0"
            case Listen():
                return True
        return None

    def _hear(self, standing: Standing | None) -> None:
        """What is told of the line was said by the store; it has what was handed over then."""
        if standing is not None:
            assert self.answered
            self.inheritance = None

    def _answer(self, name: str, token: str) -> Any:
        answer = self.answers.pop(0) if self.answers else 1
        if name == "lock/acquire" and answer is not DOWN:
            self.dirty.add(token)
        if callable(answer):
            raise answer()
        if isinstance(answer, Busy) or name == "lock/free":
            self.dirty.discard(token)
        return answer


def inheritance() -> Handed:
    """A lock that somebody of this process handed over."""
    grant = a_lock(World([Granted(6)])).acquire(timeout=0)
    assert grant is not None
    registry.forget(grant)
    hold = grant.hold
    hold.state = State.GONE
    lock = a_lock()
    return Handed(hold, lock._free, partial(lock._go_on, hold))


def use(lock: Lock) -> Grant | None:
    grant = lock.acquire(timeout=3)
    if grant is not None:
        grant.hold.hand_overs = lock.world.tale.hand_overs
        grant.release()
    return grant


async def ause(lock: Lock) -> Grant | None:
    grant = await lock.aacquire(timeout=3)
    if grant is not None:
        grant.hold.hand_overs = lock.world.tale.hand_overs
        await grant.arelease()
    return grant


def by_thread(lock: Lock) -> Any:
    return use(lock)


def by_task(lock: Lock) -> Any:
    return asyncio.run(ause(lock))


def live_grants() -> list[Grant]:
    """Grants that somebody might take for held. One whose release failed is kept, so that it may be released again."""
    grants = registry._at(PLACE)
    for grant in grants:
        registry.forget(grant)
    return [grant for grant in grants if grant.hold.live or not grant.given_back]


@pytest.fixture(autouse=True)
def forgetful() -> Iterator[None]:
    yield
    live_grants()


Drive = Callable[[Lock], Any]
both = pytest.mark.parametrize("drive", [by_thread, by_task], ids=["sync", "async"])
stories = pytest.mark.parametrize("tale", STORIES.values(), ids=STORIES)


@stories
def test_sync_and_async_methods_send_the_same_commands(tale: Tale) -> None:
    """[F25] acquire and aacquire, release and arelease yield the same list of effects."""
    told = []
    for drive in (by_thread, by_task):
        world = World(tale)
        try:
            outcome = repr(type(drive(a_lock(world, renew_for=60.0))))
        except LockError as error:
            outcome = repr(error)
        told.append((world.told, outcome))
    assert told[0] == told[1]
    assert len(told[0][0]) > 3


@both
@stories
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_exception_at_any_step_leaves_no_state(drive: Drive, tale: Tale, after: bool) -> None:
    """[L16] [H21] [X2] At every effect, before it and after it: no waiter, no renewal, no token without an owner, no grant.
    A task is struck by cancellation as well. [H3] What is handed over and cleaned up all the same isn't reported as a theft."""
    errors = (KeyboardInterrupt, SystemExit, asyncio.CancelledError)[: 2 + (drive is by_task)]
    calm = World(tale)
    with contextlib.suppress(LockError):
        drive(a_lock(calm, renew_for=60.0))
    for strike, error in itertools.product(range(len(calm.told)), errors):
        world = World(tale, strike, after, error(strike))
        with pytest.raises((error, LockError)) as caught:
            drive(a_lock(world, renew_for=60.0))
        where = f"{error.__name__} at {strike}, {world.told[strike]!r}: {world.told[strike:]}"
        assert world.struck, where
        assert caught.value is world.error or world.error in (caught.value.__context__, caught.value.__cause__), where
        assert (world.seats, world.watched, world.dirty, live_grants()) == (set(), set(), set(), []), where
        given = world.given
        if given is not None:
            given.gone()
            assert (given.hold.lost_why is None) is (given.hold.token in world.swept), where


@both
def test_release_that_failed_may_be_repeated(drive: Drive) -> None:
    """[L15] The grant is still its owner's to release, and is forgotten when that is answered."""
    lock = a_lock(World([Granted(7), DOWN, True]))

    async def story() -> Grant:
        sync = drive is by_thread
        grant = await _maybe((lock.acquire if sync else lock.aacquire)(timeout=0))
        release: Any = lock.release if sync else lock.arelease
        with pytest.raises(LockBackendError):
            await _maybe(release())
        await _maybe(release())
        return grant

    grant = asyncio.run(story())
    assert grant.given_back
    assert not registry.knows(PLACE)


@both
def test_with_block_ends_without_error_when_the_store_is_down(drive: Drive, caplog: pytest.LogCaptureFixture) -> None:
    """[F12] What was protected until now is fine: an ERROR is logged, and the janitor goes on releasing."""
    world = World([Granted(7), DOWN])
    lock = a_lock(world)

    async def story() -> None:
        if drive is by_thread:
            with lock:
                pass
        else:
            async with lock:
                pass

    asyncio.run(story())
    assert [record.levelname for record in caplog.records if record.name.endswith(".backend")] == ["ERROR"]
    assert world.dirty == set()
    assert world.told[-2].startswith("sweep")


@both
def test_open_lock_without_a_store_grants_without_protection(drive: Drive) -> None:
    """[F14] held is False, there is no fence, ensure_held() raises, and its release asks nobody."""
    world = World([DOWN] * 20)
    lock = a_lock(world, fail_open=True)
    grant = drive(lock)
    assert not grant.held
    assert grant.fence is None
    with pytest.raises(LockBackendError, match="no lock"):
        grant.ensure_held()
    assert not any(line.startswith("free ") for line in world.told)
    assert not registry.knows(PLACE)


@both
def test_closed_lock_without_a_store_and_open_lock_lost_later_raise(drive: Drive) -> None:
    """[F14] The default: a store that is down is an error. Open is about a store that is down at the beginning only."""
    with pytest.raises(LockBackendError, match="can't connect"):
        drive(a_lock(World([DOWN] * 20)))
    with pytest.raises(LockLost):
        drive(a_lock(World([Granted(7), False]), fail_open=True))


async def _maybe(result: Any) -> Any:
    return await result if inspect.isawaitable(result) else result

"""The story that every kind of lock tells, as programs: ask, wait, ask again, hold, release.

A kind adds its commands; ``base`` adds the public methods that run the programs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from ..core import owners
from ..core.constants import CAP
from ..core.effects import Command, Join, Leave, Now, Program, Seat, Sweep, Unwatch, Wait, Wake, Watch
from ..core.errors import LockBackendError, LockKeyError, LockLost
from ..core.grant import Hold, State, mint_id, validity
from .asking import Answer, asking

if TYPE_CHECKING:
    from ..core.effects import Performer, Place
    from ..core.grant import OnLost
    from ..core.holder import Holder

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Terms:
    """The terms on which a lock is taken, settled from the settings and the call site.

    Attributes:
        lease: milliseconds.
        wait: seconds; infinity waits for ever.
        renew_for: seconds for which the lease is renewed after it was acquired; 0 if not at all.
        fail_open: run without a lock while the store is down.
        index: list the lock among the held ones.
        metadata: which fields of the holder are stored.
    """

    lease: int
    wait: float
    renew_for: float
    fail_open: bool
    index: bool
    metadata: tuple[str, ...]
    on_lost: OnLost


@dataclass(frozen=True, slots=True)
class Granted:
    fence: int


@dataclass(frozen=True, slots=True)
class Busy:
    """Somebody else has it, for at most ``lease_left`` more seconds unless he renews it."""

    lease_left: float
    holder: Holder | None


@dataclass(frozen=True, slots=True)
class Foreign:
    """Under this key lives ``what``, which is no lock of this kind."""

    what: str


class Ask:
    """One wish to acquire. ``token`` is minted before the first attempt and kept by its retries."""

    __slots__ = ("grant", "hold", "home", "inner", "owner", "raises", "seat", "sent", "token", "wait", "waited")

    def __init__(self, wait: float, owner: owners.Owner, home: object, *, raises: bool = False) -> None:
        self.wait = wait
        self.owner = owner
        self.home = home
        self.raises = raises
        self.token = owners.mint_token()
        self.grant = mint_id()
        """The id of the grant to come."""
        self.inner: Hold | None = None
        """The hold of the caller that this wish re-enters."""
        self.waited = 0.0
        # What must not be left behind if the wish fails, wherever an exception strikes:
        self.seat: Seat | None = None
        self.sent = False
        self.hold: Hold | None = None


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Programs:
    """A lock that excludes by one key. Immutable: the state is in the store, in the queue and in the grants."""

    world: Performer
    place: Place
    keys: tuple[str, ...]
    key: str
    name: str
    alias: str
    terms: Terms
    reentrant: bool = False

    # What makes a kind of lock a kind: one command per step.

    def _try(self, ask: Ask) -> Command[Granted | Busy | Foreign]:
        raise NotImplementedError

    def _free(self, token: str) -> Command[bool]:
        raise NotImplementedError

    def _prolong(self, token: str, lease: int) -> Command[bool]:
        raise NotImplementedError

    def _inspect(self) -> Command[Holder | None]:
        raise NotImplementedError

    def _force(self, fence: int | None) -> Command[bool]:
        raise NotImplementedError

    def entering(self, ask: Ask) -> Program[Hold | Busy]:
        """Re-enter the caller's own hold, without the store unless this entry needs it for longer; else acquire."""
        hold = ask.inner
        if hold is not None and hold.held:
            yield from self._lasting(hold)
            if hold.enter(ask.grant):
                return hold
        return (yield from self.acquiring(ask))

    def _lasting(self, hold: Hold) -> Program[None]:
        """Let a hold last as long as an entry on these terms expects: until then, or renewed."""
        renew_for, lease = self.terms.renew_for, self.terms.lease
        if renew_for and hold.renew_until:
            return
        now = yield from Now()
        if hold.deadline < now + validity(lease):
            yield from self.extending(hold, lease)
        if renew_for:
            hold.renew_until = now + renew_for
            yield from Watch(hold, self._prolong(hold.token, lease), lease)

    def acquiring(self, ask: Ask) -> Program[Hold | Busy]:
        """Ask the store, wait, ask again, until it is granted or the caller's wait is over."""
        begin = yield from Now()
        give_up = begin + ask.wait
        verdict: Hold | Busy = Busy(0.0, None)
        seat: Seat | None = None
        turn = True
        pause: float | None = 0.0  # of whoever is next, if an exception strikes: it may have spent a wake-up
        try:
            if ask.wait > 0:
                seat = ask.seat = Seat(self.place, ask.home)
                yield from Join(seat)
                turn = yield from Wait(seat, give_up)
            now = begin
            while turn:
                verdict = yield from self._attempting(ask, give_up)
                if isinstance(verdict, Hold):
                    break
                now = yield from Now()
                if seat is None or now >= give_up:
                    break
                turn = yield from Wait(seat, give_up, min(CAP, verdict.lease_left))
            # the next one asks when it is woken, or when this one's lease is over
            pause = min(CAP, verdict.lease / 1000) if isinstance(verdict, Hold) else None
        finally:
            if seat is not None:
                yield from Leave(seat, pause)
                ask.seat = None
        ask.waited = (yield from Now()) - begin
        return verdict

    def _attempting(self, ask: Ask, give_up: float) -> Program[Hold | Busy]:
        """One answered attempt. Whatever it may leave behind in the store is handed to the janitor."""
        ask.sent = True
        try:
            answer = yield from self._answer(self._try(ask), give_up)
        except BaseException as failure:
            if not isinstance(failure, LockBackendError) or failure.unanswered:
                yield from self._sweeping(ask.token)
            ask.sent = False
            raise
        verdict = answer.reply
        if isinstance(verdict, Foreign):
            ask.sent = False
            raise self.misplaced(verdict)
        if isinstance(verdict, Busy):
            if answer.unanswered:  # a swept token is spent: the janitor would free what it is granted later
                yield from self._sweeping(ask.token)
                ask.token = owners.mint_token()
            ask.sent = False
            return verdict
        hold = self._hold(ask, verdict.fence, answer.sent, answer.unanswered)
        ask.hold = hold
        if hold.over:  # the answer took longer than the lease: no grant, and the token is spent
            yield from self._sweeping(ask.token)
            ask.hold = None
            ask.token = owners.mint_token()
            return Busy(0.0, None)
        if self.terms.renew_for or self.terms.on_lost is not None:
            yield from Watch(hold, self._prolong(hold.token, hold.lease), hold.lease)
        return hold

    def _hold(self, ask: Ask, fence: int | None, sent: float, unanswered: bool) -> Hold:
        return Hold(
            self.place,
            self.key,
            self.name,
            self.alias,
            ask.token,
            grant=ask.grant,
            fence=fence,
            lease=self.terms.lease,
            sent=sent,
            renew_for=self.terms.renew_for,
            owner=ask.owner,
            home=ask.home,
            on_lost=self.terms.on_lost,
            unanswered=unanswered,
        )

    def _sweeping(self, token: str) -> Program[None]:
        yield from Sweep(self.place, self._free(token), self.terms.lease / 1000)

    def releasing(self, hold: Hold) -> Program[bool]:
        """Free the lock if it is still this hold's. Returns whether the store confirmed it.

        After an unanswered attempt "not mine" is what success looks like the second time.
        """
        yield from Unwatch(hold)
        free = self._free(hold.token)
        in_time = (yield from Now()) < hold.deadline
        try:
            answer = yield from self._answer(free)
        except BaseException as failure:
            yield from self._sweeping(hold.token)
            hold.doubted = True
            hold.freed_in_time = hold.freed_in_time or in_time
            if isinstance(failure, LockBackendError) and hold.over:
                raise self._lost(hold, "expired") from failure
            raise
        hold.state = State.GONE
        yield from Wake(self.place)
        if hold.unanswered or answer.unanswered:
            yield from self._sweeping(hold.token)
        if answer.reply and hold.lost_why is None:  # who was told of a loss isn't told of a release
            return True
        if hold.lost_why is None and (hold.freed_in_time or (in_time and answer.unanswered)):
            return False
        raise self._lost(hold, "taken" if in_time else "expired")

    def extending(self, hold: Hold, lease: int) -> Program[None]:
        """Let the lease end so many milliseconds from now, or later if it did anyway."""
        answer = yield from self._answer(self._prolong(hold.token, lease))
        if not answer.reply:
            if hold.state is not State.HELD:  # by a release of this process, in another thread
                raise LockLost(f"lock {self.name!r} was released meanwhile", **self.about)
            raise self._lost(hold, "taken")
        hold.prolong(answer.sent, lease)

    def inspecting(self) -> Program[Holder | None]:
        return (yield from self._answer(self._inspect())).reply

    def forcing(self, fence: int | None) -> Program[bool]:
        """Free the lock whoever holds it, or only the hold with this fence."""
        freed = (yield from self._answer(self._force(fence))).reply
        yield from Wake(self.place)
        return freed

    def _answer(self, command: Command[R], until: float = 0.0) -> Program[Answer[R]]:
        try:
            return (yield from asking(command, until))
        except LockBackendError as failure:
            failure.key, failure.name, failure.alias = self.key, self.name, self.alias
            raise

    def _lost(self, hold: Hold, why: str) -> LockLost:
        hold.lose(why, (State.HELD, State.RELEASING, State.GONE))
        return LockLost(f"lock {self.name!r} was lost while it was held: {hold.lost_why}", **self.about)

    def misplaced(self, found: Foreign) -> LockKeyError:
        return LockKeyError(
            f"can't lock {self.name!r} of alias {self.alias!r}: its key holds {found.what}. "
            "Delete that, or choose another key or KEY_PREFIX",
            **self.about,
        )

    @property
    def about(self) -> dict[str, str | None]:
        """What every error says of the lock."""
        return {"key": self.key, "name": self.name, "alias": self.alias}

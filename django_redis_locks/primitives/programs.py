"""The story that every kind of lock tells, as programs: ask, wait, ask again, hold, release.

A kind adds its commands; ``base`` adds the public methods that run the programs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar, cast

from ..core import owners
from ..core.constants import HAND_OVERS
from ..core.effects import (
    Command,
    Freed,
    Handed,
    HandOver,
    LineUp,
    Now,
    Program,
    Seat,
    Sweep,
    Turn,
    Unwatch,
    Watch,
)
from ..core.errors import LockBackendError, LockKeyError, LockLost
from ..core.hold import Hold, State, validity
from .asking import Answer, asking
from .waiting import Outcome, waiting
from .wishes import Ask, Busy, Foreign, Granted, Terms

if TYPE_CHECKING:
    from ..core.effects import Performer, Place
    from ..core.holder import Holder
    from ..core.keys import LockKeys

R = TypeVar("R")


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Programs:
    """A lock that excludes by one key. Immutable: the state is in the store, in the queue and in the grants."""

    world: Performer
    place: Place
    keys: LockKeys
    key: str
    name: str
    alias: str
    terms: Terms
    reentrant: bool = False

    # What makes a kind of lock a kind: one command per step.

    def _try(self, ask: Ask, turn: Turn) -> Command[Granted | Busy | Foreign]:
        raise NotImplementedError

    def _free(self, token: str, address: str = "") -> Command[int]:
        """0: not this token's. 1: freed. 2: freed, and another process was told. ``address`` lines up again."""
        raise NotImplementedError

    def _prolong(self, token: str, lease: int) -> Command[bool]:
        raise NotImplementedError

    def _inspect(self) -> Command[Holder | None]:
        raise NotImplementedError

    def _force(self, fence: int | None) -> Command[int]:
        """As ``_free``."""
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
            try:
                yield from Watch(hold, self._prolong(hold.token, lease), lease)
            except BaseException:  # the next entry must not take it for a renewed one
                hold.renew_until = 0.0
                raise

    def acquiring(self, ask: Ask) -> Program[Hold | Busy]:
        """Ask the store, wait, ask again, until it is granted or the caller's wait is over."""
        begin = yield from Now()
        give_up = begin + ask.wait

        def attempt(turn: Turn) -> Program[Outcome[Hold | Busy]]:
            verdict = yield from self._attempting(ask, turn, give_up)
            if isinstance(verdict, Hold):  # the next one asks when it is woken, or when this one's lease is over
                return Outcome(verdict, True, verdict.lease / 1000)
            return Outcome(verdict, False, verdict.lease_left)

        seat = Seat(self.place, ask.home, self.keys.inbox) if ask.wait > 0 else None
        unasked: Hold | Busy = Busy(0.0, None)
        verdict = yield from waiting(ask, seat, give_up, attempt, unasked)
        ask.waited = (yield from Now()) - begin
        if verdict is unasked and seat is not None and seat.trouble.failure is not None:
            # it never was our turn, and whoever's it was found the store down
            raise self._named(LockBackendError(seat.trouble.failure, passing=True))
        return verdict

    def _attempting(self, ask: Ask, turn: Turn, give_up: float) -> Program[Hold | Busy]:
        """One answered attempt. Whatever it may leave behind in the store is handed to the janitor."""
        answer = yield from self._sending(ask, turn, give_up)
        verdict = answer.reply
        ask.standing = verdict.standing
        if turn.handed is not None and not answer.unanswered and (isinstance(verdict, Busy) or verdict.free):
            yield from self._stolen(turn.handed)
        if isinstance(verdict, Busy):
            if answer.unanswered:  # a swept token is spent: the janitor would free what it is granted later
                yield from self._sweeping(ask.token)
                ask.token = owners.mint_token()
            ask.sent = False
            return verdict
        hold = self._hold(ask, verdict.fence, answer.sent, answer.unanswered)
        if turn.handed is not None and verdict.standing.others:
            hold.hand_overs = turn.handed.hold.hand_overs + 1
        ask.hold = hold
        if hold.over:  # the answer took longer than the lease: no grant, and the token is spent
            yield from self._sweeping(ask.token)
            ask.hold = None
            ask.token = owners.mint_token()
            return Busy(0.0, None)
        if self.terms.renew_for or self.terms.on_lost is not None:
            yield from Watch(hold, self._prolong(hold.token, hold.lease), hold.lease)
        return hold

    def _sending(self, ask: Ask, turn: Turn, give_up: float) -> Program[Answer[Granted | Busy]]:
        ask.sent = True
        try:
            answer = yield from self._answer(self._try(ask, turn), give_up, ask.seat)
        except GeneratorExit:  # abandoned: whoever has the wish clears away
            raise
        except BaseException as failure:
            if not isinstance(failure, LockBackendError) or failure.unanswered:
                yield from self._sweeping(ask.token)
            ask.sent = False
            raise
        if isinstance(answer.reply, Foreign):
            ask.sent = False
            raise self.misplaced(answer.reply)
        return cast("Answer[Granted | Busy]", answer)

    def _stolen(self, handed: Handed) -> Program[None]:
        """What was handed over wasn't there any more, although its lease hadn't ended."""
        if not handed.doubtful and (yield from Now()) < handed.hold.deadline:
            handed.hold.lose("taken", (State.GONE,))

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

    def releasing(self, hold: Hold, home: object) -> Program[bool]:
        """Free the lock if it is still this hold's. Returns whether the store confirmed it.

        If others wait for it in this process it is handed over to them, and the store isn't asked. After an unanswered
        attempt "not mine" is what success looks like the second time.
        """
        yield from Unwatch(hold)
        in_time = (yield from Now()) < hold.deadline
        address = ""
        if in_time and not hold.unanswered and not hold.doubted and hold.lost_why is None:
            if hold.hand_overs < HAND_OVERS:
                if (yield from self._handing_over(hold, home)):
                    return True
            else:
                address = yield from LineUp(self.place, home)
        try:
            answer = yield from self._answer(self._free(hold.token, address))
        except GeneratorExit:  # as above
            raise
        except BaseException as failure:
            yield from self._sweeping(hold.token)
            yield from Freed(self.place, False, address)  # it may have been: who waits here asks
            hold.doubted = True
            hold.freed_in_time = hold.freed_in_time or in_time
            if isinstance(failure, LockBackendError) and hold.over:
                raise self._lost(hold, "expired") from failure
            raise
        yield from Freed(self.place, answer.reply > 1, address)
        if hold.unanswered or answer.unanswered:
            yield from self._sweeping(hold.token)
        hold.state = State.GONE  # not before: what is interrupted until here the caller does again
        if answer.reply and hold.lost_why is None:  # who was told of a loss isn't told of a release
            return True
        if hold.lost_why is None and (hold.freed_in_time or (in_time and answer.unanswered)):
            return False
        raise self._lost(hold, "taken" if in_time else "expired")

    def _handing_over(self, hold: Hold, home: object) -> Program[bool]:
        handed = Handed(hold, self._free)
        try:
            given = yield from HandOver(handed, home)
            if given:
                hold.state = State.GONE
        except BaseException:  # it may have been given: that the janitor deletes it is no theft
            handed.doubtful = True
            raise
        return given

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
        if fence is not None and type(fence) is not int:
            raise ValueError(
                f"fence must be an int, as grant.fence and holder.fence are, or None for whoever holds it, not {fence!r}"
            )
        answer = yield from self._answer(self._force(fence))
        freed = bool(answer.reply) or answer.unanswered  # by the attempt that nobody heard of
        if freed:
            yield from Freed(self.place, answer.reply > 1)
        return freed

    def _answer(self, command: Command[R], until: float = 0.0, seat: Seat | None = None) -> Program[Answer[R]]:
        try:
            return (yield from asking(command, until, None if seat is None else seat.trouble))
        except LockBackendError as failure:
            self._named(failure)
            raise

    def _named(self, failure: LockBackendError) -> LockBackendError:
        failure.key, failure.name, failure.alias = self.key, self.name, self.alias
        return failure

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

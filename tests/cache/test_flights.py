"""Threads that follow a flight: none is forgotten, whatever strikes one of them."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from math import inf
from typing import Any

import pytest

from django_redis_locks.cache import flights as module
from django_redis_locks.cache.flights import Flight, Flights, Landing
from django_redis_locks.core import clock
from django_redis_locks.core.wakeup import ThreadEvent
from tests.chaos.helpers import eventually
from tests.django.helpers import PATIENCE

CROWD = 12


class Crowd:
    """Threads that follow a flight."""

    def __init__(self) -> None:
        self.flights = Flights()
        self.flight, self.leads = self.flights.join("k")
        self.landing = Landing("value")
        self.pool = ThreadPoolExecutor(CROWD)
        self.waits: list[Future[Landing | None]] = []

    def come(self, number: int, until: float = inf) -> None:
        for _ in range(number):
            before = len(self.flight.gates)
            self.waits.append(self.pool.submit(self.flights.follow, self.flight, until))
            eventually(lambda before=before: len(self.flight.gates) > before)

    def land(self) -> None:
        self.flights.land("k", self.flight, self.landing)

    def all_have_it(self) -> bool:
        return [wait.result(PATIENCE) for wait in self.waits] == [self.landing] * len(self.waits)


@pytest.fixture
def crowd() -> Any:
    crowd = Crowd()
    yield crowd
    crowd.land()
    for gate in crowd.flight.gates:
        gate.set()
    crowd.pool.shutdown()


class Struck(ThreadEvent):
    """A signal strikes the first ones who came, in their sleep."""

    victims = 1
    made = asleep = 0

    def __init__(self) -> None:
        super().__init__()
        Struck.made += 1
        self._struck = Struck.made <= Struck.victims

    def wait(self, seconds: float) -> None:
        Struck.asleep += 1
        super().wait(seconds)
        if self._struck:
            raise KeyboardInterrupt


@pytest.mark.parametrize("victims", [1, CROWD - 1])
def test_one_who_is_struck_keeps_none_of_the_others(
    crowd: Crowd, monkeypatch: pytest.MonkeyPatch, victims: int
) -> None:
    """[S22] Ctrl-C, or a time limit, ends the wait of one thread and no other's."""
    monkeypatch.setattr(module, "ThreadEvent", Struck)
    for name, value in {"victims": victims, "made": 0, "asleep": 0}.items():
        monkeypatch.setattr(Struck, name, value)
    for number in range(CROWD):
        crowd.come(1)
        eventually(lambda number=number: Struck.asleep == number + 1)
    crowd.land()
    struck, crowd.waits = crowd.waits[:victims], crowd.waits[victims:]
    assert all(isinstance(wait.exception(PATIENCE), KeyboardInterrupt) for wait in struck)
    assert crowd.all_have_it()


def test_who_gives_up_is_forgotten(crowd: Crowd) -> None:
    """Else a load that takes for ever would gather gates."""
    crowd.come(2)
    assert crowd.flights.follow(crowd.flight, clock.now() + 0.01) is None
    crowd.come(2)
    assert len(crowd.flight.gates) == 4
    crowd.land()
    assert crowd.all_have_it()


def test_who_is_struck_before_he_sleeps_is_forgotten(crowd: Crowd, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same, between the entry and the sleep."""
    enter = Flights._enter

    def struck(flights: Flights, flight: Flight, gate: Any) -> None:
        enter(flights, flight, gate)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Flights, "_enter", struck)
        with pytest.raises(KeyboardInterrupt):
            crowd.flights.follow(crowd.flight, inf)
    assert not crowd.flight.gates
    crowd.come(3)
    crowd.land()
    assert crowd.all_have_it()


def test_packing_that_is_struck_forgets_nobody(crowd: Crowd, monkeypatch: pytest.MonkeyPatch) -> None:
    """The leader is interrupted while the value is packed for the others."""

    def pack() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(crowd.landing, "pack", pack)
    crowd.flight.followed = True
    crowd.come(3)
    with pytest.raises(KeyboardInterrupt):
        crowd.land()
    assert crowd.all_have_it()

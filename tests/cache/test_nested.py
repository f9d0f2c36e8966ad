"""Loads within loads, in orders in which each would wait for the other one: none waits for itself. Their loaders block, so
those who call are threads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from django_redis_locks.cache import get_or_load, get_or_load_many
from django_redis_locks.cache.flights import Flight
from tests.cache.conftest import HERE, at, flights_at, road_at
from tests.contract.matrix import PATIENCE, eventually


def ask(key: str, loader: Callable[[], Any]) -> Any:
    return get_or_load(key, loader, **at(HERE), ttl=60, wait=PATIENCE)


def inner(key: str) -> str:
    return ask(key, lambda: f"inner {key}")


def followed() -> bool:
    return any(flight.gates for flight in flights_at())


def test_two_who_come_to_wait_for_each_other_at_once(road: str, counted: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """[S18] If both looked first, and waited then, neither would see the other one."""
    begun, about_to_look = threading.Barrier(2), threading.Barrier(2)
    needs = Flight.needs

    def both_look(flight: Flight, others: list[Flight]) -> bool:
        about_to_look.wait(PATIENCE)
        return needs(flight, others)

    def outer(other: str) -> Callable[[], str]:
        def load() -> str:
            begun.wait(PATIENCE)
            return inner(other)

        return load

    monkeypatch.setattr(Flight, "needs", both_look)
    with ThreadPoolExecutor(2) as pool:
        both = [pool.submit(ask, "a", outer("b")), pool.submit(ask, "b", outer("a"))]
        assert {each.result(2 * PATIENCE) for each in both} <= {"inner a", "inner b"}
    assert counted()["timeouts"] == 0


def one(key: str, loader: Callable[[], Any]) -> Any:
    return ask(key, loader)


def many(key: str, loader: Callable[[], Any]) -> Any:
    keys = [key, f"{key}2"]
    return get_or_load_many(keys, lambda keys: dict.fromkeys(keys, loader()), **at(HERE), ttl=60, wait=PATIENCE)[key]


@pytest.mark.parametrize("within", [one, many])
def test_one_who_waits_within_a_load_of_its_own(road: str, counted: Any, within: Callable[..., Any]) -> None:
    """[S18] A loads C within itself, and C waits for B: so does A."""
    b_loads, c_loads = threading.Event(), threading.Event()

    def of_a() -> str:
        assert b_loads.wait(PATIENCE)
        return str(within("c", of_c))

    def of_c() -> str:
        c_loads.set()
        return inner("b")

    def of_b() -> str:
        b_loads.set()
        assert c_loads.wait(PATIENCE)
        eventually(followed)
        return inner("a")

    with ThreadPoolExecutor(2) as pool:
        both: list[Future[Any]] = [pool.submit(ask, "a", of_a), pool.submit(ask, "b", of_b)]
        assert [each.result(2 * PATIENCE) for each in both] == ["inner a"] * 2
    assert (counted()["nested"], counted()["timeouts"]) == (1, 0)


def test_who_has_waited_within_a_load_waits_no_longer(road: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """[S18] Also one who was interrupted: others may wait for that load again."""
    b_loads, go = threading.Event(), threading.Event()
    left: list[list[Flight]] = []

    def of_a() -> str:
        with pytest.raises(TimeoutError):
            get_or_load("b", lambda: "mine", **at(HERE), ttl=60, wait=PATIENCE)
        (flight,) = (flight for key, flight in road_at(HERE).flights._flying.items() if "a" in str(key))
        left.append(flight.waits_for)
        return "a"

    def of_b() -> str:
        b_loads.set()
        assert go.wait(PATIENCE)
        return "b"

    def struck(*args: Any, **kwargs: Any) -> Any:
        raise TimeoutError  # as a time limit does, wherever it strikes

    with ThreadPoolExecutor(1) as pool:
        loading = pool.submit(ask, "b", of_b)
        assert b_loads.wait(PATIENCE)
        monkeypatch.setattr(road_at(HERE).flights, "follow", struck)
        assert ask("a", of_a) == "a"
        go.set()
        assert loading.result(PATIENCE) == "b"
    assert left == [[]]

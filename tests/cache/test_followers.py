"""What callers get that share one load of their process."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from django_redis_locks.cache import LoadContext, get_or_load
from tests.cache.backends import HERE, THERE, at
from tests.cache.callers import Callers
from tests.contract.matrix import PATIENCE, eventually
from tests.probes.cache import delay_copies, followers, write_guard


def test_follower_gets_a_copy_of_its_own(callers: Callers) -> None:
    """[S48] What one caller changes isn't changed for the others."""
    loading = callers.begin(lambda: {"items": []})
    (following,) = callers.follow(loading)
    loading.finish()["items"].append(1)
    assert following.result(PATIENCE).value == {"items": []}


def test_follower_gets_the_same_object_with_share(callers: Callers) -> None:
    """[S48] Large values that no caller changes aren't copied."""
    loading = callers.begin(lambda: {"items": []}, share=True)
    (following,) = callers.follow(loading, share=True)
    assert loading.finish() is following.result(PATIENCE).value


def test_followers_get_the_exception_of_the_loader(callers: Callers) -> None:
    """[S13] As each of them would have raised it."""
    loading = callers.begin(ValueError("no rates today"))
    following = callers.follow(loading, 3)
    with pytest.raises(ValueError, match="no rates today"):
        loading.finish()
    for future in following:
        with pytest.raises(ValueError, match="no rates today"):
            future.result(PATIENCE)
    assert loading.loader.calls == 1


class Row:
    """Equal by its key, as a model's instances are."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Row)

    def __hash__(self) -> int:
        return 1


def test_default_is_the_callers_own_object(cache_pair: str) -> None:
    with write_guard("k", **at(HERE)):
        for default in (Row(), Row()):
            options: dict[str, Any] = {"wait": 0, "on_conflict": "default", "default": default}
            assert get_or_load("k", lambda: 1, **at(THERE), **options) is default


def unreadable() -> None:
    raise TypeError("it can't be read")


class Odd:
    """It can be pickled, but not read again."""

    def __reduce__(self) -> Any:
        return unreadable, ()


def leader_and_follower(value: Any, use: Any) -> list[Any]:
    """What both make of a value that isn't stored."""
    gate = threading.Event()

    def loader(context: LoadContext) -> Any:
        assert gate.wait(PATIENCE)
        context.skip_store()
        return value()

    with ThreadPoolExecutor(2) as pool:
        both = [pool.submit(lambda: use(get_or_load("k", loader, **at(HERE), ttl=60))) for _ in range(2)]
        eventually(lambda: followers(**at(HERE)))
        gate.set()
        return [each.result(PATIENCE) for each in both]


def test_follower_gets_the_leaders_object_if_it_cannot_be_read_again(cache_pair: str) -> None:
    """What was loaded is never turned into an exception."""
    assert leader_and_follower(Odd, type) == [Odd, Odd]


def test_follower_does_not_see_what_the_leader_has_changed(cache_pair: str, monkeypatch: pytest.MonkeyPatch) -> None:
    changed = threading.Event()
    delay_copies(monkeypatch, lambda: changed.wait(PATIENCE))

    def change(value: list[str]) -> list[str]:
        seen = list(value)
        value.append("changed")
        changed.set()
        return seen

    assert leader_and_follower(lambda: ["value"], change) == [["value"], ["value"]]

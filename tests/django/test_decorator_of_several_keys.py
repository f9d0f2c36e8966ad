"""`@redis_lock` with several keys: all of their locks, or none."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.test import RequestFactory

from django_redis_locks import (
    LockAlreadyHeld,
    LockKeyError,
    LockNotAcquired,
    MultiGrant,
    current_grant,
    locks,
    redis_lock,
)
from tests.django.helpers import held_elsewhere, in_thread, result_of

KEYS = ["account:{src}", "account:{dst}"]


@redis_lock(key=KEYS, expire=20)
def transfer(src: int, dst: int, inner: Callable[[], Any] = lambda: None) -> Any:
    return inner()


@redis_lock(key=KEYS, expire=20)
async def atransfer(src: int, dst: int, inner: Callable[[], Any] = lambda: None) -> Any:
    return inner()


@redis_lock(key=lambda request, pks: [f"order:{pk}" for pk in pks], expire=20)
def pay(request: HttpRequest, pks: list[int]) -> HttpResponse:
    return HttpResponse()


def held() -> set[str]:
    return {f"account:{n}" for n in range(4) if locks.lock(f"account:{n}").locked()}


def fences() -> dict[str, Any]:
    grant = current_grant()
    assert isinstance(grant, MultiGrant)
    return dict(grant.fences)


@pytest.mark.parametrize("call", [transfer, atransfer], ids=["sync", "async"])
def test_call_has_all_locks_or_none(call: Any, store: str) -> None:
    """[L38] In any order, also if a call names one key twice."""
    assert result_of(call, 1, 2, lambda: in_thread(held)) == {"account:1", "account:2"}
    assert set(result_of(call, 1, 2, fences)) == {"account:1", "account:2"}
    assert result_of(call, 3, 3, lambda: in_thread(held)) == {"account:3"}
    with held_elsewhere("account:2"):
        with pytest.raises(LockNotAcquired, match=r"account:\{src\}, account:\{dst\}"):
            result_of(call, 1, 2)
        assert held() == {"account:2"}
        assert result_of(call, 1, 3, lambda: in_thread(lambda: outcome_of(2, 1))) == "busy"
    assert held() == set()
    with pytest.raises(LockAlreadyHeld):
        transfer(1, 2, lambda: transfer(2, 3))


def outcome_of(src: int, dst: int) -> str:
    try:
        transfer(src, dst)
    except LockNotAcquired:
        return "busy"
    return "done"


def test_view_whose_callable_names_several_keys_is_refused_if_one_is_busy(store: str, rf: RequestFactory) -> None:
    with held_elsewhere("order:2", expire=40):
        assert pay(rf.get("/"), [1, 3]).status_code == 200
        refused = pay(rf.get("/"), [1, 2])
        assert (refused.status_code, refused["Retry-After"]) == (409, "40")
    for wrong in ([], ["a", ""], ["a", 5], {"a", "b"}):
        with pytest.raises(LockKeyError, match="must return a str, or a list of them, not"):
            redis_lock(key=lambda wrong=wrong: wrong)(lambda: None)()


@pytest.mark.databases("sqlite")
def test_locks_are_kept_until_COMMIT_and_entered_again(log: Any) -> None:
    """[D2] By a call with other keys, too; those that are new to the transaction are acquired."""
    with transaction.atomic():
        transfer(1, 2)
        transfer(2, 3)
        transfer(2, 1)
        assert held() == {"account:1", "account:2", "account:3"}
        with pytest.raises(LockNotAcquired):
            in_thread(lambda: transfer(3, 0))
    assert held() == set()


@pytest.mark.parametrize("kind", ["fair", "read", "semaphore"])
def test_kind_options_and_name_are_those_of_each_lock(kind: Any, memory_locks: Any) -> None:
    """`on_lost` is called once for all of them."""
    lost: list[Any] = []
    memory_locks(LOCKS={"transfer": {"EXPIRE": 7}})
    limit: Any = {"limit": 2} if kind == "semaphore" else {}

    @redis_lock(key=KEYS, kind=kind, name="transfer", reentrant=True, on_lost=lost.append, **limit)
    def work(src: int, dst: int, depth: int = 1) -> Any:
        if depth:
            return work(dst, src, depth - 1)
        grant: Any = current_grant()
        assert 6 < grant.remaining() <= 7
        assert {each.name for each in grant.grants.values()} == {"transfer"}
        return {type(each.lock).__name__ for each in grant.grants.values()}

    assert work(1, 2) == {{"fair": "FairLock", "read": "ReadLock", "semaphore": "Semaphore"}[kind]}
    assert asyncio.iscoroutinefunction(work) is False
    assert lost == []


def test_wrong_lists_are_refused_at_decoration() -> None:
    for key in ([], ["a", 5], {"a", "b"}, ["{nothing}"], ["a", "{"]):
        with pytest.raises(TypeError):
            redis_lock(key=key)(lambda src: None)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="auto_release=False is for one key"):
        redis_lock(key=KEYS, expire=5, auto_release=False)

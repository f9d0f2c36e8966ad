"""Where a value comes from: built-in < alias < LOCKS[name] < call site. And what no face lets in."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from math import inf, nan
from typing import Any

import pytest
from django.http import HttpResponse
from django.test import RequestFactory

from django_redis_locks import (
    Grant,
    InvalidLockBackend,
    Lock,
    LockAlreadyHeld,
    LockBackendError,
    LockLost,
    LockNotAcquired,
    current_grant,
    locks,
    redis_lock,
)
from tests.django.helpers import AT_ONCE, MEMORY, PATIENCE, held_elsewhere, in_thread, until

FIELDS = ("host", "pid", "thread", "name")

# option at the call site, attribute of the terms, built-in; then for alias, LOCKS and call site: what is set, what comes
# of it
LEVELS: list[tuple[str, str, Any, list[tuple[str, Any, Any]]]] = [
    (
        "expire",
        "lease",
        30_000,
        [("EXPIRE", 20, 20_000), ("EXPIRE", 9.5, 9500), ("expire", timedelta(seconds=5), 5000)],
    ),
    ("wait", "wait", 10.0, [("WAIT", 4, 4.0), ("WAIT", timedelta(seconds=3), 3.0), ("wait", -1, inf)]),
    ("renew", "renew_for", 3600.0, [("MAX_HOLD", 1800, 1800.0), ("RENEW", False, 0.0), ("renew", True, 1800.0)]),
    ("max_hold", "renew_for", 3600.0, [("MAX_HOLD", 1800, 1800.0), ("MAX_HOLD", timedelta(seconds=900), 900.0)]),
    (
        "on_backend_error",
        "fail_open",
        False,
        [("ON_BACKEND_ERROR", "open", True), ("ON_BACKEND_ERROR", "closed", False), ("on_backend_error", "open", True)],
    ),
    ("metadata", "metadata", FIELDS, [("METADATA", ["pid", "host"], ("host", "pid")), ("METADATA", [], ())]),
]
CASES = [
    pytest.param(attribute, builtin, steps[:level], id=f"{option}-{level}")
    for option, attribute, builtin, steps in LEVELS
    for level in range(len(steps) + 1)
]


@pytest.mark.parametrize(("attribute", "builtin", "steps"), CASES)
@pytest.mark.parametrize("kind", ["lock", "rlock"])
def test_every_level(settings: Any, kind: str, attribute: str, builtin: Any, steps: list[tuple[str, Any, Any]]) -> None:
    """[F9] Each level wins over those before it, and another name isn't touched by LOCKS."""
    alias, name, site = ([{key: value} for key, value, _ in steps] + [{}] * 3)[:3]
    settings.REDIS_LOCKS = {"default": {"BACKEND": MEMORY, **alias, "LOCKS": {"order": name}}}
    expected = steps[-1][2] if steps else builtin
    lock = getattr(locks, kind)("order:5", **site)
    assert getattr(lock.terms, attribute) == expected
    if not site:
        other = getattr(locks, kind)("cart:5")
        assert getattr(other.terms, attribute) == (steps[0][2] if alias else builtin)


class TestNames:
    @pytest.mark.parametrize(
        ("key", "name", "lease"),
        [
            ("order:5", None, 20_000),
            ("order", None, 20_000),
            ("orders:5", None, 30_000),
            ("cart:5", "order", 20_000),
            ("order:5", "cart", 30_000),
            ("a:order", None, 30_000),
        ],
    )
    def test_of_a_lock_object(self, memory_locks: Any, key: str, name: str | None, lease: int) -> None:
        """A lock's name in LOCKS is what it is given, or its key up to the first colon."""
        memory_locks(LOCKS={"order": {"EXPIRE": 20}})
        assert locks.lock(key, name=name).terms.lease == lease

    @pytest.mark.parametrize(
        ("options", "lease"),
        [({"key": "order:{pk}"}, 20), ({"key": "order:{pk}", "name": "cart"}, 10), ({"name": "cart"}, 10), ({}, 5)],
    )
    def test_of_a_call(self, memory_locks: Any, options: dict[str, Any], lease: int) -> None:
        """A decorator's name is what it is given, or its template as it stands, or the function's."""
        memory_locks(
            LOCKS={
                "order:{pk}": {"EXPIRE": 20},
                "cart": {"EXPIRE": 10},
                f"{__name__}.lease_of_call": {"EXPIRE": 5},
                "order": {"EXPIRE": 1},
            }
        )
        assert redis_lock(**options)(lease_of_call)(7) == lease


def lease_of_call(pk: int) -> int:
    grant = current_grant()
    assert grant is not None
    return grant.hold.lease // 1000


class TestRenewal:
    """[F8]"""

    @pytest.mark.parametrize(
        ("entry", "site", "renewed"),
        [
            ({}, {}, True),
            ({"EXPIRE": 5}, {}, True),
            ({"LOCKS": {"order": {"EXPIRE": 5}}}, {}, True),
            ({}, {"expire": 5}, False),
            ({"EXPIRE": 5}, {"expire": 5}, False),
            ({}, {"expire": 5, "renew": True}, True),
            ({}, {"renew": False}, False),
            ({"EXPIRE": 5}, {"renew": False}, False),
            ({"LOCKS": {"order": {"RENEW": False}}}, {}, False),
            ({"LOCKS": {"order": {"RENEW": False}}}, {"renew": True}, True),
            ({"LOCKS": {"order": {"RENEW": True}}}, {"expire": 5}, True),
            ({"LOCKS": {"order": {"RENEW": True}}}, {"expire": 5, "renew": False}, False),
            ({"LOCKS": {"order": {"EXPIRE": 5}}}, {"expire": 7}, False),
            ({}, {"wait": 3}, True),
        ],
    )
    @pytest.mark.parametrize("face", ["lock", "decorator"])
    def test_who_is_renewed(
        self, memory_locks: Any, face: str, entry: dict[str, Any], site: dict[str, Any], renewed: bool
    ) -> None:
        """[F8] Only `expire` at the call site turns renewal off, unless `renew` says otherwise there or in LOCKS."""
        memory_locks(**entry)
        if face == "lock":
            with locks.lock("order:5", **site) as grant:
                assert bool(grant.hold.renew_until) is renewed
        else:
            assert redis_lock("order:5", name="order", **site)(is_renewed)() is renewed

    def test_for_how_long(self, memory_locks: Any) -> None:
        """MAX_HOLD of LOCKS counts too where the call site turns renewal on again."""
        memory_locks(MAX_HOLD=1800, LOCKS={"order": {"MAX_HOLD": 900, "RENEW": False}})
        assert locks.lock("order").terms.renew_for == 0.0
        assert locks.lock("order", renew=True).terms.renew_for == 900.0
        assert locks.lock("order", expire=5, renew=True).terms.renew_for == 900.0
        assert locks.lock("cart", expire=5, renew=True).terms.renew_for == 1800.0

    @pytest.mark.usefixtures("often")
    def test_in_fact(self, memory_locks: Any) -> None:
        """[F8] An alias's short EXPIRE is outlived, the same lease given at the call site is not."""
        memory_locks(EXPIRE=9)
        with locks.lock("renewed") as renewed:
            fixed = locks.lock("fixed", expire=0.5, wait=PATIENCE).acquire()
            until(lambda: fixed.lost and not locks.lock("fixed").locked())
            end = renewed.hold.deadline
            until(lambda: renewed.hold.deadline > end)
            renewed.ensure_held(confirm=True)
            with pytest.raises(LockLost):
                fixed.release()

    def test_max_hold_is_not_the_call_sites(self) -> None:
        """MAX_HOLD stands in the settings only."""
        with pytest.raises(TypeError, match="max_hold"):
            locks.lock("order", max_hold=5)  # type: ignore[call-arg]


def is_renewed() -> bool:
    grant = current_grant()
    assert grant is not None
    return bool(grant.hold.renew_until)


class TestTheDecoratorsWait:
    """[F9]"""

    @pytest.mark.parametrize(
        ("entry", "site", "expected"),
        [
            ({}, {}, 0.0),
            ({"WAIT": 7}, {}, 0.0),
            ({"WAIT": 7, "LOCKS": {"order": {"WAIT": 3}}}, {}, 3.0),
            ({"LOCKS": {"order": {"WAIT": -1}}}, {}, inf),
            ({"LOCKS": {"order": {"WAIT": 0}}}, {"wait": 5}, 5.0),
            ({"LOCKS": {"order": {"WAIT": 3}}}, {"wait": 0}, 0.0),
            ({"LOCKS": {"order": {"EXPIRE": 3}}}, {}, 0.0),
            ({"LOCKS": {"cart": {"WAIT": 3}}}, {}, 0.0),
            ({}, {"wait": timedelta(seconds=2)}, 2.0),
            ({}, {"wait": -1}, inf),
        ],
    )
    @pytest.mark.parametrize("asynchronous", [False, True])
    def test_where_it_comes_from(
        self,
        memory_locks: Any,
        monkeypatch: pytest.MonkeyPatch,
        entry: dict[str, Any],
        site: dict[str, Any],
        expected: float,
        asynchronous: bool,
    ) -> None:
        """[F9] It fails at once, unless LOCKS[name] or the call site says otherwise; the alias's WAIT isn't for it."""
        memory_locks(**entry)
        waits = []
        acquire, aacquire = Lock.acquire, Lock.aacquire

        def spy(lock: Lock) -> Grant | None:
            waits.append(lock.terms.wait)
            return acquire(lock)

        async def aspy(lock: Lock) -> Grant | None:
            waits.append(lock.terms.wait)
            return await aacquire(lock)

        monkeypatch.setattr(Lock, "acquire", spy)
        monkeypatch.setattr(Lock, "aacquire", aspy)
        decorate = redis_lock("order:5", name="order", **site)
        if asynchronous:
            asyncio.run(decorate(anything)())
        else:
            decorate(lambda: None)()
        assert waits == [expected]

    def test_at_once(self, memory_locks: Any) -> None:
        """[F9] … in fact."""
        memory_locks(WAIT=-1)
        with held_elsewhere("order"), pytest.raises(LockNotAcquired) as raised:
            redis_lock("order")(lambda: None)()
        assert raised.value.waited < AT_ONCE


async def anything() -> None:
    pass


def weekday(*args: object) -> bool:
    return bool(args)


CALLS: list[tuple[str, Any, Any, Any, dict[str, Any]]] = [
    ("reentrant", True, True, False, {}),
    ("auto_release", False, False, True, {"EXPIRE": 5}),
    ("methods", ["post"], {"POST"}, {"PUT"}, {}),
    ("condition", f"{__name__}.weekday", weekday, anything, {}),
    ("condition", weekday, weekday, anything, {}),
    ("status", 423, 423, 429, {}),
    ("retry_after", False, False, 7, {}),
]
"""Option; what LOCKS says and what that means; what the call site says; what LOCKS must say besides."""


class TestTheDecoratorsOwn:
    """What only the decorator has: built-in < LOCKS[name] < call site."""

    @pytest.mark.parametrize(("option", "named", "said", "site", "more"), CALLS)
    def test_every_level(
        self, memory_locks: Any, option: str, named: Any, said: Any, site: Any, more: dict[str, Any]
    ) -> None:
        """[D53] Each level wins over those before it, and another name isn't touched by LOCKS."""
        memory_locks(LOCKS={"order": {option.upper(): named, **more}})

        def chosen(name: str, **options: Any) -> Any:
            plan = redis_lock("order:5", **options).keywords["plan"]  # type: ignore[attr-defined]
            return getattr(plan.calls_of(locks["default"], name), option)

        assert chosen("cart") is None
        assert chosen("order") == said
        assert chosen("order", **{option: site}) == chosen("cart", **{option: site}) == site

    def test_lock_objects_have_none_of_it(self, memory_locks: Any) -> None:
        """A lock object of that name is what it was."""
        memory_locks(
            LOCKS={"order": {"REENTRANT": True, "AUTO_RELEASE": True, "METHODS": ["POST"], "CONDITION": weekday}}
        )
        with locks.lock("order"), pytest.raises(LockAlreadyHeld):
            locks.lock("order").acquire()
        assert not locks.lock("order").locked()

    def test_in_use(self, memory_locks: Any, rf: RequestFactory) -> None:
        """What LOCKS says takes effect, and at the next call when it changes."""
        view = redis_lock("order")(lambda request: HttpResponse())
        with held_elsewhere("order"):
            assert view(rf.get("/")).status_code == 409
        memory_locks(LOCKS={"order": {"METHODS": ["POST"], "STATUS": 423, "RETRY_AFTER": 7}})
        with held_elsewhere("order"):
            assert view(rf.get("/")).status_code == 200
            refused = view(rf.post("/"))
            assert (refused.status_code, refused["Retry-After"]) == (423, "7")
        memory_locks(LOCKS={"order": {"CONDITION": f"{__name__}.weekday"}})
        with held_elsewhere("order"), pytest.raises(LockNotAcquired):
            redis_lock("order")(lambda x: x)(5)
        memory_locks(LOCKS={"order": {"REENTRANT": True}})
        with locks.lock("order"):
            assert view(rf.get("/")).status_code == 200


class TestInUse:
    """What the other values do once they have been chosen."""

    def test_metadata(self, memory_locks: Any) -> None:
        """[F18] Only what METADATA names is stored."""
        memory_locks(METADATA=["pid"], LOCKS={"order": {"METADATA": ["host", "name"]}, "cart": {"METADATA": []}})
        found = {}
        for key in ("x:1", "order:1", "cart:1"):
            with locks.lock(key) as grant:
                holder = locks.lock(key).holder()
                assert holder is not None
                assert holder.fence == grant.fence
                found[key] = {field for field in FIELDS if getattr(holder, field) is not None}
        assert found == {"x:1": {"pid"}, "order:1": {"host", "name"}, "cart:1": set()}

    @pytest.mark.parametrize(
        ("entry", "site", "opened"),
        [
            ({}, {}, False),
            ({"ON_BACKEND_ERROR": "open"}, {}, True),
            ({"ON_BACKEND_ERROR": "open", "LOCKS": {"order": {"ON_BACKEND_ERROR": "closed"}}}, {}, False),
            ({"LOCKS": {"order": {"ON_BACKEND_ERROR": "open"}}}, {}, True),
            ({"LOCKS": {"order": {"ON_BACKEND_ERROR": "open"}}}, {"on_backend_error": "closed"}, False),
            ({}, {"on_backend_error": "open"}, True),
        ],
    )
    def test_on_backend_error(
        self, settings: Any, closed_port: int, entry: dict[str, Any], site: dict[str, Any], opened: bool
    ) -> None:
        """[F14] "open" goes on without a lock and says so in the grant, "closed" raises."""
        settings.REDIS_LOCKS = {"default": {"LOCATION": f"redis://127.0.0.1:{closed_port}/0", **entry}}
        lock = locks.lock("order:5", wait=0, **site)

        def section() -> tuple[bool, object]:
            with lock as grant:
                with pytest.raises(LockBackendError, match="there is no lock"):
                    grant.ensure_held()
                return grant.held, grant.fence

        if opened:
            assert in_thread(section) == (False, None)
        else:
            with pytest.raises(LockBackendError, match="can't reach"):
                in_thread(section)

    def test_key_prefix(self, settings: Any, redis_url: str) -> None:
        """KEY_PREFIX begins every key that the store sees."""
        import redis

        settings.REDIS_LOCKS = {"default": {"LOCATION": redis_url, "KEY_PREFIX": "shop"}}
        with locks.lock("order:5"), redis.Redis.from_url(redis_url) as client:
            keys = client.keys()
            assert b"shop:{0}:k:order:5" in keys
            assert all(key.startswith(b"shop:") for key in keys)

    @pytest.mark.parametrize("index", [True, False])
    def test_index(self, settings: Any, redis_url: str, index: bool) -> None:
        """INDEX lists the held locks, or not."""
        import redis

        settings.REDIS_LOCKS = {"default": {"LOCATION": redis_url, "INDEX": index}}
        with locks.lock("order:5"), redis.Redis.from_url(redis_url) as client:
            assert bool(client.exists("lock:{0}:index")) is index


# [F2]: what no face lets in


def brief(value: object) -> str:
    return type(value).__name__ if type(value) is object else repr(value)[:12]


NO_TIME = [True, False, "5", b"5", [], Decimal(5), object(), nan, inf, -inf, 10**400, -2, -0.5, timedelta(seconds=-1)]
NO_LEASE = [*NO_TIME, -1, 0, 0.0, timedelta(0), 0.009, timedelta(days=4000)]


def extended(value: Any) -> None:
    with locks.lock("order") as grant:
        before = grant.remaining()
        try:
            grant.extend(value)
        finally:
            grant.ensure_held(confirm=True)
            assert before - 5 < grant.remaining() <= before


def aextended(value: Any) -> None:
    async def story() -> None:
        async with locks.lock("order") as grant:
            await grant.aextend(value)

    asyncio.run(story())


LEASE_FACES: dict[str, Callable[[Any], object]] = {
    "lock": lambda value: locks.lock("order", expire=value),
    "lock-of-alias": lambda value: locks["default"].lock("order", expire=value),
    "rlock": lambda value: locks.rlock("order", expire=value),
    "rlock-of-alias": lambda value: locks["default"].rlock("order", expire=value),
    "decorator": lambda value: redis_lock("order", expire=value),
    "extend": extended,
    "aextend": aextended,
}
WAIT_FACES: dict[str, Callable[[Any], object]] = {
    "lock": lambda value: locks.lock("order", wait=value),
    "lock-of-alias": lambda value: locks["default"].lock("order", wait=value),
    "rlock": lambda value: locks.rlock("order", wait=value),
    "decorator": lambda value: redis_lock("order", wait=value),
    "acquire": lambda value: locks.lock("order").acquire(timeout=value),
    "aacquire": lambda value: asyncio.run(locks.lock("order").aacquire(timeout=value)),
}


def of_alias(key: str, **terms: Any) -> Lock:
    return locks["default"].lock(key, **terms)


class TestTimes:
    """[F2]"""

    @pytest.mark.parametrize("value", NO_LEASE, ids=brief)
    @pytest.mark.parametrize("face", LEASE_FACES.values(), ids=LEASE_FACES)
    def test_of_a_lease(self, face: Callable[[Any], object], value: Any) -> None:
        """[F2] A lease is finite, positive and a number or timedelta, at every face; a refused one changes nothing."""
        with pytest.raises(ValueError, match="expire must be"):
            face(value)

    @pytest.mark.parametrize("face", ["extend", "aextend"])
    def test_extend_has_no_default(self, face: str) -> None:
        """[F2] `extend` has no default, so None is refused there."""
        with pytest.raises(ValueError, match="expire must be"):
            LEASE_FACES[face](None)

    @pytest.mark.parametrize("value", NO_TIME, ids=brief)
    @pytest.mark.parametrize("face", WAIT_FACES.values(), ids=WAIT_FACES)
    def test_of_a_wait(self, face: Callable[[Any], object], value: Any) -> None:
        """[F2] A wait is 0 or more seconds, or -1, at every face."""
        with pytest.raises(ValueError, match=r"(wait|timeout) must be"):
            face(value)

    @pytest.mark.parametrize("key", ["EXPIRE", "MAX_HOLD", "WAIT"])
    @pytest.mark.parametrize("value", [None, *NO_TIME], ids=brief)
    @pytest.mark.parametrize("per_name", [False, True])
    def test_of_the_settings(self, memory_locks: Any, key: str, value: Any, per_name: bool) -> None:
        """[F2] The settings take no more than the call sites; None isn't a time there."""
        memory_locks(**({"LOCKS": {"order": {key: value}}} if per_name else {key: value}))
        with pytest.raises(InvalidLockBackend, match=f"{key} must be"):
            locks.lock("order")

    @pytest.mark.parametrize("face", [locks.lock, locks.rlock, of_alias])
    def test_none_is_the_default(self, face: Callable[..., Lock]) -> None:
        """[F2] None means the default at every call site."""
        lock = face("order", expire=None, wait=None, renew=None, on_lost=None, on_backend_error=None, name=None)
        assert lock.terms == locks.lock("order").terms
        assert lock.name == "order"
        grant = lock.acquire(timeout=None)
        assert grant
        grant.release()
        assert redis_lock("order", expire=None, wait=None)(lambda: round(locks_left()))() == 30

    @pytest.mark.parametrize("value", [-1, -1.0])
    def test_minus_one_is_for_ever(self, memory_locks: Any, value: float) -> None:
        """[F2] -1 waits for ever at every face and in WAIT."""
        assert locks.lock("order", wait=value).terms.wait == inf
        memory_locks(WAIT=value, LOCKS={"order": {"WAIT": value}})
        assert locks.lock("order").terms.wait == locks.lock("cart").terms.wait == inf
        grant = locks.lock("order").acquire(timeout=value)
        assert grant
        grant.release()

    @pytest.mark.parametrize("timeout", [0, 1, 0.5, timedelta(seconds=1), nan, -2, True])
    def test_a_timeout_without_blocking(self, timeout: Any) -> None:
        """[F2] `acquire(False, timeout)` is as contradictory as with threading.Lock."""
        with pytest.raises(ValueError, match=r"acquire\(blocking=False\) takes no timeout"):
            locks.lock("order").acquire(False, timeout)

    @pytest.mark.parametrize("timeout", [None, -1])
    def test_no_timeout_without_blocking(self, timeout: Any) -> None:
        """[F2] -1 is its default there, so it passes with blocking=False."""
        with held_elsewhere("order"):
            assert locks.lock("order").acquire(False, timeout) is None


def locks_left() -> float:
    grant = current_grant()
    assert grant is not None
    return grant.remaining()


def test_the_callers_error_is_at_the_call_site(memory_locks: Any) -> None:
    """A wrong value raises where it is written, before anything is locked."""
    with pytest.raises(ValueError, match="expire must be"):
        locks.lock("order", expire="5")  # type: ignore[arg-type]
    assert not locks.lock("order").locked()

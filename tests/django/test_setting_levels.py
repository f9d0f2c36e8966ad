"""Where an option comes from: built-in < alias < LOCKS[name] < call site."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from math import inf
from typing import Any

import pytest
import redis
from django.http import HttpResponse
from django.test import RequestFactory

from django_redis_locks import (
    Grant,
    Lock,
    LockAlreadyHeld,
    LockBackendError,
    LockLost,
    LockNotAcquired,
    current_grant,
    locks,
    redis_lock,
)
from django_redis_locks.testing import ManualClock, override_locks
from tests.django.helpers import AT_ONCE, MEMORY, held_elsewhere, in_thread

FIELDS = ("host", "pid", "thread", "name")

LEVELS: dict[str, tuple[str, Any, list[tuple[str, Any, Any]]]] = {
    "expire": (
        "lease",
        30_000,
        [("EXPIRE", 20, 20_000), ("EXPIRE", 9.5, 9500), ("expire", timedelta(seconds=5), 5000)],
    ),
    "wait": ("wait", 10.0, [("WAIT", 4, 4.0), ("WAIT", timedelta(seconds=3), 3.0), ("wait", -1, inf)]),
    "renew": ("renew_for", 3600.0, [("MAX_HOLD", 1800, 1800.0), ("RENEW", False, 0.0), ("renew", True, 1800.0)]),
    "max_hold": ("renew_for", 3600.0, [("MAX_HOLD", 1800, 1800.0), ("MAX_HOLD", timedelta(seconds=900), 900.0)]),
    "on_backend_error": (
        "fail_open",
        False,
        [("ON_BACKEND_ERROR", "open", True), ("ON_BACKEND_ERROR", "closed", False), ("on_backend_error", "open", True)],
    ),
    "metadata": ("metadata", FIELDS, [("METADATA", ["pid", "host"], ("host", "pid")), ("METADATA", [], ())]),
}
"""Option: attribute of the terms, built-in; then for alias, LOCKS and call site: what is set, what comes of it."""


@pytest.mark.parametrize("option", LEVELS)
def test_each_level_wins_over_those_before_it(settings: Any, option: str) -> None:
    """[F9] For `lock` and `rlock`; a lock of another name isn't touched by LOCKS."""
    attribute, builtin, levels = LEVELS[option]
    for level in range(len(levels) + 1):
        steps = levels[:level]
        alias, name, site = ([{key: value} for key, value, _ in steps] + [{}] * 3)[:3]
        settings.REDIS_LOCKS = {"default": {"BACKEND": MEMORY, **alias, "LOCKS": {"order": name}}}
        expected = steps[-1][2] if steps else builtin
        for make in (locks.lock, locks.rlock):
            assert getattr(make("order:5", **site).terms, attribute) == expected, steps
            if not site:
                assert getattr(make("cart:5").terms, attribute) == (steps[0][2] if alias else builtin), steps


def current_lease(pk: int) -> int:
    return current_grant().hold.lease // 1000


class TestNames:
    def test_name_of_a_lock_is_its_key_up_to_the_first_colon(self, memory_locks: Any) -> None:
        """Or the one that is given."""
        memory_locks(LOCKS={"order": {"EXPIRE": 20}})
        for key, name, lease in (
            ("order:5", None, 20_000),
            ("order", None, 20_000),
            ("orders:5", None, 30_000),
            ("cart:5", "order", 20_000),
            ("order:5", "cart", 30_000),
            ("a:order", None, 30_000),
        ):
            assert locks.lock(key, name=name).terms.lease == lease, (key, name)

    def test_name_of_a_call_is_given_or_template_or_function(self, memory_locks: Any) -> None:
        function = f"{__name__}.current_lease"
        leases = {"order:{pk}": 20, "cart": 10, function: 5, "order": 1}
        memory_locks(LOCKS={name: {"EXPIRE": lease} for name, lease in leases.items()})
        options: dict[str, Any]
        for options, lease in (
            ({"key": "order:{pk}"}, 20),
            ({"key": "order:{pk}", "name": "cart"}, 10),
            ({"name": "cart"}, 10),
            ({}, 5),
        ):
            assert redis_lock(**options)(current_lease)(7) == lease, options


def is_renewed() -> bool:
    return bool(current_grant().hold.renew_until)


class TestRenewal:
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
    def test_only_expire_at_the_call_site_turns_renewal_off(
        self, memory_locks: Any, entry: dict[str, Any], site: dict[str, Any], renewed: bool
    ) -> None:
        """[F8] Unless `renew` says otherwise there or in LOCKS; for lock objects and the decorator."""
        memory_locks(**entry)
        with locks.lock("order:5", **site) as grant:
            assert bool(grant.hold.renew_until) is renewed
        assert redis_lock("order:5", name="order", **site)(is_renewed)() is renewed

    def test_max_hold_of_LOCKS_limits_renewal_that_the_call_site_turns_on(self, memory_locks: Any) -> None:
        """The call site has no max_hold of its own."""
        memory_locks(MAX_HOLD=1800, LOCKS={"order": {"MAX_HOLD": 900, "RENEW": False}})
        assert locks.lock("order").terms.renew_for == 0.0
        assert locks.lock("order", renew=True).terms.renew_for == 900.0
        assert locks.lock("order", expire=5, renew=True).terms.renew_for == 900.0
        assert locks.lock("cart", expire=5, renew=True).terms.renew_for == 1800.0
        with pytest.raises(TypeError, match="max_hold"):
            locks.lock("order", max_hold=5)  # type: ignore[call-arg]

    def test_lease_of_the_settings_is_renewed_and_that_of_the_call_site_is_not(self) -> None:
        """[F8]"""
        with override_locks(EXPIRE=9), ManualClock() as clock, locks.lock("renewed") as renewed:
            fixed = locks.lock("fixed", expire=9).acquire()
            clock.advance(10)
            assert fixed.lost
            assert not locks.lock("fixed").locked()
            renewed.ensure_held(confirm=True)
            with pytest.raises(LockLost):
                fixed.release()


async def anything() -> None:
    pass


class TestWaitOfADecorator:
    def test_wait_comes_from_LOCKS_or_the_call_site_only(
        self, memory_locks: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """[F9] A call fails at once otherwise: the alias's WAIT is for lock objects."""
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
        entry: Any
        site: Any
        for entry, site, expected in (
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
        ):
            memory_locks(**entry)
            waits.clear()
            decorate = redis_lock("order:5", name="order", **site)
            asyncio.run(decorate(anything)())
            decorate(lambda: None)()
            assert waits == [expected, expected], (entry, site)
        memory_locks(WAIT=-1)
        with held_elsewhere("order"), pytest.raises(LockNotAcquired) as raised:
            redis_lock("order")(lambda: None)()
        assert raised.value.waited < AT_ONCE


def weekday(*args: object) -> bool:
    return bool(args)


DECORATOR_OPTIONS: list[tuple[str, Any, Any, Any, dict[str, Any]]] = [
    ("reentrant", True, True, False, {}),
    ("auto_release", False, False, True, {"EXPIRE": 5}),
    ("methods", ["post"], {"POST"}, {"PUT"}, {}),
    ("condition", f"{__name__}.weekday", weekday, anything, {}),
    ("condition", weekday, weekday, anything, {}),
    ("status", 423, 423, 429, {}),
    ("retry_after", False, False, 7, {}),
]
"""Option; what LOCKS says and what that means; what the call site says; what LOCKS must say besides."""


class TestDecoratorOptions:
    """What only the decorator has: built-in < LOCKS[name] < call site."""

    @pytest.mark.parametrize(("option", "named", "meant", "site", "more"), DECORATOR_OPTIONS)
    def test_call_site_wins_over_LOCKS(
        self, memory_locks: Any, option: str, named: Any, meant: Any, site: Any, more: dict[str, Any]
    ) -> None:
        """[D53] Each level wins over those before it, and another name isn't touched by LOCKS."""
        memory_locks(LOCKS={"order": {option.upper(): named, **more}})

        def chosen(name: str, **options: Any) -> Any:
            plan = redis_lock("order:5", **options).keywords["plan"]  # type: ignore[attr-defined]
            return getattr(plan.calls_of(locks["default"], name), option)

        assert chosen("cart") is None
        assert chosen("order") == meant
        assert chosen("order", **{option: site}) == chosen("cart", **{option: site}) == site

    def test_lock_object_ignores_options_of_the_decorator(self, memory_locks: Any) -> None:
        options = {"REENTRANT": True, "AUTO_RELEASE": True, "METHODS": ["POST"], "CONDITION": weekday}
        memory_locks(LOCKS={"order": options})
        with locks.lock("order"), pytest.raises(LockAlreadyHeld):
            locks.lock("order").acquire()
        assert not locks.lock("order").locked()

    def test_changed_settings_take_effect_at_the_next_call(self, memory_locks: Any, rf: RequestFactory) -> None:
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


class TestEffects:
    def test_only_the_fields_of_METADATA_are_stored(self, memory_locks: Any) -> None:
        """[F18]"""
        memory_locks(METADATA=["pid"], LOCKS={"order": {"METADATA": ["host", "name"]}, "cart": {"METADATA": []}})
        found = {}
        for key in ("x:1", "order:1", "cart:1"):
            with locks.lock(key) as grant:
                holder = locks.lock(key).holder()
                assert holder.fence == grant.fence
                found[key] = {field for field in FIELDS if getattr(holder, field) is not None}
        assert found == {"x:1": {"pid"}, "order:1": {"host", "name"}, "cart:1": set()}

    @pytest.mark.parametrize(
        ("entry", "site", "opened"),
        [
            ({"ON_BACKEND_ERROR": "open"}, {}, True),
            ({"ON_BACKEND_ERROR": "open", "LOCKS": {"order": {"ON_BACKEND_ERROR": "closed"}}}, {}, False),
            ({"LOCKS": {"order": {"ON_BACKEND_ERROR": "open"}}}, {"on_backend_error": "closed"}, False),
            ({}, {"on_backend_error": "open"}, True),
        ],
    )
    def test_open_goes_on_without_a_lock_and_closed_raises(
        self, settings: Any, closed_port: int, entry: dict[str, Any], site: dict[str, Any], opened: bool
    ) -> None:
        """[F14] The grant of a section without a lock says so."""
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

    def test_key_prefix_begins_every_key_of_the_store(self, settings: Any, redis_url: str) -> None:
        """An INDEX lists the held locks, or not."""
        for index in (True, False):
            settings.REDIS_LOCKS = {"default": {"LOCATION": redis_url, "KEY_PREFIX": f"shop{index}", "INDEX": index}}
            with locks.lock("order:5"), redis.Redis.from_url(redis_url) as client:
                keys = client.keys()
                assert f"shop{index}:{{0}}:k:order:5".encode() in keys
                assert bool(client.exists(f"shop{index}:{{0}}:index")) is index
                assert all(key.startswith(b"shop") for key in keys)

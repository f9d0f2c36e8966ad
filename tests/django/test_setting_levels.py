"""Precedence of options: built-in < alias < LOCKS[name] < call site."""

from __future__ import annotations

from datetime import timedelta
from math import inf
from typing import Any

import pytest
from django.http import HttpResponse
from django.test import RequestFactory

from django_redis_locks import (
    LockAlreadyHeld,
    LockNotAcquired,
    current_grant,
    locks,
    redis_lock,
)
from tests.django.helpers import MEMORY, held_elsewhere, in_thread
from tests.probes.django import kind_of

FIELDS = ("host", "pid", "thread", "name")

LEVELS: dict[str, tuple[str, Any, list[tuple[str, Any, Any]]]] = {
    "expire": (
        "lease",
        30_000,
        [("EXPIRE", 20, 20_000), ("EXPIRE", 9.5, 9500), ("expire", timedelta(seconds=5), 5000)],
    ),
    "wait": ("wait", 10.0, [("WAIT", 4, 4.0), ("WAIT", timedelta(seconds=3), 3.0), ("wait", -1, inf)]),
    "backend_wait": ("backend_wait", 2.0, [("BACKEND_WAIT", 5, 5.0), ("BACKEND_WAIT", -1, inf)]),
    "renew": ("renew_for", 3600.0, [("MAX_HOLD", 1800, 1800.0), ("RENEW", False, 0.0), ("renew", True, 1800.0)]),
    "max_hold": (
        "renew_for",
        3600.0,
        [("MAX_HOLD", timedelta(seconds=900), 900.0), ("MAX_HOLD", -1, inf), ("max_hold", 1800, 1800.0)],
    ),
    "on_backend_error": (
        "fail_open",
        False,
        [("ON_BACKEND_ERROR", "open", True), ("ON_BACKEND_ERROR", "closed", False), ("on_backend_error", "open", True)],
    ),
    "metadata": ("metadata", FIELDS, [("METADATA", ["pid", "host"], ("host", "pid")), ("METADATA", [], ())]),
}
"""Option: attribute, built-in value; then for alias, LOCKS and call site the setting and the resulting value."""


@pytest.mark.parametrize("option", LEVELS)
def test_each_level_wins_over_those_before_it(settings: Any, option: str) -> None:
    """[F9] For `lock` and `rlock`. LOCKS doesn't change locks with other names."""
    attribute, builtin, levels = LEVELS[option]
    for level in range(len(levels) + 1):
        steps = levels[:level]
        alias, name, site = ([{key: value} for key, value, _ in steps] + [{}] * 3)[:3]
        settings.REDIS_LOCKS = {"default": {"BACKEND": MEMORY, **alias, "LOCKS": {"order": name}}}
        expected = steps[-1][2] if steps else builtin
        for make in (locks.lock, locks.rlock):
            assert getattr(make("order:5", **site).options, attribute) == expected, steps
            if not site:
                assert getattr(make("cart:5").options, attribute) == (steps[0][2] if alias else builtin), steps


def current_lease(pk: int) -> int:
    return current_grant().hold.lease // 1000


def test_name_of_a_lock_or_call_selects_its_entry_of_LOCKS(memory_locks: Any) -> None:
    """The name of a lock is given, or its key up to the first colon; that of a call is given, its template, or its
    function."""
    function = f"{__name__}.current_lease"
    leases = {"order:{pk}": 20, "cart": 10, function: 5, "order": 1}
    memory_locks(LOCKS={name: {"EXPIRE": lease} for name, lease in leases.items()})
    for key, name, lease in (
        ("order:5", None, 1),
        ("orders:5", None, 30),
        ("a:order", None, 30),
        ("order:5", "cart", 10),
    ):
        assert locks.lock(key, name=name).options.lease == lease * 1000, (key, name)
    options: dict[str, Any]
    for options, lease in (
        ({"key": "order:{pk}"}, 20),
        ({"key": "order:{pk}", "name": "cart"}, 10),
        ({"name": "cart"}, 10),
        ({}, 5),
    ):
        assert redis_lock(**options)(current_lease)(7) == lease, options


def test_None_is_the_default_at_every_call() -> None:
    """[F2]"""
    for make in (locks.lock, locks.rlock, locks["default"].lock):
        lock = make("order", expire=None, wait=None, renew=None, on_lost=None, on_backend_error=None, name=None)
        assert lock.options == locks.lock("order").options
        assert lock.name == "order"
        for timeout in (None, -1):
            grant = lock.acquire(timeout=timeout)
            assert grant is not None
            assert in_thread(lambda: locks.lock("order").acquire(False, timeout)) is None  # noqa: B023 - called at once
            grant.release()
    assert redis_lock("order", expire=None, wait=None)(current_lease)(1) == 30


def is_renewed() -> bool:
    return bool(current_grant().hold.renew_until)


RENEWED: list[tuple[dict[str, Any], dict[str, Any], bool]] = [
    ({}, {}, True),
    ({"EXPIRE": 5}, {}, True),
    ({"LOCKS": {"order": {"EXPIRE": 5}}}, {}, True),
    ({"EXPIRE": 5}, {"expire": 5}, False),
    ({}, {"expire": 5, "renew": True}, True),
    ({"EXPIRE": 5}, {"renew": False}, False),
    ({"LOCKS": {"order": {"RENEW": False}}}, {}, False),
    ({"LOCKS": {"order": {"RENEW": False}}}, {"renew": True}, True),
    ({"LOCKS": {"order": {"RENEW": True}}}, {"expire": 5}, True),
    ({"LOCKS": {"order": {"RENEW": True}}}, {"expire": 5, "renew": False}, False),
    ({"LOCKS": {"order": {"EXPIRE": 5}}}, {"expire": 7}, False),
]


def test_only_expire_at_the_call_site_turns_renewal_off(memory_locks: Any) -> None:
    """[F8] Unless `renew` is set there or in LOCKS; for lock objects and the decorator."""
    for entry, site, renewed in RENEWED:
        memory_locks(**entry)
        with locks.lock("order:5", **site) as grant:
            assert bool(grant.hold.renew_until) is renewed, (entry, site)
        assert redis_lock("order:5", name="order", **site)(is_renewed)() is renewed, (entry, site)


def test_max_hold_at_the_call_site_needs_renewal_unless_LOCKS_switches_it_off(memory_locks: Any) -> None:
    """[F13] A limit of the code doesn't break when the settings make the lease a fixed one."""
    assert redis_lock("order:5", max_hold=-1)(lambda: current_grant().hold.renew_until)() == inf
    memory_locks(LOCKS={"order": {"RENEW": False}})
    assert locks.lock("order:5", max_hold=60).options.renew_for == 0
    for fixed in ({"expire": 5}, {"renew": False}, {"expire": 5, "auto_release": False}):
        with pytest.raises(TypeError, match="add renew=True"):
            locks.lock("cart:5", max_hold=60, **fixed)  # type: ignore[call-overload]
        with pytest.raises(TypeError, match="add renew=True"):
            redis_lock("cart:5", max_hold=60, **fixed)  # type: ignore[call-overload]


async def anything() -> None:
    pass


def test_wait_of_a_call_comes_from_LOCKS_or_the_call_site_only(memory_locks: Any) -> None:
    """[F9] Otherwise a call fails at once: WAIT of the alias is for lock objects."""
    entry: Any
    site: Any
    for entry, site, expected in (
        ({"WAIT": 7}, {}, 0.0),
        ({"WAIT": 7, "LOCKS": {"order": {"WAIT": 3}}}, {}, 3.0),
        ({"LOCKS": {"order": {"WAIT": -1}}}, {}, inf),
        ({"LOCKS": {"order": {"WAIT": 0}}}, {"wait": 5}, 5.0),
        ({"LOCKS": {"order": {"WAIT": 3}}}, {"wait": 0}, 0.0),
        ({"LOCKS": {"order": {"EXPIRE": 3}, "cart": {"WAIT": 3}}}, {}, 0.0),
        ({}, {"wait": timedelta(seconds=2)}, 2.0),
        ({}, {"wait": -1}, inf),
    ):
        memory_locks(**entry)
        arguments = redis_lock("order:5", name="order", **site).keywords["arguments"]  # type: ignore[attr-defined]
        options = arguments.options_for(locks["default"], "order")
        assert arguments.lock(locks["default"], "order:5", "order", options).options.wait == expected, (entry, site)


def weekday(*args: object) -> bool:
    return bool(args)


DECORATOR_OPTIONS: list[tuple[str, Any, Any, Any, dict[str, Any]]] = [
    ("kind", "fair", "fair", "lock", {}),
    ("reentrant", True, True, False, {}),
    ("auto_release", False, False, True, {"EXPIRE": 5}),
    ("methods", ["post"], {"POST"}, {"PUT"}, {}),
    ("condition", f"{__name__}.weekday", weekday, anything, {}),
    ("condition", weekday, weekday, anything, {}),
    ("status", 423, 423, 429, {}),
    ("retry_after", False, False, 7, {}),
]
"""Option; setting in LOCKS and its value; argument of the call site; other settings that LOCKS needs."""


class TestDecoratorOptions:
    """Options of the decorator only: built-in < LOCKS[name] < call site."""

    def test_call_site_wins_over_LOCKS(self, memory_locks: Any) -> None:
        """[D53] LOCKS changes neither other names nor lock objects."""

        def chosen(option: str, name: str, **options: Any) -> Any:
            arguments = redis_lock("order:5", **options).keywords["arguments"]  # type: ignore[attr-defined]
            return getattr(arguments.options_for(locks["default"], name), option)

        for option, named, meant, site, more in DECORATOR_OPTIONS:
            memory_locks(LOCKS={"order": {option.upper(): named, **more}})
            assert chosen(option, "cart") is None, option
            assert chosen(option, "order") == meant, option
            assert chosen(option, "order", **{option: site}) == chosen(option, "cart", **{option: site}) == site, option
        memory_locks(LOCKS={"order": {"REENTRANT": True, "METHODS": ["POST"], "CONDITION": weekday}})
        with locks.lock("order"), pytest.raises(LockAlreadyHeld):
            locks.lock("order").acquire()

    def test_kind_of_a_decorated_call(self, memory_locks: Any) -> None:
        """[L32] With all other options."""
        memory_locks(LOCKS={"order": {"KIND": "fair"}, "sms": {"KIND": "fair", "EXPIRE": 60, "AUTO_RELEASE": False}})

        def kind_of_call(**options: Any) -> str:
            return redis_lock(**options)(lambda: kind_of(current_grant()))()

        assert kind_of_call(key="order") == "FairLock"
        assert kind_of_call(key="order", kind="lock", reentrant=True) == "Lock"
        assert kind_of_call(key="cart", kind="fair", reentrant=True) == "FairLock"
        assert kind_of_call(key="sms", expire=0.05) == "FairLock"
        assert kind_of_call(key="stock", kind="read") == "ReadLock"
        assert kind_of_call(key="stock", kind="write", expire=5, auto_release=False) == "WriteLock"
        with pytest.raises(
            ValueError, match="kind is one of 'lock', 'fair', 'read', 'write', 'semaphore', not 'first'"
        ):
            redis_lock("order", kind="first")

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

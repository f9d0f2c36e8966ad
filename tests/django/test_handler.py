"""`locks`: settings are read lazily and after changes; one engine per server; no I/O before the first use."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import pytest
from django.test import override_settings

from django_redis_locks import Grant, InvalidLockBackend, LockAlreadyHeld, LockNotAcquired, locks, redis_lock
from tests.django.helpers import MEMORY, PATIENCE, in_thread

ROOT = Path(__file__).parents[2]


class TestSettings:
    def test_settings_are_read_again_under_override_settings(self, settings: Any) -> None:
        """[D53] By lock objects and decorated functions, including the settings of a borrowed cache."""
        work = redis_lock("order")(lambda: locks.lock("order").holder().lease_left)
        for _ in range(2):
            assert locks.lock("order").options.lease == 30_000
            assert 0 < work() <= 30
            with override_settings(REDIS_LOCKS={"default": {"BACKEND": MEMORY, "EXPIRE": 100}}):
                assert locks.lock("order").options.lease == 100_000
                assert 30 < work() <= 100
        backend = "django.core.cache.backends.redis.RedisCache"
        settings.REDIS_LOCKS = {"default": {"CACHE": "default"}}
        for url in ("redis://127.0.0.1/1", "redis://127.0.0.1/2"):
            settings.CACHES = {"default": {"BACKEND": backend, "LOCATION": url}}
            assert locks["default"].settings.location == url

    def test_held_lock_outlives_a_change_of_settings(self, redis_locks: str) -> None:
        """Also `close_all()`, after which locks still work."""
        with override_settings(REDIS_LOCKS={"default": {"BACKEND": MEMORY, "KEY_PREFIX": "other"}}):
            grant = locks.lock("order").acquire()
        with locks.lock("order"):
            assert not grant.lost
            locks.close_all()
        grant.release()
        assert grant.remaining() == 0.0
        locks.close_all()
        with locks.lock("order") as grant:
            assert grant.held

    def test_alias_has_one_client_and_a_server_one_engine(self, settings: Any) -> None:
        """[D35] Nothing is created per thread or request. `locks.x` is `locks["default"].x`."""
        settings.REDIS_LOCKS = {name: {"LOCATION": "redis://127.0.0.1/1"} for name in ("default", "same")}
        assert list(locks) == ["default", "same"]
        assert (locks.lock("a").alias, locks["same"].lock("a").alias) == ("default", "same")
        assert locks.rlock("a").reentrant
        assert locks["default"] is locks["default"] is in_thread(lambda: locks["default"])
        assert locks["default"].engine is locks["same"].engine
        before = locks["default"].engine
        settings.REDIS_LOCKS = {"default": {"LOCATION": "redis://127.0.0.1/1", "EXPIRE": 5}}
        assert locks["default"].engine is before


@pytest.fixture(params=["memory", "redis"])
def two_aliases_of_one_server(request: pytest.FixtureRequest, settings: Any) -> None:
    """Aliases a and b on one server, and c on the same server with another prefix."""
    here: dict[str, Any] = {"BACKEND": MEMORY}
    there = here
    if request.param == "redis":
        here = {"LOCATION": request.getfixturevalue("redis_url")}
        there = {**here, "OPTIONS": {"socket_timeout": 20}}
    settings.REDIS_LOCKS = {"default": here, "a": here, "b": there, "c": {**here, "KEY_PREFIX": "other"}}


@pytest.mark.usefixtures("two_aliases_of_one_server")
class TestTwoAliasesOfOneServer:
    def test_second_acquire_by_another_alias_of_the_server_raises_LockAlreadyHeld(self) -> None:
        """[F23] It would wait for itself. An rlock re-enters; another prefix has other locks."""
        with locks["a"].lock("order"):
            with pytest.raises(LockAlreadyHeld) as raised:
                locks["b"].lock("order", wait=-1).acquire()
            assert raised.value.alias == "b"
            assert locks["b"].lock("order").acquire(blocking=False) is None
            with locks["c"].lock("order") as grant:
                assert grant.held
        with locks["a"].rlock("order") as outer, locks["b"].rlock("order") as inner:
            assert inner.fence == outer.fence

    def test_two_aliases_of_one_server_exclude_each_other_and_notify_waiters(self) -> None:
        """[F23]"""
        outcome: list[Grant] = []
        waiter = threading.Thread(target=lambda: outcome.append(locks["b"].lock("order", wait=PATIENCE).acquire()))
        with locks["a"].lock("order"):
            for alias in ("a", "b"):
                with pytest.raises(LockNotAcquired):
                    in_thread(locks[alias].lock("order", wait=0).acquire)
            waiter.start()
        waiter.join(PATIENCE)
        (grant,) = outcome
        grant.release()


def python(script: str, *arguments: str) -> list[str]:
    """Run a script without Django settings. Return its output lines."""
    environment = {name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"}
    finished = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(script), *arguments],
        env={**environment, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (finished.returncode, finished.stderr) == (0, "")
    return finished.stdout.splitlines()


class TestWithoutDjango:
    def test_program_without_django_settings_uses_configure(self, redis_url: str) -> None:
        """[F20]"""
        script = """
            import sys
            from django_redis_locks import InvalidLockBackend, LockNotAcquired, locks, redis_lock

            @redis_lock("order:{pk}")
            def work(pk):
                return locks.lock("order:1").holder().pid

            try:
                work(1)
            except InvalidLockBackend as error:
                print(error)
            locks.configure({"default": {"LOCATION": sys.argv[1]}})
            print(work(1) > 0, locks.lock("order:1").locked())
            locks.configure({"default": {"BACKEND": "django_redis_locks.backends.memory.MemoryBackend", "EXPIRE": 7}})
            print(locks.lock("x").options.lease)
            locks.configure(None)
            try:
                locks["default"]
            except InvalidLockBackend:
                print("none")
        """
        missing, *shown = python(script, redis_url)
        assert "There is no alias 'default' in REDIS_LOCKS" in missing
        assert shown == ["True False", "7000", "none"]

    def test_settings_win_over_configure(self) -> None:
        """[F20] The arguments of configure are checked like settings."""
        handler = type(locks)()
        handler.configure({"default": {"BACKEND": MEMORY, "EXPIRE": 7}})
        assert handler["default"].settings.lease == 30_000
        handler.reset()
        with override_settings(REDIS_LOCKS=None):
            assert handler["default"].settings.lease == 7_000
            handler.configure({"default": {"BACKEND": MEMORY, "EXPIRE": 0}})
            with pytest.raises(InvalidLockBackend, match="EXPIRE must be between"):
                handler["default"]


def test_start_of_django_opens_no_connection_and_starts_no_thread() -> None:
    """At import, in `ready()`, in checks, and when lock objects and decorators are created. Only `contrib.drf` imports
    Django REST framework."""
    script = """
        import logging, socket, sys, threading

        tried = []

        def refuse(*args):
            tried.append(args)
            raise OSError("connections aren't allowed here")

        for name in ("connect", "connect_ex", "sendto"):
            setattr(socket.socket, name, refuse)
        socket.getaddrinfo = refuse

        import django
        from django.conf import settings
        url = "redis://user:hunter2@example.org/1"
        settings.configure(
            INSTALLED_APPS=["django_redis_locks"],
            CACHES={"default": {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": url}},
            REDIS_LOCKS={"default": {"LOCATION": url}, "borrowed": {"CACHE": "default"}},
        )
        django.setup()
        from django.core.checks import run_checks
        from django.test import RequestFactory
        from django_redis_locks import LockBackendError, locks, middleware, redis_lock

        logging.disable()
        rest = "django_redis_locks.decorators.drf_errors"

        print([message.id for message in run_checks(tags=["redis_locks"])])

        @redis_lock("order:{pk}", expire=5)
        def work(pk): ...

        lock = locks["borrowed"].lock("order:1")
        print(lock.owned(), threading.active_count(), len(tried))
        try:
            lock.acquire(timeout=0)
        except LockBackendError:
            print(len(tried) > 0)
        view = redis_lock("order:{request.path}")(lambda request: None)
        print(view(RequestFactory().get("/")).status_code, *{"rest_framework", rest} & sys.modules.keys())
    """
    assert python(script) == [
        "['redis_locks.W010', 'redis_locks.W010', 'redis_locks.W061']",
        "False 1 0",
        "True",
        "503",
    ]

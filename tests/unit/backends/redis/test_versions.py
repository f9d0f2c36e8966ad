"""Unsupported versions of redis-py: the errors of the first use and of the system check."""

from __future__ import annotations

import importlib.metadata
import logging
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import redis
import redis.asyncio
from django.core.checks import CheckMessage, run_checks
from packaging.requirements import Requirement

from django_redis_locks import InvalidLockBackend, locks
from django_redis_locks.backends.redis import versions
from django_redis_locks.backends.redis.redispy import connection_makers
from django_redis_locks.conf import settings as alias_settings

ROOT = Path(__file__).parents[4]
URL = "redis://127.0.0.1:6379/0"
MEMORY = "django_redis_locks.backends.memory.MemoryBackend"
WANTED = re.escape("install 'redis>=5.2,<9'")


@pytest.fixture(autouse=True)
def configured(settings: Any) -> None:
    settings.REDIS_LOCKS = {"default": {"LOCATION": URL}}
    alias_settings._warn.cache_clear()


def found() -> list[CheckMessage]:
    return run_checks(tags=["redis_locks"])


def test_version_that_is_too_old_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """[F19] By the first use and the check, which name the installed and the required version."""
    for version in ("5.1.1", "4.6.0", "3.5.3", "5.1"):
        monkeypatch.setattr(redis, "__version__", version)
        (message,) = found()
        assert (message.id, message.is_serious()) == ("redis_locks.E035", True)
        text = rf"REDIS_LOCKS\['default'\]: redis-py {re.escape(version)} is too old: {WANTED}"
        assert re.match(text, message.msg)
        with pytest.raises(InvalidLockBackend, match=text):
            locks.lock("a")
        locks.reset()


def test_version_that_is_too_new_is_warned_of(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is used; a process that runs no checks logs the warning once."""
    for version in ("9.0.0", "9.0.0b1", "10.1", "unreadable", ""):
        caplog.clear()
        alias_settings._warn.cache_clear()
        monkeypatch.setattr(redis, "__version__", version)
        (message,) = found()
        assert (message.id, message.is_serious()) == ("redis_locks.W036", False)
        text = f"redis-py {version} is newer than the versions that locks were tested with: {WANTED}"
        assert re.search(text, message.msg)
        for _ in range(3):
            locks.reset()
            assert locks.lock("a") is not None
        (record,) = [record for record in caplog.records if "newer" in record.getMessage()]
        assert (record.name, record.levelno) == ("django_redis_locks.backend", logging.WARNING)


def test_version_that_fits_or_is_not_needed_is_not_mentioned(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, settings: Any
) -> None:
    for version in ("5.2.0", "5.3.0b1", "6.4.0", "8.99", "4.0.0"):
        monkeypatch.setattr(redis, "__version__", version)
        locks.reset()
        if version == "4.0.0":
            settings.REDIS_LOCKS = {"default": {"BACKEND": MEMORY}}
            settings.DEBUG = True
        assert found() == []
        assert locks.lock("a") is not None
    assert not caplog.records


def connection_without(owner: Any, name: str) -> type:
    """A connection class without one attribute on its instances."""

    class Other(owner.Connection):
        def __init__(self) -> None:
            super().__init__()
            self.ready = True

        def __getattribute__(self, wanted: str) -> Any:
            if wanted == name and "ready" in super().__getattribute__("__dict__"):
                raise AttributeError(wanted)
            return super().__getattribute__(wanted)

        def __del__(self) -> None:
            pass

    return Other


@pytest.mark.parametrize("kind", versions._REQUIRED_ATTRIBUTES)
def test_missing_attribute_of_a_connection_is_named(kind: str) -> None:
    """For any version, instead of an AttributeError in the middle of a release."""
    owner: Any = redis.asyncio if "asyncio" in kind else redis
    for name in versions._REQUIRED_ATTRIBUTES[kind]:
        for version in ("8.1.0", "9.3.0"):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(redis, "__version__", version)
                patch.setattr(owner, "Connection", connection_without(owner, name))
                locks.reset()
                text = rf"redis-py {version} can't be used \({kind} has no {name}\): {WANTED}"
                (message,) = [message for message in found() if message.is_serious()]
                assert message.id == "redis_locks.E035"
                assert re.search(text, message.msg)
                with pytest.raises(InvalidLockBackend, match=text):
                    locks.lock("a")


@pytest.mark.parametrize(("version", "said"), [("4.6.0", "redis-py 4.6.0 is too old"), ("9.1.0", "can't be used")])
def test_missing_import_leaves_the_project_startable(version: str, said: str) -> None:
    """The check says why the Redis backend can't be imported. The memory backend works."""
    code = f"""
import redis, redis.connection
redis.__version__ = {version!r}
del redis.connection.PythonRespSerializer

import django
from django.conf import settings
settings.configure(INSTALLED_APPS=["django_redis_locks"], DEBUG=True, REDIS_LOCKS={{
    "default": {{"BACKEND": {MEMORY!r}}}, "redis": {{"LOCATION": {URL!r}}}}})
django.setup()
from django.core.checks import run_checks
from django_redis_locks import InvalidLockBackend, locks

for message in run_checks(tags=["redis_locks"]):
    print(message.id, message.msg)
with locks.lock("a"):
    print("held")
try:
    locks["redis"].lock("a")
except InvalidLockBackend as error:
    print("raised", error)
"""
    environment = {name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    check, held, raised = done.stdout.splitlines()
    assert held == "held"
    for line in (check, raised):
        assert "REDIS_LOCKS['redis']: BACKEND can't be imported" in line
        assert said in line
        assert "install 'redis>=5.2,<9'" in line
    assert check.startswith("redis_locks.E002")


# The lists are complete


def test_every_private_attribute_that_is_used_is_checked() -> None:
    folder = ROOT / "django_redis_locks" / "backends" / "redis"
    touched = {
        name for path in folder.glob("*.py") for name in re.findall(r"\bconnection\.(_[a-z]\w*)", path.read_text())
    }
    assert touched - {name for names in versions._REQUIRED_ATTRIBUTES.values() for name in names} == set()


def test_versions_are_those_of_the_distribution() -> None:
    """The required version, as text and as numbers, equals the dependency in pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (line,) = (line for line in project["dependencies"] if line.startswith("redis"))
    wanted = Requirement(versions.REQUIREMENT)
    assert Requirement(line).specifier == wanted.specifier
    assert wanted.specifier.contains(".".join(map(str, versions.OLDEST_SUPPORTED)))
    assert not wanted.specifier.contains(".".join(map(str, versions.FIRST_UNTESTED)))


def test_new_connection_looks_up_no_metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    """redis-py reads the metadata of its distribution for each connection, to send its version to the server. That
    takes longer than connecting."""
    makers = connection_makers("redis://127.0.0.1:1", {})
    assert versions.incompatibility() is None

    def version(name: str) -> str:
        raise AssertionError(f"looks up {name}")

    monkeypatch.setattr(importlib.metadata, "version", version)
    for make in makers:
        make()
    assert versions.incompatibility() is None

"""Management commands with a busy lock, or an unreachable store."""

from __future__ import annotations

import pickle
from typing import Any, ClassVar

import pytest
from django.core.management import BaseCommand, CommandError, call_command

from django_redis_locks import LockBackendError, LockNotAcquired, redis_lock
from tests.django.helpers import held_elsewhere


class Command(BaseCommand):
    requires_system_checks: ClassVar[list[str]] = []

    @redis_lock("close")
    def handle(self, *args: Any, **options: Any) -> None: ...

    @redis_lock("close", on_conflict="raise")
    def work(self) -> None: ...


def run(capsys: pytest.CaptureFixture[str]) -> tuple[object, list[str]]:
    """Run the command as from a shell. Return its exit code and output lines."""
    with pytest.raises(SystemExit) as ended:
        Command().run_from_argv(["manage.py", "close"])
    return ended.value.code, capsys.readouterr().err.splitlines()


def test_busy_command_ends_with_one_line_and_code_75(capsys: pytest.CaptureFixture[str]) -> None:
    """[D10] In Python it is both CommandError and LockNotAcquired. Other methods raise LockNotAcquired only."""
    with held_elsewhere("close"):
        code, lines = run(capsys)
        assert code == 75
        assert len(lines) == 1
        assert lines[0].startswith("Locked: lock 'close' is busy, held by")
        for kind in (CommandError, LockNotAcquired):
            with pytest.raises(kind) as raised:
                call_command(Command())
            copy = pickle.loads(pickle.dumps(raised.value))
            assert (type(copy), copy.returncode, copy.name) == (type(raised.value), 75, "close")
        with pytest.raises(LockNotAcquired) as plain:
            Command().work()
        assert not isinstance(plain.value, CommandError)


def test_command_without_its_store_ends_with_one_line_and_code_69(
    capsys: pytest.CaptureFixture[str], store_down: str
) -> None:
    """[D10]"""
    code, lines = run(capsys)
    assert (code, len(lines)) == (69, 1)
    assert lines[0].startswith("LocksUnavailable: ")
    with pytest.raises(LockBackendError):
        call_command(Command())

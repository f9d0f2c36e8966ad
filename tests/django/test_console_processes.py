"""`manage.py redis_locks` as a process of its own: pipes, terminals, signals, encodings, exit codes."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from django_redis_locks import LockLost, clock, locks
from tests.django.helpers import PATIENCE

ROOT = Path(__file__).parent.parent.parent

IN_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""
"""Makes the terminal the controlling one, so that Ctrl-C is a signal."""

Started = subprocess.Popen[bytes]
Start = Callable[..., Started]


@pytest.fixture
def start(redis_locks: str) -> Iterator[Start]:
    """`start("list", ...)`: the command on the shared server, ended with the test. Names in capitals are
    environment."""
    running: list[Started] = []

    def begin(*words: str, table: Any = None, terminal: int | None = None, stdout: Any = None, **more: str) -> Started:
        table = json.dumps(table or {"default": {"LOCATION": redis_locks}})
        environment = {**os.environ, "TEST_REDIS_LOCKS": table, "PYTHONWARNINGS": "error", **more}
        for name in ("DJANGO_SETTINGS_MODULE", "PYTHONUNBUFFERED"):
            environment.pop(name, None)
        command = [sys.executable, "-m", "django", "redis_locks", *words, "--settings", "tests.django.console_settings"]
        if terminal is not None:
            command = [sys.executable, "-c", IN_TERMINAL, *command]
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL if terminal is None else terminal,
            stdout=stdout or terminal or subprocess.PIPE,
            stderr=terminal or subprocess.PIPE,
            start_new_session=terminal is not None,
        )
        running.append(process)
        return process

    yield begin
    for process in running:
        if process.poll() is None:
            process.kill()
        process.communicate()


def wait_for_end(process: Started) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=30)
    return process.returncode, (out or b"").decode(), err.decode()


@pytest.fixture
def down(closed_port: int) -> Any:
    """The environment with a store that refuses connections."""
    return {"default": {"LOCATION": f"redis://:hunter2@127.0.0.1:{closed_port}/0"}}


def test_exit_codes_are_0_to_3_without_a_traceback(start: Start, down: Any) -> None:
    """0 success, 1 the answer is no, 2 wrong arguments, 3 unreachable store. Django's own options follow the verb."""
    with locks.lock("a"):
        runs = [(start("list"), 0, ""), (start("release", "a"), 2, "--yes")]
        for process, *_ in runs:
            process.wait(PATIENCE)
    runs += [(start("list"), 1, ""), (start("list", "--limit", "0"), 2, "error: "), (start(), 2, "error: ")]
    runs += [(start(*words, table=down), 3, "can't reach") for words in (["list"], ["release", "a", "--yes"])]
    for process, code, message in runs:
        found, out, err = wait_for_end(process)
        assert (found, message in err) == (code, True), process.args
        assert "Traceback" not in err
        assert code != 1 or out.startswith("0 locks\n")
        assert "hunter2" not in out + err


def test_pipe_that_closes_early_is_no_error(start: Start) -> None:
    """`… | head -1`, with more output than fits in a pipe; and a closed pipe that Python notices when it flushes at
    exit."""
    with ExitStack() as stack:
        for number in range(600):
            stack.enter_context(locks.lock(f"{number}:" + "x" * 190))
        for words in (["list", "--limit", "1000"], ["list", "--limit", "1000", "--json"]):
            process: Any = start(*words)
            os.read(process.stdout.fileno(), 10)
            process.stdout.close()
            assert process.stderr.read() == b""
            assert process.wait(30) == 0
    reading, writing = os.pipe()
    os.close(reading)
    process = start("ping", stdout=writing)
    os.close(writing)
    assert wait_for_end(process) == (0, "", "")


def line_of(process: Started) -> bytes:
    assert process.stdout is not None
    line = b""
    while not line.endswith(b"\n"):
        assert select.select([process.stdout], [], [], PATIENCE)[0], f"nothing comes after {line!r}"
        more = os.read(process.stdout.fileno(), 1)
        assert more, f"it ended after {line!r}"
        line += more
    return line


def test_watch_prints_a_document_per_line_until_ctrl_c(start: Start, down: Any) -> None:
    """Ctrl-C is its usual end, without traceback or error. It continues while a store is down."""
    with locks.lock("a"):
        process = start("watch", "--json", "--interval", "0.1")
        frames = [json.loads(line_of(process)) for _ in range(2)]
        assert [[lock["key"] for lock in frame["locks"]] for frame in frames] == [["a"], ["a"]]
    while json.loads(line_of(process))["locks"]:
        pass
    without = start("watch", "--json", "--interval", "0.1", table=down)
    for _ in range(2):
        assert "can't reach" in json.loads(line_of(without))["aliases"]["default"]["error"]
    for watching, logged in ((process, "$"), (without, "The server of locks at .* is down: .*\n$")):
        watching.send_signal(signal.SIGINT)
        code, _, err = wait_for_end(watching)
        assert code == 0
        assert re.match(logged, err)


def test_watch_ends_when_its_reader_is_gone(start: Start) -> None:
    process: Any = start("watch", "--interval", "0.1")
    assert line_of(process) == b"0 locks\n"
    process.stdout.close()
    assert process.wait(30) == 0
    assert process.stderr.read() == b""


def test_character_that_the_terminal_lacks_is_escaped(start: Start) -> None:
    """A character that its encoding lacks doesn't end the list with an error."""
    shown = {"ascii": r"\u6ce8\u6587:\xe9", "latin-1": r"\u6ce8\u6587:é", "utf-8": "注文:é"}
    with locks.lock("注文:é"):
        processes = {encoding: start("list", PYTHONIOENCODING=encoding) for encoding in shown}
        for encoding, process in processes.items():
            out, err = process.communicate(timeout=30)
            assert process.returncode == 0, err
            assert shown[encoding] in out.decode(encoding)


class Terminal:
    """The other end of a pseudo-terminal."""

    def __init__(self) -> None:
        self.mine, self.its = pty.openpty()
        self.received = ""

    def until(self, text: str) -> None:
        end = clock.now() + PATIENCE
        while text not in self.received:
            assert clock.now() < end, self.received
            if select.select([self.mine], [], [], 0.1)[0]:
                self.received += os.read(self.mine, 4096).decode()


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    terminal = Terminal()
    yield terminal
    os.close(terminal.mine)
    os.close(terminal.its)


@pytest.mark.parametrize(("typed", "code"), [("y\n", 0), ("\x03", 130), ("\x04", 1)], ids=repr)
def test_release_at_a_terminal_asks_for_confirmation(start: Start, terminal: Terminal, typed: str, code: int) -> None:
    """Ctrl-C and Ctrl-D count as a no."""
    grant = locks.lock("a", expire=60).acquire()
    process = start("release", "a", terminal=terminal.its)
    terminal.until("Release it? [y/N] ")
    assert str(grant.fence) in terminal.received
    os.write(terminal.mine, typed.encode())
    assert process.wait(30) == code
    assert "Traceback" not in terminal.received
    assert locks.lock("a").locked() == (code != 0)
    locks.lock("a").force_release()
    with pytest.raises(LockLost):
        grant.release()


def test_watch_fits_on_the_terminal(start: Start, terminal: Terminal) -> None:
    """No line is wider than the terminal, so that each frame replaces the one before."""
    with locks.lock("x" * 190):
        process = start("watch", "--interval", "0.1", stdout=terminal.its, COLUMNS="40", LINES="10")
        terminal.until("\x1b[2J")
        terminal.until("1 lock")
        process.send_signal(signal.SIGINT)
        process.wait(30)
    frame = terminal.received.split("\x1b[2J")[1].replace("\r", "")
    assert "…" in frame
    assert max(map(len, frame.splitlines())) <= 40

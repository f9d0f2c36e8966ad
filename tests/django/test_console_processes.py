"""`manage.py redis_locks` as a process of its own: pipes, terminals, signals, encodings, exit codes."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from django_redis_locks import LockLost, clock, locks
from tests.django.helpers import PATIENCE

ROOT = Path(__file__).parent.parent.parent

Started = subprocess.Popen[bytes]
Start = Callable[..., Started]


@pytest.fixture
def start(redis_locks: str) -> Iterator[Start]:
    """`start("list", ...)`: the command on the shared server, ended with the test. `TEST_…=` go into its environment."""
    running: list[Started] = []

    def begin(*words: str, stdin: Any = subprocess.DEVNULL, stdout: Any = subprocess.PIPE, **more: str) -> Started:
        table = more.pop("table", json.dumps({"default": {"LOCATION": redis_locks}}))
        environment = {**os.environ, "TEST_REDIS_LOCKS": table, "PYTHONWARNINGS": "error", **more}
        for name in ("DJANGO_SETTINGS_MODULE", "PYTHONUNBUFFERED"):
            environment.pop(name, None)
        command = [sys.executable, "-m", "django", "redis_locks", *words, "--settings", "tests.django.console_settings"]
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdin=stdin, stdout=stdout, stderr=subprocess.PIPE
        )
        running.append(process)
        return process

    yield begin
    for process in running:
        if process.poll() is None:
            process.kill()
        process.communicate()


def ended(process: Started) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=30)
    return process.returncode, (out or b"").decode(), err.decode()


def test_exit_codes_are_0_to_3_without_a_traceback(start: Start, closed_port: int) -> None:
    """0 the answer, 1 the answer is no, 2 wrong arguments, 3 a store is down. Django's own options stand behind the verb."""
    down = json.dumps({"default": {"LOCATION": f"redis://:hunter2@127.0.0.1:{closed_port}/0"}})
    with locks.lock("a"):
        listed, asked = ended(start("list")), ended(start("release", "a"))
    processes = [
        start("list"),
        start("list", "--limit", "0"),
        start(),
        start("list", table=down),
        start("release", "a", "--yes", table=down),
    ]
    empty, wrong, bare, *failed = map(ended, processes)
    assert listed[0] == 0
    assert asked[0] == 2
    assert "--yes" in asked[2]
    assert empty == (1, "0 locks\n", "")
    assert (wrong[0], bare[0]) == (2, 2)
    for code, out, err in failed:
        assert code == 3
        assert "can't reach" in err
        assert "hunter2" not in out + err
    assert not any("Traceback" in err for _, _, err in (listed, asked, empty, wrong, bare, *failed))


def test_pipe_that_closes_early_is_no_error(start: Start) -> None:
    """`… | head -1`, with more output than a pipe holds."""
    grants = [locks.lock(f"{number}:" + "x" * 190).acquire() for number in range(600)]
    try:
        for words in (["list", "--limit", "1000"], ["list", "--limit", "1000", "--json"]):
            process = start(*words)
            assert process.stderr is not None
            os.read(process.stdout.fileno(), 10)
            process.stdout.close()
            assert process.stderr.read() == b""
            assert process.wait(30) == 0
    finally:
        for grant in grants:
            grant.release()


def test_pipe_that_is_never_read_is_no_error(start: Start) -> None:
    """The output is short, so Python notices when it flushes at the end."""
    reading, writing = os.pipe()
    os.close(reading)
    process = start("ping", stdout=writing)
    os.close(writing)
    code, _, err = ended(process)
    assert (code, err) == (0, "")


def line_of(process: Started) -> bytes:
    assert process.stdout is not None
    line = b""
    while not line.endswith(b"\n"):
        assert select.select([process.stdout], [], [], PATIENCE)[0], f"nothing comes after {line!r}"
        more = os.read(process.stdout.fileno(), 1)
        assert more, f"it ended after {line!r}"
        line += more
    return line


def test_watch_prints_a_document_per_line_until_ctrl_c(start: Start) -> None:
    """Which is its usual end: no traceback, no error."""
    with locks.lock("a"):
        process = start("watch", "--json", "--interval", "0.1")
        frames = [json.loads(line_of(process)) for _ in range(2)]
        assert [[lock["key"] for lock in frame["locks"]] for frame in frames] == [["a"], ["a"]]
    while json.loads(line_of(process))["locks"]:
        pass
    process.send_signal(signal.SIGINT)
    code, _, err = ended(process)
    assert (code, err) == (0, "")


def test_watch_ends_when_its_reader_is_gone(start: Start) -> None:
    process = start("watch", "--interval", "0.1")
    assert line_of(process) == b"0 locks\n"
    process.stdout.close()
    assert process.wait(30) == 0
    assert process.stderr.read() == b""


def test_watch_goes_on_while_a_store_is_down(start: Start, closed_port: int) -> None:
    down = json.dumps({"default": {"LOCATION": f"redis://127.0.0.1:{closed_port}/0"}})
    process = start("watch", "--json", "--interval", "0.1", table=down)
    for _ in range(2):
        assert "can't reach" in json.loads(line_of(process))["aliases"]["default"]["error"]
    process.send_signal(signal.SIGINT)
    assert ended(process)[0] == 0


def test_log_line_escapes_a_hostile_name(start: Start) -> None:
    """Where logging isn't configured Python writes warnings to stderr."""
    grant = locks.lock("\x1b[31mred", expire=60).acquire()
    code, out, err = ended(start("release", "--yes", "\x1b[31mred"))
    assert code == 0
    assert r"Lock \x1b[31mred was released by force" in err
    assert (out + err).replace("\n", "").isprintable()
    with pytest.raises(LockLost):
        grant.release()


def test_letter_that_the_terminal_lacks_is_escaped(start: Start) -> None:
    """What its encoding doesn't have is no error in the middle of the list."""
    shown = {"ascii": r"\u6ce8\u6587:\xe9", "latin-1": r"\u6ce8\u6587:é", "utf-8": "注文:é"}
    with locks.lock("注文:é"):
        processes = {encoding: start("list", PYTHONIOENCODING=encoding) for encoding in shown}
        for encoding, process in processes.items():
            out, err = process.communicate(timeout=30)
            assert process.returncode == 0, err
            assert shown[encoding] in out.decode(encoding)


class Terminal:
    """The other end of a terminal."""

    def __init__(self) -> None:
        self.mine, self.its = pty.openpty()
        self.seen = ""

    def until(self, text: str) -> None:
        end = clock.now() + PATIENCE
        while text not in self.seen:
            assert clock.now() < end, self.seen
            if select.select([self.mine], [], [], 0.1)[0]:
                self.seen += os.read(self.mine, 4096).decode()

    def type(self, text: str) -> None:
        os.write(self.mine, text.encode())

    def close(self) -> None:
        os.close(self.mine)
        os.close(self.its)


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    terminal = Terminal()
    yield terminal
    terminal.close()


@pytest.mark.parametrize(("typed", "code"), [("y\n", 0), ("n\n", 1), ("\x03", 130), ("\x04", 1)], ids=repr)
def test_release_at_a_terminal_asks(start: Start, terminal: Terminal, typed: str, code: int) -> None:
    """Ctrl-C and Ctrl-D are a no, too."""
    grant = locks.lock("a", expire=60).acquire()
    words = [sys.executable, "-m", "django", "redis_locks", "release", "a"]
    environment = {
        **os.environ,
        "TEST_REDIS_LOCKS": json.dumps({"default": {"LOCATION": locks["default"].settings.location}}),
        "DJANGO_SETTINGS_MODULE": "tests.django.console_settings",
    }
    process = subprocess.Popen(
        [sys.executable, "-c", _IN_TERMINAL, *words],
        cwd=ROOT,
        env=environment,
        stdin=terminal.its,
        stdout=terminal.its,
        stderr=terminal.its,
        start_new_session=True,
    )
    try:
        terminal.until("Release it? [y/N] ")
        assert str(grant.fence) in terminal.seen
        terminal.type(typed)
        assert process.wait(30) == code
        assert "Traceback" not in terminal.seen
        assert locks.lock("a").locked() == (code != 0)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        locks.lock("a").force_release()
        with pytest.raises(LockLost):
            grant.release()


_IN_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""
"""Makes the terminal that of the session, so that Ctrl-C is a signal."""


def test_watch_fits_on_the_terminal(start: Start, terminal: Terminal) -> None:
    """No line is longer than the terminal is wide, so that each frame replaces the one before."""
    with locks.lock("x" * 190):
        process = start("watch", "--interval", "0.1", stdout=terminal.its, COLUMNS="40", LINES="10")
        terminal.until("\x1b[2J")
        terminal.until("1 lock")
        process.send_signal(signal.SIGINT)
        process.wait(30)
    frame = terminal.seen.split("\x1b[2J")[1].replace("\r", "")
    assert "…" in frame
    assert max(map(len, frame.splitlines())) <= 40

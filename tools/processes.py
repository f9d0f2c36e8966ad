"""What every server of our own needs: a free port, and an end that comes with ours."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from signal import SIGKILL

HOST = "127.0.0.1"

# Below the range that Linux hands out to outgoing connections, and so that the port of the cluster bus (+ 10000) is too.
PORTS = range(15_000, 22_000)
BUS_OFFSET = 10_000


class ServerNotFound(Exception):
    """No server of this kind can be had on this machine."""


class ServerFailed(Exception):
    """A server didn't start; the message ends with the tail of its log."""


def free_port() -> int:
    chance = random.SystemRandom()  # the module's own generator is seeded alike in every test by pytest-randomly
    for _ in range(100):
        port = chance.choice(PORTS)
        if _is_free(port) and _is_free(port + BUS_OFFSET):
            return port
    raise ServerFailed(f"There is no free port between {PORTS.start} and {PORTS.stop}.")


def on_free_port(launch: Callable[[int], object]) -> None:
    """Launch a server on a port that is free; on another one if somebody else was faster.

    Raises:
        ServerFailed: as ``launch`` does.
    """
    for attempt in range(5):
        try:
            launch(free_port())
        except ServerFailed as error:
            if "Address already in use" not in str(error) or attempt == 4:
                raise
        else:
            return


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def with_parent(signal: int = SIGKILL, *, user: str = "") -> list[str]:
    """A command to put before another one, so that Linux ends it when this process dies, however it dies.

    Linux watches the *thread* that started the process, hence only the main one. A `preexec_fn` would do it without
    one more program, but forks: not while other threads run. `user` is who runs the other one; that is done there too,
    because that user may not be able to read our Python.
    """
    watched = sys.platform == "linux" and threading.current_thread() is threading.main_thread()
    if not watched and not user:
        return []
    program = (
        "import ctypes, os, signal as signals, sys\n"
        "parent, signal, user, *command = sys.argv[1:]\n"
        "if user:\n"
        "    import pwd\n"
        "    person = pwd.getpwnam(user)\n"
        "    os.initgroups(user, person.pw_gid)\n"
        "    os.setgid(person.pw_gid)\n"
        "    os.setuid(person.pw_uid)\n"
        "if int(signal):\n"
        "    if int(signal) != signals.SIGKILL: signals.signal(int(signal), signals.SIG_DFL)\n"  # shells ignore some for &
        "    ctypes.CDLL(None).prctl(1, int(signal))\n"  # PR_SET_PDEATHSIG; kept by exec, not by setuid
        "if os.getppid() != int(parent): sys.exit('The parent is gone.')\n"
        "os.execv(command[0], command)\n"
    )
    return [sys.executable, "-I", "-S", "-c", program, str(os.getpid()), str(int(signal) if watched else 0), user]


def last_lines(path: Path, lines: int) -> str:
    """The end of a log, for a message; "" if there is none."""
    with contextlib.suppress(OSError):
        return "\n".join(path.read_text(errors="replace").splitlines()[-lines:])
    return ""

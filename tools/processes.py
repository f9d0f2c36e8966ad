"""Helpers of servers: free ports, and processes that end with this one."""

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

# Below the range that Linux uses for outgoing connections, also for the port of the cluster bus (+ 10000).
PORTS = range(15_000, 22_000)
BUS_OFFSET = 10_000


class ServerNotFound(Exception):
    """The server isn't available on this machine."""


class ServerFailed(Exception):
    """A server didn't start; the message ends with the tail of its log."""


def free_port() -> int:
    generator = random.SystemRandom()  # pytest-randomly seeds the default generator equally in every test
    for _ in range(100):
        port = generator.choice(PORTS)
        if _is_free(port) and _is_free(port + BUS_OFFSET):
            return port
    raise ServerFailed(f"There is no free port between {PORTS.start} and {PORTS.stop}.")


def on_free_port(launch: Callable[[int], object]) -> None:
    """Launch a server on a free port; on another one if a different process takes it first.

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


def die_with_parent(signal: int = SIGKILL, *, user: str = "") -> list[str]:
    """The prefix of a command that Linux ends when this process dies in any way.

    Linux watches the *thread* that starts the process: start it in the main thread. A `preexec_fn` isn't safe with
    threads. `user` runs the command; the prefix switches to it, because that user may not be able to read this Python.
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
        "    if int(signal) != signals.SIGKILL: signals.signal(int(signal), signals.SIG_DFL)\n"  # shells ignore some signals of background jobs
        "    ctypes.CDLL(None).prctl(1, int(signal))\n"  # PR_SET_PDEATHSIG; kept by exec, not by setuid
        "if os.getppid() != int(parent): sys.exit('The parent is gone.')\n"
        "os.execv(command[0], command)\n"
    )
    return [sys.executable, "-I", "-S", "-c", program, str(os.getpid()), str(int(signal) if watched else 0), user]


def last_lines(path: Path, lines: int) -> str:
    """The end of a log, for error messages; "" without a log."""
    with contextlib.suppress(OSError):
        return "\n".join(path.read_text(errors="replace").splitlines()[-lines:])
    return ""

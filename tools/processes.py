"""What every server of our own needs: a free port, and an end that comes with ours."""

from __future__ import annotations

import os
import random
import socket
import sys
import threading

HOST = "127.0.0.1"

# Below the range that Linux hands out to outgoing connections, and so that the port of the cluster bus (+ 10000) is too.
PORTS = range(15_000, 22_000)
BUS_OFFSET = 10_000


class ServerFailed(Exception):
    """A server didn't start; the message ends with the tail of its log."""


def free_port() -> int:
    chance = random.SystemRandom()  # the module's own generator is seeded alike in every test by pytest-randomly
    for _ in range(100):
        port = chance.choice(PORTS)
        if _is_free(port) and _is_free(port + BUS_OFFSET):
            return port
    raise ServerFailed(f"There is no free port between {PORTS.start} and {PORTS.stop}.")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def with_parent() -> list[str]:
    """A command to put before another one, so that Linux ends it when this process dies, however it dies.

    Linux watches the *thread* that started the process, hence only the main one. A `preexec_fn` would do it without
    one more program, but forks: not while other threads run.
    """
    if sys.platform != "linux" or threading.current_thread() is not threading.main_thread():
        return []
    program = (
        "import ctypes, os, signal, sys\n"
        "ctypes.CDLL(None).prctl(1, signal.SIGKILL)\n"  # PR_SET_PDEATHSIG, kept by exec
        "if os.getppid() != int(sys.argv[1]): sys.exit('The parent is gone.')\n"
        "os.execv(sys.argv[2], sys.argv[2:])\n"
    )
    return [sys.executable, "-I", "-S", "-c", program, str(os.getpid())]

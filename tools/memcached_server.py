"""A real memcached for the tests: the installed one, such as Debian's package `memcached`.

    with Memcached() as server:
        server.address

It has a free port of 127.0.0.1 and its own log, and ends with this process at the latest.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Final, Self

from .processes import HOST, ServerFailed, ServerNotFound, die_with_parent, last_lines, on_free_port

START_SECONDS: Final = 30.0
PACKAGE: Final = "memcached"


class Memcached:
    """One server, to be used with ``with``."""

    def __init__(self) -> None:
        executable = shutil.which("memcached")
        if executable is None:
            raise ServerNotFound(f"There is no memcached on this machine. Install the package {PACKAGE}.")
        self._command = [executable, "-l", HOST, "-U", "0"]
        if os.getuid() == 0:
            self._command += ["-u", "root"]  # required if started by root

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    def __enter__(self) -> Self:
        on_free_port(self._launch)
        return self

    def _launch(self, port: int) -> None:
        self.port = port
        command = [*die_with_parent(), *self._command, "-p", str(self.port)]
        with tempfile.NamedTemporaryFile(prefix="memcached-") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            try:
                self._await(Path(log.name))
            except BaseException:
                self.kill()
                raise

    def __exit__(self, *exc_info: object) -> None:
        self.kill()

    def flush(self) -> None:
        """
        Raises:
            ServerFailed: it doesn't reply.
        """
        if not self._ask(b"flush_all", b"OK"):
            raise ServerFailed(f"memcached on port {self.port} doesn't answer.")

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def _await(self, log: Path) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not self._ask(b"stats", b"STAT pid %d\r\n" % self._process.pid):  # another server may have the port
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise ServerFailed(f"memcached didn't start on port {self.port}:\n{last_lines(log, 30)}")
            time.sleep(0.02)

    def _ask(self, command: bytes, answer: bytes) -> bool:
        with contextlib.suppress(OSError), socket.create_connection((HOST, self.port), timeout=10) as connection:
            connection.sendall(command + b"\r\n")
            return connection.recv(len(answer)) == answer
        return False

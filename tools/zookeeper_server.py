"""Real ZooKeeper servers for the tests: those of Debian's package `zookeeper`, with a JRE.

    with ZooKeeperEnsemble(3) as ensemble:
        ensemble.location()

Each server has free ports of 127.0.0.1 and a folder of its own, and ends with this process at the latest.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Final, Self

from .processes import HOST, ServerFailed, ServerNotFound, die_with_parent, free_port, last_lines

START_SECONDS: Final = 60.0
JAR: Final = Path("/usr/share/java/zookeeper.jar")
TICK: Final = 500
"""Milliseconds. The servers give sessions timeouts from 2 to ``LONGEST`` ticks."""

LONGEST: Final = 7200


class ZooKeeperServer:
    """One server. `others` are the addresses of all servers of its ensemble, by their numbers; empty for a single one."""

    def __init__(self, folder: Path, number: int, port: int, others: dict[int, str]) -> None:
        self.port = port
        self._number = number
        self._folder = folder
        data = folder / "data"
        data.mkdir(parents=True)
        (data / "myid").write_text(f"{number}\n")
        lines = [
            f"tickTime={TICK}",
            "initLimit=20",
            "syncLimit=10",
            f"dataDir={data}",
            f"clientPort={port}",
            f"clientPortAddress={HOST}",
            f"maxSessionTimeout={LONGEST * TICK}",
            "maxClientCnxns=0",
            "4lw.commands.whitelist=*",
            "admin.enableServer=false",
            *(f"server.{other}={address}" for other, address in others.items()),
        ]
        (folder / "zoo.cfg").write_text("\n".join(lines) + "\n")
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def pid(self) -> int:
        if self._process is None:
            raise ServerFailed("The server isn't running.")
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def launch(self) -> None:
        """Start the server, without waiting for it."""
        java = shutil.which("java")
        if java is None or not JAR.exists():
            raise ServerNotFound(
                "There is no ZooKeeper on this machine. Install the packages zookeeper and default-jre-headless."
            )
        options = ["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dzookeeper.forceSync=no"]
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        command = [*die_with_parent(), java, *options, "-cp", str(JAR), main, str(self._folder / "zoo.cfg")]
        with (self._folder / "zookeeper.log").open("ab") as log:
            self._process = subprocess.Popen(
                command, cwd=self._folder, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
            )

    def mode(self) -> str:
        """Return "leader", "follower" or "standalone"; "" if the server doesn't serve."""
        with contextlib.suppress(OSError), socket.create_connection((HOST, self.port), timeout=5) as connection:
            connection.sendall(b"srvr")
            with connection.makefile() as reply:
                for line in reply:
                    if line.startswith("Mode: "):
                        return line.split()[1]
        return ""

    def await_service(self) -> None:
        """
        Raises:
            ServerFailed: the server doesn't serve in time.
        """
        deadline = time.monotonic() + START_SECONDS
        while not self.mode():
            if self._process is None or self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise ServerFailed(f"ZooKeeper didn't start on port {self.port}:\n{self.log()}")
            time.sleep(0.05)

    def kill(self) -> None:
        """Send SIGKILL, like a crash; `launch` starts the server again with its data."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def pause(self) -> None:
        """Send SIGSTOP: connections stay open without replies. Returns when the process has stopped."""
        os.kill(self.pid, signal.SIGSTOP)
        os.waitpid(self.pid, os.WUNTRACED)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def log(self, lines: int = 20) -> str:
        return last_lines(self._folder / "zookeeper.log", lines)


class ZooKeeperEnsemble:
    """One server, or several that elect a leader, to be used with ``with``."""

    def __init__(self, size: int = 1) -> None:
        self._size = size
        self.servers: list[ZooKeeperServer] = []

    def __enter__(self) -> Self:
        self._folder = Path(tempfile.mkdtemp(prefix="zookeeper-"))
        numbers = range(1, self._size + 1)
        others: dict[int, str] = {}
        if self._size > 1:
            others = {number: f"{HOST}:{free_port()}:{free_port()}" for number in numbers}
        self.servers = [ZooKeeperServer(self._folder / str(number), number, free_port(), others) for number in numbers]
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exc_info: object) -> None:
        for server in self.servers:
            server.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    def start(self) -> None:
        """Start the servers that don't run, and wait until all of them serve."""
        for server in self.servers:
            if not server.running:
                server.launch()
        for server in self.servers:
            server.await_service()

    def location(self, path: str = "") -> str:
        """The LOCATION of a ``ZooKeeperBackend``."""
        return ",".join(server.address for server in self.servers) + path

    def leader(self) -> ZooKeeperServer:
        """Return the server that leads now."""
        return next(server for server in self.servers if server.mode() in ("leader", "standalone"))

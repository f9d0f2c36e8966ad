"""Real Redis servers for the tests, the demo and the benchmarks: start, pause, kill, restart and stop.

    with RedisServer({"requirepass": "x"}) as server:
        redis.Redis.from_url(server.url())

Each server has a free port of 127.0.0.1, a temporary folder, and no persistence by default. It ends only the process
that it started, by pid; that process also ends when this one dies. Needs only the standard library.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

from .processes import HOST, ServerFailed, die_with_parent, last_lines, on_free_port
from .redis_binary import find_server

START_SECONDS = 60.0
STOP_SECONDS = 20.0
SLOTS = 16384

Config = Mapping[str, str | int | Sequence[str]]
Reply = Any


class ReplyError(Exception):
    """The server replied with an error."""


class RedisServer:
    """One server process. `config` has the names of redis.conf; a list stands for several lines with one name."""

    def __init__(
        self, config: Config | None = None, *, executable: Path | None = None, arguments: Sequence[str] = ()
    ) -> None:
        self._arguments = arguments
        self.config: dict[str, str | int | Sequence[str]] = {
            "bind": HOST,
            "save": "",
            "appendonly": "no",
            "loglevel": "warning",
            **(config or {}),
        }
        self.executable = executable or find_server()
        self.folder = Path()
        self.port = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._started_by = 0

    def __enter__(self) -> Self:
        return self if self._process else self.start()

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<RedisServer {self.executable.name} {'.'.join(map(str, self.version))} on port {self.port}>"

    @property
    def pid(self) -> int:
        if self._process is None:
            raise ServerFailed("The server isn't running.")
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def version(self) -> tuple[int, ...]:
        """The version of the binary, such as (7, 0, 15); for Valkey that of Valkey."""
        output = subprocess.run([self.executable, "--version"], check=True, capture_output=True, text=True).stdout
        match = re.search(r"v=(\d+)\.(\d+)\.(\d+)", output)
        if match is None:
            raise ServerFailed(f"{self.executable} doesn't tell its version: {output!r}")
        return tuple(map(int, match.groups()))

    def url(self, db: int = 0) -> str:
        password = self.config.get("requirepass")
        login = f":{quote(str(password), safe='')}@" if password else ""
        return f"redis://{login}{HOST}:{self.port}/{db}"

    def start(self) -> Self:
        self.folder = Path(tempfile.mkdtemp(prefix="redis-"))
        self._started_by = os.getpid()
        atexit.register(self.stop)
        fixed = self.config.get("port")
        try:
            if fixed:
                self._launch(int(str(fixed)))
            else:
                on_free_port(self._launch)
        except ServerFailed:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """End the process and remove its folder. Does nothing in a forked child."""
        if self._started_by != os.getpid():
            return
        atexit.unregister(self.stop)
        self._started_by = 0
        self.kill()
        self._process = None
        shutil.rmtree(self.folder, ignore_errors=True)

    def kill(self) -> None:
        """Send SIGKILL, like a crash. The folder stays, and `restart()` starts the server again."""
        if self._process is not None:
            self._process.kill()  # also ends a paused process
            self._process.wait()

    def pause(self) -> None:
        """Send SIGSTOP: connections stay open without replies. Returns when the process has stopped."""
        os.kill(self.pid, signal.SIGSTOP)
        os.waitpid(self.pid, os.WUNTRACED)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def restart(self, *, keep_data: bool = False) -> None:
        """Start again on the same port and in the same folder, after a shutdown or `kill()`.

        With `keep_data` a running server saves its data first; after `kill()` it loads what was on the disk.
        """
        if self.running:
            self.resume()
            if keep_data:
                with contextlib.suppress(OSError):  # one step: no write between saving and shutdown is lost
                    self.command("SHUTDOWN", "SAVE")
            self._terminate()
        if not keep_data:
            (self.folder / "dump.rdb").unlink(missing_ok=True)
            (self.folder / "appendonly.aof").unlink(missing_ok=True)
            shutil.rmtree(self.folder / "appendonlydir", ignore_errors=True)
        self._launch(self.port)

    def command(self, *words: str | int) -> Reply:
        """Send a command on a new connection. An error reply is raised as `ReplyError`."""
        password = self.config.get("requirepass")
        with socket.create_connection((HOST, self.port), timeout=STOP_SECONDS) as connection:
            if password:
                _converse(connection, "AUTH", str(password))
            return _converse(connection, *words)

    def flush(self) -> None:
        self.command("FLUSHALL")

    def log(self, lines: int = 20) -> str:
        return last_lines(self.folder / "redis.log", lines)

    def _launch(self, port: int) -> None:
        self.port = port
        lines = [f"port {self.port}", f"dir {self.folder}"]
        for name, value in self.config.items():
            if name != "port":
                values = [str(value)] if isinstance(value, (str, int)) else value
                lines += [f"{name} {one}" if one else f'{name} ""' for one in values]
        if self.config.get("cluster-enabled") == "yes":
            lines.append(f"cluster-announce-ip {HOST}")
        (self.folder / "redis.conf").write_text("\n".join(lines) + "\n")
        with (self.folder / "redis.log").open("wb") as log:
            command = [*die_with_parent(), str(self.executable), str(self.folder / "redis.conf"), *self._arguments]
            self._process = subprocess.Popen(
                command, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
            )
        deadline = time.monotonic() + START_SECONDS
        while not self._answers():
            if not self.running or time.monotonic() > deadline:
                self.kill()
                raise ServerFailed(f"{self.executable} didn't start on port {self.port}:\n{self.log()}")
            time.sleep(0.01)

    def _answers(self) -> bool:
        """Whether *this* server replies: another process may have taken the port first."""
        try:
            info = self.command("INFO", "server")
            self.command("PING")  # while it is loading only INFO works
        except ReplyError as error:
            return self.running and not str(error).startswith("LOADING")  # the user may not have the right for INFO
        except OSError:
            return False
        return f"process_id:{self.pid}\r" in info

    def _terminate(self) -> None:
        if self._process is not None:
            self._process.terminate()  # a shutdown that has begun continues
            try:
                self._process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.kill()


def one_node_cluster(config: Config | None = None, *, executable: Path | None = None) -> RedisServer:
    """Start a server in cluster mode that has all slots: scripts with keys of two slots fail."""
    server = RedisServer({"cluster-enabled": "yes", **(config or {})}, executable=executable).start()
    try:
        if server.version >= (7, 0):
            server.command("CLUSTER", "ADDSLOTSRANGE", 0, SLOTS - 1)
        else:
            for first in range(0, SLOTS, 4096):
                server.command("CLUSTER", "ADDSLOTS", *range(first, first + 4096))
        deadline = time.monotonic() + START_SECONDS
        while "cluster_state:ok" not in server.command("CLUSTER", "INFO"):  # a new master waits for 2 s
            if time.monotonic() > deadline:
                raise ServerFailed(f"The cluster of one node doesn't come up:\n{server.log()}")
            time.sleep(0.05)
    except BaseException:
        server.stop()
        raise
    return server


def _converse(connection: socket.socket, *words: str | int) -> Reply:
    parts = [str(word).encode() for word in words]
    connection.sendall(b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%b\r\n" % (len(part), part) for part in parts))
    with connection.makefile("rb") as stream:
        return _read(stream)


def _read(stream: Any) -> Reply:
    line = stream.readline()
    if not line.endswith(b"\r\n"):
        raise ConnectionError("The server closed the connection.")
    kind, rest = line[:1], line[1:-2].decode()
    if kind == b"-":
        raise ReplyError(rest)
    if kind == b"+":
        return rest
    if kind == b":":
        return int(rest)
    if kind == b"*":
        return [_read(stream) for _ in range(int(rest))]
    if int(rest) < 0:
        return None
    return stream.read(int(rest) + 2)[:-2].decode(errors="replace")

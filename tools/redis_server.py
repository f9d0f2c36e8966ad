"""Real Redis servers for the tests, the demo and the benchmarks: started, hurt and ended.

    with RedisServer({"requirepass": "x"}) as server:
        redis.Redis.from_url(server.url())

Each server is our own: a free port of 127.0.0.1, a temporary folder, no persistence unless asked for. It ends only the
process that it started, by pid, and takes it along when this process dies. The standard library is enough.
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

from .processes import HOST, ServerFailed, last_lines, on_free_port, with_parent
from .redis_binary import find_server

START_SECONDS = 60.0
STOP_SECONDS = 20.0
SLOTS = 16384

Config = Mapping[str, str | int | Sequence[str]]
Reply = Any


class ReplyError(Exception):
    """The server answered with an error."""


class RedisServer:
    """One server process. `config` holds redis.conf's own names; a list gives several lines of one name."""

    def __init__(self, config: Config | None = None, *, executable: Path | None = None) -> None:
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
        """What the binary says, such as (7, 0, 15); Valkey's own number for Valkey."""
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
        """Ends the process and removes its folder. A forked child leaves its parent's server alone."""
        if self._started_by != os.getpid():
            return
        atexit.unregister(self.stop)
        self._started_by = 0
        self.kill()
        self._process = None
        shutil.rmtree(self.folder, ignore_errors=True)

    def kill(self) -> None:
        """SIGKILL, as a crash would: the folder stays, `restart()` brings the server back."""
        if self._process is not None:
            self._process.kill()  # does nothing if we have already seen it end; also ends a paused process
            self._process.wait()

    def pause(self) -> None:
        """SIGSTOP: connections stay open and nobody answers. Returns when the process has stopped."""
        os.kill(self.pid, signal.SIGSTOP)
        os.waitpid(self.pid, os.WUNTRACED)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def restart(self, *, keep_data: bool = False) -> None:
        """Starts again on the same port and in the same folder, after an orderly end or after `kill()`.

        With `keep_data` what the server holds at its end is saved; after `kill()` it finds what was on the disk.
        """
        if self.running:
            self.resume()
            if keep_data:
                with contextlib.suppress(OSError):  # one step: nothing that was done after the saving is undone
                    self.command("SHUTDOWN", "SAVE")
            self._terminate()
        if not keep_data:
            (self.folder / "dump.rdb").unlink(missing_ok=True)
            (self.folder / "appendonly.aof").unlink(missing_ok=True)
            shutil.rmtree(self.folder / "appendonlydir", ignore_errors=True)
        self._launch(self.port)

    def command(self, *words: str | int) -> Reply:
        """One command on a connection of its own; an error reply is raised as `ReplyError`."""
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
            command = [*with_parent(), str(self.executable), str(self.folder / "redis.conf")]
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
        """Whether *our* process answers: somebody else's server may have taken the port before us."""
        try:
            info = self.command("INFO", "server")
            self.command("PING")  # while it is loading only the former is answered
        except ReplyError as error:
            return self.running and not str(error).startswith("LOADING")  # the rights may not reach as far as INFO
        except OSError:
            return False
        return f"process_id:{self.pid}\r" in info

    def _terminate(self) -> None:
        if self._process is not None:
            self._process.terminate()  # an orderly end that has begun goes on
            try:
                self._process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.kill()


def one_node_cluster(config: Config | None = None, *, executable: Path | None = None) -> RedisServer:
    """A started server in cluster mode that owns every slot: keys of two slots in one script fail at once."""
    server = RedisServer({"cluster-enabled": "yes", **(config or {})}, executable=executable).start()
    try:
        if server.version >= (7, 0):
            server.command("CLUSTER", "ADDSLOTSRANGE", 0, SLOTS - 1)
        else:
            for first in range(0, SLOTS, 4096):
                server.command("CLUSTER", "ADDSLOTS", *range(first, first + 4096))
        deadline = time.monotonic() + START_SECONDS
        while "cluster_state:ok" not in server.command("CLUSTER", "INFO"):  # a new master waits 2 s by itself
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

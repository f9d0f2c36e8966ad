"""Real database servers for the tests and the demo: the installed PostgreSQL and MariaDB.

    with PostgreSQL() as server:
        DATABASES = {"default": server.settings()}

Each has a temporary folder with its data and socket, no port, and no durability, for speed. It ends only the process
that it started, by pid; that process also ends when this one dies. Neither server runs as root: root starts it as
`nobody`.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar, Self

from .processes import ServerFailed, ServerNotFound, die_with_parent, last_lines

START_SECONDS = 60.0
STOP_SECONDS = 10.0
USER = "nobody" if hasattr(os, "geteuid") and os.geteuid() == 0 else ""


class DatabaseServer(ABC):
    """One server process. Subclasses implement the abstract methods."""

    package: ClassVar[str]
    """The name of Debian's package."""
    place: ClassVar[str]
    """Folders of its programs, if they aren't on PATH."""
    end: ClassVar[signal.Signals]
    """The signal that ends it at once, without saving."""

    def __init__(self) -> None:
        self.folder = Path()
        self._process: subprocess.Popen[bytes] | None = None
        self._started_by = 0

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        if self._process is None:
            raise ServerFailed("The server isn't running.")
        return self._process.pid

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @abstractmethod
    def init_command(self) -> list[str]:
        """The command that initializes the data folder."""

    @abstractmethod
    def running(self) -> list[str]:
        """The command that runs the server."""

    @abstractmethod
    def ready(self) -> bool:
        """Whether it accepts connections."""

    @abstractmethod
    def settings(self, name: str = "") -> dict[str, Any]:
        """An entry of Django's `DATABASES`; by default for an existing database."""

    def program(self, name: str) -> str:
        folders = sorted(Path("/").glob(self.place), key=_version, reverse=True)
        found = shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", ""), *map(str, folders)]))
        if found is None:
            raise ServerNotFound(f"There is no {name} on this machine. Install the package {self.package}.")
        return found

    def start(self) -> Self:
        self.folder = Path(tempfile.mkdtemp(prefix="db-"))
        self._started_by = os.getpid()
        atexit.register(self.stop)
        try:
            if USER:
                shutil.chown(self.folder, USER)
            self._make()
            self._launch()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """End the process and remove its folder. Does nothing in a forked child."""
        if self._started_by != os.getpid():
            return
        atexit.unregister(self.stop)
        self._started_by = 0
        if self._process is not None:
            self._process.send_signal(self.end)
            try:
                self._process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None
        shutil.rmtree(self.folder, ignore_errors=True)

    def _make(self) -> None:
        command = [*die_with_parent(user=USER), *self.init_command()]
        made = subprocess.run(
            command, cwd=self.folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
        if made.returncode:
            raise ServerFailed(f"{self.init_command()[0]} failed:\n{made.stdout}{made.stderr}")

    def _launch(self) -> None:
        with (self.folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [*die_with_parent(self.end, user=USER), *self.running()],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        deadline = time.monotonic() + START_SECONDS
        while not self.ready():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise ServerFailed(f"{self.running()[0]} didn't start:\n{self.log()}")
            time.sleep(0.02)

    def log(self, lines: int = 20) -> str:
        return last_lines(self.folder / "log", lines)


def _version(folder: Path) -> list[int]:
    return [int(part) for part in folder.parts if part.isdigit()]


class PostgreSQL(DatabaseServer):
    """Listens on a socket in its folder."""

    package = "postgresql"
    place = "usr/lib/postgresql/*/bin"
    end = signal.SIGQUIT  # SIGKILL would leave shared memory behind

    def init_command(self) -> list[str]:
        # --no-sync and the locale C are faster
        options = ["--no-sync", "--no-instructions", "--auth=trust", "--username=postgres", "--locale=C"]
        return [self.program("initdb"), f"--pgdata={self.data}", "--encoding=UTF8", *options]

    def running(self) -> list[str]:
        options = {
            "unix_socket_directories": self.folder,
            "listen_addresses": "",
            "max_connections": 200,
            "shared_buffers": "32MB",
            "fsync": "off",
            "synchronous_commit": "off",
            "full_page_writes": "off",
        }
        return [self.program("postgres"), "-D", str(self.data), *(f"--{key}={value}" for key, value in options.items())]

    def ready(self) -> bool:
        with contextlib.suppress(OSError):
            return (self.data / "postmaster.pid").read_text().splitlines()[7:8] == ["ready   "]
        return False

    def settings(self, name: str = "") -> dict[str, Any]:
        return {
            "ENGINE": "django.db.backends.postgresql",
            "HOST": str(self.folder),
            "NAME": name or "postgres",
            "USER": "postgres",
        }


class MariaDB(DatabaseServer):
    """Listens on a socket in its folder. Django needs a driver with the module name `MySQLdb`."""

    package = "mariadb-server"
    place = "usr/sbin"
    end = signal.SIGKILL

    @property
    def socket(self) -> str:
        return str(self.folder / "socket")

    @property
    def folder_options(self) -> list[str]:
        """Options for its folders of data and temporary files. At its start a server empties the latter, so that
        servers can't share it (the default is `/tmp`)."""
        return [f"--datadir={self.data}", f"--tmpdir={self.folder}"]

    def init_command(self) -> list[str]:
        options = ["--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve"]
        return [self.program("mariadb-install-db"), "--no-defaults", *self.folder_options, *options]

    def running(self) -> list[str]:
        options = [
            f"--socket={self.socket}",
            f"--pid-file={self.folder / 'pid'}",
            "--skip-networking",
            "--max-connections=200",
            "--character-set-server=utf8mb4",
            "--innodb-buffer-pool-size=32M",
            "--innodb-flush-log-at-trx-commit=0",
            "--loose-innodb-snapshot-isolation=OFF",  # as in MySQL and before 11.6; the newer default hides lost updates
        ]
        return [self.program("mariadbd"), "--no-defaults", *self.folder_options, *options]

    def ready(self) -> bool:
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(STOP_SECONDS)
            connection.connect(self.socket)
            return len(connection.recv(1)) == 1  # its greeting
        return False

    def settings(self, name: str = "") -> dict[str, Any]:
        return {
            "ENGINE": "django.db.backends.mysql",
            "HOST": self.socket,
            "NAME": name or "mysql",
            "USER": "root",
            "OPTIONS": {"charset": "utf8mb4"},
        }

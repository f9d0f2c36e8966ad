"""A real RabbitMQ for the tests: the installed one, such as Debian's package `rabbitmq-server`.

    with RabbitMQ() as broker:
        broker.url()

The node has a temporary folder with its data, free ports of 127.0.0.1, and its own epmd, so that it never connects to
another node. It ends only the processes that it started, by pid; they also end when this process dies.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Final, Self

from .processes import HOST, ServerFailed, ServerNotFound, die_with_parent, free_port, last_lines

START_SECONDS: Final = 60.0
PACKAGE: Final = "rabbitmq-server"


class RabbitMQ:
    """One node. It starts in some seconds."""

    def __init__(self) -> None:
        self.folder = Path()
        self.port = 0
        self._processes: list[subprocess.Popen[bytes]] = []
        self._started_by = 0

    def __enter__(self) -> Self:
        return self if self._processes else self.start()

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    def url(self) -> str:
        return f"amqp://guest:guest@{HOST}:{self.port}//"

    def start(self) -> Self:
        server, epmd = _installed()
        self.folder = Path(tempfile.mkdtemp(prefix="rabbit-"))
        self._started_by = os.getpid()
        atexit.register(self.stop)
        self.port = free_port()
        names = free_port()
        environment = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(self.folder),  # for its cookie
            "LANG": "C.UTF-8",
            "ERL_EPMD_PORT": str(names),
            "ERL_EPMD_ADDRESS": HOST,
            "RABBITMQ_NODENAME": f"rabbit{self.port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": HOST,
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_CONF_ENV_FILE": str(self.folder / "none"),
            "RABBITMQ_CONFIG_FILE": str(self.folder / "rabbitmq"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.folder / "plugins"),
            "RABBITMQ_MNESIA_BASE": str(self.folder / "data"),
            "RABBITMQ_LOG_BASE": str(self.folder / "log"),
            "RABBITMQ_PID_FILE": str(self.folder / "pid"),
            "RUNNING_UNDER_SYSTEMD": "true",  # no shell in between: the process is the node itself
            # one core is enough, without busy waiting
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+S 1:1 +sbwt none +sbwtdcpu none +sbwtdio none",
        }
        (self.folder / "plugins").write_text("[].\n")
        (self.folder / "rabbitmq.conf").write_text("loopback_users.guest = true\n")
        try:
            self._launch([epmd, "-address", HOST, "-port", str(names)], environment)
            self._launch([server], environment)
            self._await()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """End both processes and remove the folder. Does nothing in a forked child."""
        if self._started_by != os.getpid():
            return
        atexit.unregister(self.stop)
        self._started_by = 0
        while self._processes:
            process = self._processes.pop()
            process.kill()
            process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def log(self, lines: int = 30) -> str:
        return last_lines(self.folder / "output", lines)

    def _launch(self, command: list[str], environment: dict[str, str]) -> None:
        with (self.folder / "output").open("ab") as log:
            self._processes.append(
                subprocess.Popen(
                    [*die_with_parent(), *command],
                    cwd=self.folder,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                )
            )

    def _await(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not self._answers():
            if self._processes[-1].poll() is not None or time.monotonic() > deadline:
                raise ServerFailed(f"RabbitMQ didn't start on port {self.port}:\n{self.log()}")
            time.sleep(0.05)

    def _answers(self) -> bool:
        """Whether it replies to a client of another protocol version."""
        with contextlib.suppress(OSError), socket.create_connection((HOST, self.port), timeout=2) as connection:
            connection.sendall(b"AMQP\x00\x00\x00\x00")
            return connection.recv(4) == b"AMQP"
        return False


def _installed() -> tuple[str, str]:
    """The script that starts the server as the current user, and Erlang's name server."""
    home = shutil.which("rabbitmq-server", path=os.pathsep.join(map(str, Path("/").glob("usr/lib/rabbitmq/bin"))))
    epmd = shutil.which("epmd")
    if home is None or epmd is None:
        raise ServerNotFound(f"There is no RabbitMQ on this machine. Install the package {PACKAGE}.")
    return home, epmd

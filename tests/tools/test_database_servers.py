"""The databases that other tests trust: started, and never left behind."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers import unavailable
from tests.tools.test_redis_server import is_alive
from tools.database_servers import DatabaseServer, MariaDB, PostgreSQL
from tools.processes import ServerFailed, ServerNotFound


@pytest.fixture(params=[PostgreSQL, MariaDB])
def server(request: pytest.FixtureRequest) -> Iterator[DatabaseServer]:
    try:
        with request.param() as server:
            yield server
    except ServerNotFound as error:
        unavailable(str(error))


def test_end_leaves_neither_process_nor_folder(server: DatabaseServer) -> None:
    pid = server.pid
    assert is_alive(pid)
    child = os.fork()
    if child == 0:
        server.stop()  # its parent's, not its own
        os._exit(0)
    os.waitpid(child, 0)
    assert is_alive(pid)
    server.stop()
    assert not is_alive(pid)
    assert not server.folder.exists()
    server.stop()


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")
def test_server_dies_with_its_process(server: DatabaseServer, tmp_path) -> None:
    kind = type(server).__name__
    program = (
        f"from tools.database_servers import {kind}; s = {kind}().start(); print(s.pid, s.folder, flush=True); input()"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        pid, folder = parent.stdout.readline().decode().split()
        pid = int(pid)
        assert is_alive(pid)
        parent.send_signal(signal.SIGKILL)
        parent.wait()
    shutil.rmtree(folder, ignore_errors=True)
    deadline = time.monotonic() + 20
    while is_alive(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not is_alive(pid)


def test_missing_program_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    for kind in (PostgreSQL, MariaDB):
        monkeypatch.setattr(kind, "place", "nowhere")
        with pytest.raises(ServerNotFound, match=f"Install the package {kind.package}"):
            kind().start()


def test_failed_start_shows_the_log(server: DatabaseServer, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = type(server)
    original = kind.running
    monkeypatch.setattr(kind, "running", lambda self: [*original(self), "--nonsense=1"])
    with pytest.raises(ServerFailed, match="nonsense"):
        kind().start()


@pytest.mark.parametrize("kind", [PostgreSQL, MariaDB])
def test_start_leaves_the_files_of_others_alone(kind: type[DatabaseServer], monkeypatch: pytest.MonkeyPatch) -> None:
    """MariaDB removes the temporary tables it finds when it starts: its neighbour's too, if they share a folder."""
    with tempfile.TemporaryDirectory(prefix="shared-") as shared:
        Path(shared).chmod(0o777)
        of_a_neighbour = Path(shared, "#sql-temptable-1-1-1.MAI")
        of_a_neighbour.touch(0o666)
        monkeypatch.setenv("TMPDIR", shared)
        try:
            kind().start().stop()
        except ServerNotFound as error:
            unavailable(str(error))
        assert of_a_neighbour.exists()

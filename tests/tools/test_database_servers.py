"""The databases that other tests trust: started, and never left behind."""

from __future__ import annotations

import shutil
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tests.forks import in_child
from tests.servers import unavailable
from tests.tools.test_redis_server import dies, is_alive
from tools.database_servers import DatabaseServer, MariaDB, PostgreSQL
from tools.processes import ServerFailed, ServerNotFound


class Sleeper(DatabaseServer):
    """What all have in common, without the seconds that a real one takes to be made."""

    package, place = "coreutils", "usr/bin"
    end = signal.SIGQUIT

    def making(self) -> list[str]:
        return [self.program("true")]

    def running(self) -> list[str]:
        return [self.program("sleep"), "600"]

    def ready(self) -> bool:
        return True

    def settings(self, name: str = "") -> dict[str, Any]:
        return {}


def test_end_leaves_neither_process_nor_folder() -> None:
    """A forked child that ends leaves its parent's server alone."""
    server = Sleeper().start()
    pid = server.pid
    in_child(server.stop)
    assert is_alive(pid)
    server.stop()
    assert not is_alive(pid)
    assert not server.folder.exists()
    server.stop()


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")
def test_server_dies_with_its_process() -> None:
    program = (
        "from tests.tools.test_database_servers import Sleeper\n"
        "server = Sleeper().start(); print(server.pid, server.folder, flush=True); input()"
    )
    _, folder = dies(program)
    shutil.rmtree(folder, ignore_errors=True)


def test_failed_start_shows_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Sleeper, "running", lambda self: [self.program("sleep"), "--nonsense"])
    monkeypatch.setattr(Sleeper, "ready", lambda self: False)
    with pytest.raises(ServerFailed, match="nonsense"):
        Sleeper().start()


def test_missing_program_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    for kind in (PostgreSQL, MariaDB):
        monkeypatch.setattr(kind, "place", "nowhere")
        with pytest.raises(ServerNotFound, match=f"Install the package {kind.package}"):
            kind().start()


def test_start_of_mariadb_leaves_the_files_of_others_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """It removes the temporary tables it finds when it starts: its neighbour's too, if they share a folder."""
    with tempfile.TemporaryDirectory(prefix="shared-") as shared:
        Path(shared).chmod(0o777)
        of_a_neighbour = Path(shared, "#sql-temptable-1-1-1.MAI")
        of_a_neighbour.touch(0o666)
        monkeypatch.setenv("TMPDIR", shared)
        monkeypatch.setattr(tempfile, "tempdir", None)
        try:
            MariaDB().start().stop()
        except ServerNotFound as error:
            unavailable(str(error))
        assert list(Path(shared).iterdir()) == [of_a_neighbour]

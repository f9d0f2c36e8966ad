"""The servers that other tests trust: started, hurt, brought back, and never left behind."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.forks import in_child
from tests.servers import unavailable
from tests.waiting import eventually
from tools import memcached_server, processes, rabbitmq_server
from tools import redis_server as module
from tools.database_servers import DatabaseServer, MariaDB, PostgreSQL
from tools.memcached_server import Memcached
from tools.processes import ServerFailed, ServerNotFound
from tools.public_api import ROOT
from tools.rabbitmq_server import RabbitMQ
from tools.redis_binary import find_server
from tools.redis_server import ReplyError


def is_alive(pid: int) -> bool:
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:  # gone, perhaps since it was opened
        return False


def test_config_reaches_the_server(make_server):
    server = make_server(requirepass="p@ss/word", maxmemory="5mb")
    assert server.command("CONFIG", "GET", "maxmemory") == ["maxmemory", str(5 * 1024 * 1024)]
    assert server.url(2) == f"redis://:p%40ss%2Fword@127.0.0.1:{server.port}/2"


def test_killed_server_comes_back_on_its_port_and_empty(make_server):
    """With its data on request."""
    server = make_server()
    port, pid = server.port, server.pid
    server.command("SET", "a", 1)
    server.restart(keep_data=True)
    assert server.command("GET", "a") == "1"
    server.kill()
    assert not server.running
    server.restart()
    assert (server.port, server.command("GET", "a")) == (port, None)
    assert server.pid != pid


def test_paused_server_answers_after_resume(make_server, monkeypatch):
    monkeypatch.setattr(module, "STOP_SECONDS", 0.05)
    server = make_server()
    server.pause()
    with pytest.raises(TimeoutError):
        server.command("PING")
    server.resume()
    monkeypatch.undo()
    assert server.command("PING") == "PONG"


def test_stop_ends_a_paused_server_and_removes_its_folder(make_server):
    """A forked child that stops it leaves its parent's server alone."""
    server = make_server()
    folder, pid = server.folder, server.pid
    in_child(server.stop)
    assert server.command("PING") == "PONG"
    server.pause()
    server.stop()
    assert not folder.exists()
    assert not is_alive(pid)
    server.stop()


def test_taken_port_is_left_to_its_owner(make_server, monkeypatch):
    first = make_server()
    original, offers = processes.free_port, [first.port]
    monkeypatch.setattr(processes, "free_port", lambda: offers.pop() if offers else original())
    second = make_server()
    assert not offers
    assert second.port != first.port
    assert first.command("PING") == "PONG"


def test_failed_start_shows_the_log(make_server):
    with pytest.raises(ServerFailed, match="nonsense"):
        make_server(nonsense="x")


def dies(program: str) -> list[str]:
    """What a program prints that starts a server, first its pid: the server dies with the program."""
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        printed = parent.stdout.readline().split()
        assert is_alive(int(printed[0]))
        parent.kill()
    try:
        eventually(lambda: not is_alive(int(printed[0])))
    except AssertionError as error:
        error.add_note(Path(f"/proc/{printed[0]}/status").read_text())
        raise
    return printed


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")
def test_server_dies_with_its_process(redis_executable, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # its folder stays behind
    dies("from tools.redis_server import RedisServer; print(RedisServer().start().pid, flush=True); input()")


def test_cluster_of_one_node_owns_every_slot(cluster_server):
    cluster_server.flush()
    assert "cluster_slots_ok:16384" in cluster_server.command("CLUSTER", "INFO")
    with pytest.raises(ReplyError, match="CROSSSLOT"):
        cluster_server.command("MSET", "a", 1, "b", 2)


def test_missing_server_names_the_package(monkeypatch):
    monkeypatch.setenv("REDIS_SERVER", "/nowhere/redis-server")
    with pytest.raises(ServerNotFound, match="/nowhere/redis-server"):
        find_server()
    monkeypatch.delenv("REDIS_SERVER", raising=False)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(ServerNotFound, match="redis-server"):
        find_server()


# Databases


class Sleeper(DatabaseServer):
    """What all have in common, without the seconds that a real one takes to be made."""

    package, place = "coreutils", "usr/bin"
    end = signal.SIGQUIT

    def init_command(self) -> list[str]:
        return [self.program("true")]

    def running(self) -> list[str]:
        return [self.program("sleep"), "600"]

    def ready(self) -> bool:
        return True

    def settings(self, name: str = "") -> dict[str, Any]:
        return {}


def test_end_of_a_database_leaves_neither_process_nor_folder() -> None:
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
def test_database_dies_with_its_process() -> None:
    """Also where the signal is ignored, as a shell has it for what it starts with `&`."""
    program = (
        "import signal; from pathlib import Path; from tests.tools.test_servers import Sleeper\n"
        "signal.signal(signal.SIGQUIT, signal.SIG_IGN); server = Sleeper().start()\n"
        "while Path(f'/proc/{server.pid}/comm').read_text() != 'sleep\\n': pass\n"
        "print(server.pid, server.folder, flush=True); input()"
    )
    _, folder = dies(program)
    shutil.rmtree(folder, ignore_errors=True)


def test_failed_start_of_a_database_shows_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Sleeper, "running", lambda self: [self.program("sleep"), "--nonsense"])
    monkeypatch.setattr(Sleeper, "ready", lambda self: False)
    with pytest.raises(ServerFailed, match="nonsense"):
        Sleeper().start()


def test_missing_database_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
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


# memcached and RabbitMQ; that they work is shown by the tests that use them


def test_missing_memcached_or_rabbitmq_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    for helper, make, package in (
        (memcached_server, Memcached, "memcached"),
        (rabbitmq_server, lambda: RabbitMQ().start(), "rabbitmq-server"),
    ):
        monkeypatch.setattr(helper.shutil, "which", lambda *_, **__: None)
        with pytest.raises(ServerNotFound, match=package):
            make()
        monkeypatch.undo()


@pytest.fixture
def memcached() -> Iterator[Memcached]:
    try:
        with Memcached() as server:
            yield server
    except ServerNotFound as error:
        unavailable(str(error))


def test_port_taken_by_another_server_is_left_to_it(memcached: Memcached, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would answer in ours' place, and both flushed what the other one's tests have. A failed start shows the log."""
    ports = iter([memcached.port, processes.free_port()])
    monkeypatch.setattr(processes, "free_port", lambda: next(ports))
    with Memcached() as server:
        assert server.port != memcached.port
    monkeypatch.undo()
    server._command.append("--no-such-option")
    with pytest.raises(ServerFailed, match=r"(?s)didn't start on port \d+:.*no-such-option"):
        server.__enter__()

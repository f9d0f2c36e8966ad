"""The servers that other tests trust: started, hurt, brought back, and never left behind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.forks import in_child
from tests.waiting import eventually
from tools import processes
from tools import redis_server as module
from tools.processes import ServerFailed, ServerNotFound
from tools.public_api import ROOT
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
    eventually(lambda: not is_alive(int(printed[0])))
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

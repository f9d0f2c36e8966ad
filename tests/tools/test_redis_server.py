"""The servers that other tests trust: started, hurt, brought back, and never left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tools import processes
from tools import redis_server as module
from tools.processes import ServerFailed, ServerNotFound
from tools.redis_binary import find_server
from tools.redis_server import RedisServer, ReplyError


def is_alive(pid: int) -> bool:
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:  # gone, perhaps since it was opened
        return False


def test_config_reaches_the_server(make_server):
    server = make_server(requirepass="p@ss/word", maxmemory="5mb")
    assert server.command("CONFIG", "GET", "maxmemory") == ["maxmemory", str(5 * 1024 * 1024)]
    assert server.url(2) == f"redis://:p%40ss%2Fword@127.0.0.1:{server.port}/2"


def test_error_reply_is_raised(make_server):
    with pytest.raises(ReplyError, match="unknown command"):
        make_server().command("NONSENSE")


def test_killed_server_comes_back_on_its_port_and_empty(make_server):
    server = make_server()
    port, pid = server.port, server.pid
    server.command("SET", "a", 1)
    server.kill()
    assert not server.running
    server.restart()
    assert (server.port, server.command("GET", "a")) == (port, None)
    assert server.pid != pid


def test_restart_keeps_data_on_request(make_server):
    server = make_server()
    server.command("SET", "a", 1)
    server.restart(keep_data=True)
    assert server.command("GET", "a") == "1"
    server.restart()
    assert server.command("GET", "a") is None


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
    server = make_server()
    folder, pid = server.folder, server.pid
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


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")
def test_server_dies_with_its_process(redis_executable, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # its folder stays behind
    program = "from tools.redis_server import RedisServer; print(RedisServer().start().pid, flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        pid = int(parent.stdout.readline())
        assert is_alive(pid)
        parent.send_signal(signal.SIGKILL)
        parent.wait()
    deadline = time.monotonic() + 20
    while is_alive(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not is_alive(pid)


def test_forked_child_leaves_the_server_alone(make_server):
    server = make_server()
    child = os.fork()
    if child == 0:
        server.stop()
        os._exit(0)
    os.waitpid(child, 0)
    assert server.command("PING") == "PONG"


def test_cluster_of_one_node_owns_every_slot(cluster_server):
    cluster_server.flush()
    assert "cluster_slots_ok:16384" in cluster_server.command("CLUSTER", "INFO")
    with pytest.raises(ReplyError, match="CROSSSLOT"):
        cluster_server.command("MSET", "a", 1, "b", 2)


def test_named_server_that_cannot_run_raises_ServerNotFound(monkeypatch):
    monkeypatch.setenv("REDIS_SERVER", "/nowhere/redis-server")
    with pytest.raises(ServerNotFound, match="/nowhere/redis-server"):
        find_server()


def test_missing_server_names_the_package(monkeypatch):
    monkeypatch.delenv("REDIS_SERVER", raising=False)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(ServerNotFound, match="redis-server"):
        find_server()


def test_server_runs_for_its_block(redis_executable):
    with RedisServer() as server:
        assert server.running
        assert server.version >= (6, 2)
    assert not server.running

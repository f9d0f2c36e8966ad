"""The exit of the interpreter releases what can't protect anything any more, in real processes."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from typing import Any

import pytest

from django_redis_locks import locks
from tests.proxy import Proxy
from tests.waiting import eventually
from tools.public_api import ROOT
from tools.redis_server import RedisServer

BEGIN = """
import asyncio, os, signal, sys, threading, time
from django.conf import settings

settings.configure(REDIS_LOCKS={"default": {"LOCATION": sys.argv[1], "EXPIRE": 60, "OPTIONS": {"socket_timeout": 30}}})

import django

django.setup()

from django_redis_locks import locks

def in_thread(function, daemon=False):
    thread = threading.Thread(target=function, daemon=daemon)
    thread.start()
    return thread

def wait_for_stdin():
    print("ready", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def redis_url(redis_url: str, settings: Any) -> str:
    settings.REDIS_LOCKS = {"default": {"LOCATION": redis_url}}
    return redis_url


def start(url: str, code: str) -> subprocess.Popen[str]:
    """Start a process that holds locks, and return when it is ready."""
    process = subprocess.Popen(
        [sys.executable, "-c", BEGIN + code, url], cwd=ROOT, stdin=-1, stdout=-1, stderr=-1, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def held(*keys: str) -> list[str]:
    return [key for key in keys if locks.lock(key).locked()]


def test_exit_releases_the_locks_of_owners_that_cannot_run_on(redis_url: str) -> None:
    """[L7] The main thread's, those of ended threads and of tasks without a loop, renewed and fixed. Not those of a
    running daemon thread, those that stay until their lease ends, detached ones, and records. An error is an exit,
    too."""
    code = """
locks.lock("main").acquire()
locks.lock("fixed", expire=50).acquire()
in_thread(locks.lock("thread").acquire).join()
kept = []
in_thread(lambda: kept.append(locks.lock("kept").acquire())).join()
asyncio.run(locks.lock("task").aacquire())
with locks.lock("released"):
    pass

acquired = threading.Event()

def work():
    with locks.lock("daemon"):
        acquired.set()
        threading.Event().wait()

in_thread(work, daemon=True)
acquired.wait()
locks.lock("once", expire=50, auto_release=False).acquire()
locks.lock("detached").acquire().detach()
written = locks.record("record").put(None, {}, renew=True, on_lost=print).record
wait_for_stdin()
raise ValueError("as any error")
"""
    process = start(redis_url, code)
    ours, others = ["main", "fixed", "thread", "kept", "task"], ["daemon", "once", "detached"]
    assert held(*ours, *others) == [*ours, *others]
    _, errors = process.communicate("", timeout=30)
    assert (process.returncode, errors.splitlines()[-1]) == (1, "ValueError: as any error")
    assert errors.count("Traceback") == 1
    assert locks.record("record").get() is not None
    assert held(*ours, *others) == others


def test_exit_grants_no_lock_to_a_waiter_of_the_process(redis_server: RedisServer, redis_url: str) -> None:
    """[L7] [L32] A daemon thread that waits ends with the process, and can't use a lock that is freed at the exit. The
    others would wait for the end of its lease."""
    code = """
one, pool = locks.lock("one"), locks.semaphore("pool", 1)
for lock in one, pool:
    lock.acquire()
    in_thread(lambda lock=lock: lock.acquire(timeout=60), daemon=True)
wait_for_stdin()
"""
    process = start(redis_url, code)
    eventually(lambda: all(redis_server.command("ZCARD", f"lock:{{0}}:w:{key}") for key in ("one", "pool")))
    process.communicate("", timeout=30)
    assert not locks.lock("one").locked()
    assert locks.semaphore("pool", 1).available() == 1


def test_exit_of_a_forked_child_releases_its_own_locks_only(redis_url: str) -> None:
    """[F16] [H18] The parent goes on under its lock."""
    code = """
lock = locks.lock("parent")
lock.acquire()
pid = os.fork()
if not pid:
    locks.lock("child").acquire()
    sys.exit()
os.waitpid(pid, 0)
wait_for_stdin()
"""
    process = start(redis_url, code)
    assert held("parent", "child") == ["parent"]
    process.communicate("", timeout=30)
    assert held("parent") == []


@pytest.mark.parametrize("module", ["multiprocessing", "billiard"])
def test_exit_of_a_child_of_multiprocessing_releases_its_locks(module: str, redis_url: str) -> None:
    """[L7] Such a child, also one of a Celery worker, runs no callbacks of atexit."""
    code = f"""
from {module} import get_context

def work():
    locks.lock("child").acquire()

locks.lock("parent").acquire()
child = get_context("fork").Process(target=work)
child.start()
child.join()
wait_for_stdin()
"""
    process = start(redis_url, code)
    assert held("parent", "child") == ["parent"]
    process.communicate("", timeout=30)
    assert held("parent") == []


def test_signal_is_an_exit_if_the_program_asks_for_that(redis_url: str) -> None:
    """[L7] Blocks end as at sys.exit(). Otherwise SIGTERM ends the process at once, and the lease runs on."""
    block = """
try:
    with locks.lock({key!r}):
        locks.lock({key!r} + ":left").acquire()
        wait_for_stdin()
finally:
    print("the end", flush=True)
"""
    for key, prepare, status, output in (
        ("asked", "locks.release_at_exit()", 128 + signal.SIGTERM, "the end\n"),
        ("other", "locks.release_at_exit([signal.SIGUSR1])", -signal.SIGTERM, ""),
    ):
        process = start(redis_url, prepare + block.format(key=key))
        process.terminate()
        shown, _ = process.communicate(timeout=30)
        assert (process.returncode, shown) == (status, output)
        left = [key, f"{key}:left"]
        assert held(*left) == (left if key == "other" else [])


def test_signal_that_cancels_a_loop_releases_the_locks_of_its_tasks(redis_url: str) -> None:
    """[L7] The loop ends, and cancels its tasks."""
    code = """
async def main():
    async with locks.lock("task"):
        print("ready", flush=True)
        await asyncio.sleep(60)

locks.release_at_exit()
asyncio.run(main())
"""
    process = start(redis_url, code)
    process.terminate()
    process.communicate(timeout=30)
    assert process.returncode == 128 + signal.SIGTERM
    assert held("task") == []


def test_signal_with_a_handler_is_refused() -> None:
    """[L7] A server or a worker has its own way to end."""
    before = signal.signal(signal.SIGUSR2, lambda *_: None)
    try:
        with pytest.raises(ValueError, match="SIGUSR2 has a handler already"):
            locks.release_at_exit([signal.SIGUSR1, signal.SIGUSR2])
        assert signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL
    finally:
        signal.signal(signal.SIGUSR2, before)


def test_silent_server_delays_the_exit_for_a_moment_only(redis_server: RedisServer, redis_url: str) -> None:
    """[L7] Much less than its time-out."""
    with Proxy(redis_server.port) as proxy:
        process = start(proxy.url, 'locks.lock("a").acquire()\nwait_for_stdin()')
        proxy.plan("drop", "request", of="lock/release")
        began = time.monotonic()
        process.communicate("", timeout=30)
        assert process.returncode == 0
        assert time.monotonic() - began < 15
        assert proxy.fates("lock/release") == ["drop request"]
    assert held("a") == ["a"]

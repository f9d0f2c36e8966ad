"""A background thread starts once, even if an error or a signal interrupts the start."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from django_redis_locks import LockBackendError
from django_redis_locks.core.background_thread import BackgroundThread

start = threading.Thread.start


class Interrupted(BaseException):
    """The exception of a signal handler."""


class Work:
    """The target of the thread: counts its calls, and returns at the end of the test."""

    def __init__(self) -> None:
        self.workers = 0
        self.begun = threading.Semaphore(0)
        self._end = threading.Event()

    def __call__(self) -> None:
        self.workers += 1
        self.begun.release()
        self._end.wait(60)

    def end(self) -> None:
        self._end.set()


@pytest.fixture
def work() -> Iterator[Work]:
    work = Work()
    yield work
    work.end()


@pytest.fixture
def background_thread(work: Work) -> BackgroundThread:
    return BackgroundThread(work, "a daemon")


def test_thread_starts_once(background_thread: BackgroundThread, work: Work) -> None:
    """Also if several threads start it at once."""
    assert not background_thread.runs
    threads = [threading.Thread(target=background_thread.start) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert work.begun.acquire(timeout=20)
    assert background_thread.runs
    assert work.workers == 1


def test_start_at_the_limit_of_threads_raises_and_names_it(
    background_thread: BackgroundThread, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once threads are available, it starts. At interpreter shutdown, when Python starts no more threads, it doesn't
    raise: locks acquired there last for their lease."""
    why = "can't start new thread"

    def refused(thread: threading.Thread) -> None:
        raise RuntimeError(why)

    monkeypatch.setattr(threading.Thread, "start", refused)
    with pytest.raises(LockBackendError, match=r"'a daemon': can't start new thread.*limit of threads.*ulimit -u"):
        background_thread.start()
    assert not background_thread.runs
    why = "can't create new thread at interpreter shutdown"
    background_thread.start()
    assert not background_thread.runs
    monkeypatch.undo()
    background_thread.start()
    assert work.begun.acquire(timeout=20)


@pytest.mark.parametrize("when", ["before", "during", "after"])
def test_signal_around_the_start_leaves_one_thread(
    background_thread: BackgroundThread, work: Work, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """Python may list the thread although it never runs: all renewals of the process would stop. A thread that was
    abandoned before its start doesn't work later, and a running thread isn't started twice."""
    threads: list[threading.Thread] = []

    def interrupt(thread: threading.Thread) -> None:
        threads.append(thread)
        if when == "before":
            threading._limbo[thread] = thread
        elif when == "after":
            start(thread)
            assert work.begun.acquire(timeout=20)
        raise Interrupted

    monkeypatch.setattr(threading.Thread, "start", interrupt)
    try:
        with pytest.raises(Interrupted):
            background_thread.start()
        monkeypatch.undo()
        assert background_thread.runs is (when == "after")
        background_thread.start()
        assert when == "after" or work.begun.acquire(timeout=20)
        if when == "during":
            threads[0].start()
            threads[0].join(20)
        assert work.workers == 1
    finally:
        threading._limbo.pop(threads[0], None)

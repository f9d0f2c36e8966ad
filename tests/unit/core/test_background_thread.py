"""A thread that serves others begins once, whatever strikes while it begins."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from django_redis_locks import LockBackendError
from django_redis_locks.core.background_thread import BackgroundThread

start = threading.Thread.start


class Strike(BaseException):
    """What a signal handler raises."""


class Work:
    """Counts who works, and ends with the test."""

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
def daemon(work: Work) -> BackgroundThread:
    return BackgroundThread(work, "a daemon")


def test_thread_starts_once(daemon: BackgroundThread, work: Work) -> None:
    """However many ask for it at once."""
    assert not daemon.runs
    threads = [threading.Thread(target=daemon.start) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert work.begun.acquire(timeout=20)
    assert daemon.runs
    assert work.workers == 1


def test_start_at_the_limit_of_threads_raises_and_names_it(
    daemon: BackgroundThread, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And later, with threads to be had, it begins. At the end of the process, when Python starts no threads any more, it
    doesn't raise: what is locked there is locked for its lease."""
    why = "can't start new thread"

    def refused(thread: threading.Thread) -> None:
        raise RuntimeError(why)

    monkeypatch.setattr(threading.Thread, "start", refused)
    with pytest.raises(LockBackendError, match=r"'a daemon': can't start new thread.*limit of threads.*ulimit -u"):
        daemon.start()
    assert not daemon.runs
    why = "can't create new thread at interpreter shutdown"
    daemon.start()
    assert not daemon.runs
    monkeypatch.undo()
    daemon.start()
    assert work.begun.acquire(timeout=20)


@pytest.mark.parametrize("when", ["before", "during", "after"])
def test_signal_around_the_start_leaves_one_thread(
    daemon: BackgroundThread, work: Work, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """Python may count the thread among the others although it never runs: all renewals of the process would be over. What was
    given up before its first step takes none, and what works already has no second one beside it."""
    threads: list[threading.Thread] = []

    def struck(thread: threading.Thread) -> None:
        threads.append(thread)
        if when == "before":
            threading._limbo[thread] = thread
        elif when == "after":
            start(thread)
            assert work.begun.acquire(timeout=20)
        raise Strike

    monkeypatch.setattr(threading.Thread, "start", struck)
    try:
        with pytest.raises(Strike):
            daemon.start()
        monkeypatch.undo()
        assert daemon.runs is (when == "after")
        daemon.start()
        assert when == "after" or work.begun.acquire(timeout=20)
        if when == "during":
            threads[0].start()
            threads[0].join(20)
        assert work.workers == 1
    finally:
        threading._limbo.pop(threads[0], None)

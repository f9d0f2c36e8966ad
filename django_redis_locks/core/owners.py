"""Owners of grants: the caller's thread or task.

An owner is a thread or a task *and* a context. The context alone leaks: tasks and threads inherit a copy of it. The
thread alone leaks too: several requests share an executor's thread. A caller that matches only one of the two doesn't own the
grant; if it would wait for itself, the acquire raises.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from asyncio import events
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from .hold import Hold

Owner: TypeAlias = "threading.Thread | asyncio.Task[object] | ForeignThread"

running_loop = events._get_running_loop
"""The loop that runs in this thread, or None: the one in C that doesn't raise."""


class ForeignThread:
    """A thread that ``threading`` didn't start, as C code does. Its dummy there never looks dead before Python 3.13, and
    serves the next thread that the system gives the same number, too."""

    __slots__ = ("__weakref__", "life", "name")

    def __init__(self, name: str, life: object) -> None:
        self.name = name
        self.life = weakref.ref(life)


class _ThreadLiveness:
    """What nothing but its thread keeps."""

    __slots__ = ("__weakref__",)


class _ThreadLocal(threading.local):
    """The thread that looks here, found by its first look."""

    def __init__(self) -> None:
        thread = threading.current_thread()
        self.owner: threading.Thread | ForeignThread = thread
        green: object = thread  # eventlet's is no Thread
        if type(thread) is threading._DummyThread or not isinstance(green, threading.Thread):
            self.life = _ThreadLiveness()
            self.owner = ForeignThread(thread.name, self.life)


_here = _ThreadLocal()


def current_owner() -> Owner:
    """The running task, or the thread outside of one."""
    loop = running_loop()
    if loop is not None:
        task = asyncio.current_task(loop)
        if task is not None:
            return task
    return _here.owner


def name_of(owner: Owner) -> str:
    return owner.get_name() if isinstance(owner, asyncio.Task) else owner.name


def is_alive(hold: Hold) -> bool:
    """Whether the thread or task that acquired it still runs.

    ``Thread.is_alive()`` isn't asked: up to CPython 3.12 a signal handler that raises inside of it makes a living thread
    dead, for everybody and for ever."""
    owner = hold.owner()
    if owner is None:
        return False
    if isinstance(owner, threading.Thread):
        return owner in threading.enumerate()
    if isinstance(owner, ForeignThread):
        return owner.life() is not None
    return not owner.done()  # type: ignore[attr-defined]

"""Submission of Celery tasks: `acquire(key)` submits the job of that key. There is no worker."""

from __future__ import annotations

from typing import Any

from celery import Celery

from .base import Adapter
from .raw import connect, pack


class Plain(Adapter):
    """Celery itself, which submits duplicates."""

    options: dict[str, Any] = {}  # noqa: RUF012 - never changed

    def __init__(self, url: str) -> None:
        super().__init__(url)
        base = url.rpartition("/")[0]
        self.app = Celery("bench", broker=f"{base}/0", backend=f"{base}/1", set_as_current=False)
        self.app.conf.update(self.configuration(base))
        declare: Any = self.app.task
        self.task = declare(job, name="bench.job", **self.options)
        self.app.finalize()

    def configuration(self, base: str) -> dict[str, Any]:
        return {}

    def acquire(self, key: str) -> Any:
        return self.task.delay(key)


def job(key: str) -> None: ...


class Guarded(Plain):
    """The minimum cost of a guard: one round trip on a raw socket, and no message for a duplicate."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.connection = connect(url)

    def acquire(self, key: str) -> Any:
        self.connection.sendall(pack(b"SET", b"guard:" + key.encode(), b"1", b"NX", b"PX", b"60000"))
        return self.task.delay(key) if self.connection.recv(64) == b"+OK\r\n" else None


class Ours(Plain):
    def __init__(self, url: str) -> None:
        from celery_locks import IdempotentTask

        self.options = {"base": IdempotentTask}
        super().__init__(url)

    def configuration(self, base: str) -> dict[str, Any]:
        return {"redis_locks": {"default": {"LOCATION": f"{base}/2"}}}


class CelerySingleton(Plain):
    def __init__(self, url: str) -> None:
        from celery_singleton import Singleton

        self.options = {"base": Singleton}
        super().__init__(url)

    def configuration(self, base: str) -> dict[str, Any]:
        return {"singleton_backend_url": f"{base}/2"}


class CeleryOnce(Plain):
    def __init__(self, url: str) -> None:
        from celery_once import QueueOnce

        self.options = {"base": QueueOnce, "once": {"graceful": True}}
        super().__init__(url)

    def configuration(self, base: str) -> dict[str, Any]:
        settings = {"url": f"{base}/2", "default_timeout": 3600}
        return {"ONCE": {"backend": "celery_once.backends.Redis", "settings": settings}}

"""The base classes of tasks."""

from __future__ import annotations

from functools import partial, wraps
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from asgiref.sync import sync_to_async
from celery import Task
from celery.utils.imports import symbol_by_name

from django_redis_locks import LockNotOwned

from . import app_settings as configuration
from .options import P, R_co, TaskOptions, unknown_options, validate
from .run import run
from .run_lock import RunLock
from .submit import mark, submit

if TYPE_CHECKING:
    from collections.abc import Callable

    from celery import Celery
    from celery.result import AsyncResult


REQUEST = "celery_locks.request:Request"
"""Celery imports it in workers only."""


def _composed(theirs: Any) -> Any:
    """A task's own ``Request``, which frees the keys of dead runs as well."""
    theirs, ours = symbol_by_name(theirs), symbol_by_name(REQUEST)
    return theirs if issubclass(theirs, ours) else type(theirs.__name__, (ours, theirs), {})


def _call_under_lock(task: type[LockedTask]) -> None:
    """A ``__call__`` of the user's comes before ours, and may call ``run()`` itself, as Flask's documentation has it. So
    the lock is taken around it, where Celery calls the task."""
    call = task.__call__
    if call is LockedTask.__call__ or call in _under_lock:
        return

    @wraps(call)
    def call_under_lock(self: LockedTask, *args: Any, **kwargs: Any) -> Any:
        return self._run_locked(partial(call, self, *args, **kwargs), args, kwargs)

    _under_lock.add(call_under_lock)
    task.__call__ = call_under_lock  # type: ignore[method-assign]


_under_lock: WeakSet[Callable[..., Any]] = WeakSet()


class LockedTask(TaskOptions[P, R_co]):
    """What both base classes are: one machine, whose options differ."""

    abstract = True
    Request = REQUEST

    @classmethod
    def on_bound(cls, app: Celery) -> None:
        super().on_bound(app)
        validate(cls, app)
        configuration.apply_settings(app)
        _call_under_lock(cls)
        if cls.Request != REQUEST:
            cls.Request = _composed(cls.Request)

    @property
    def lock(self) -> RunLock:
        """The lock of the run that goes on.

        Raises:
            LockNotOwned: none goes on: the task is called directly, or eagerly without ``lock_eager``.
        """
        own = self.request.get("lock_run")
        if own is None:
            raise LockNotOwned(
                f"task {self.name} has no lock here: only a worker takes one. In tests, lock_eager = True takes it too",
                name=self.name,
            )
        return RunLock(own)

    def apply_async(
        self,
        args: Any = None,
        kwargs: Any = None,
        task_id: str | None = None,
        producer: Any = None,
        link: Any = None,
        link_error: Any = None,
        shadow: str | None = None,
        idempotency_key: str | None = None,
        **options: Any,
    ) -> AsyncResult[Any]:
        """As Celery's, unless the same job is queued, runs, or was answered.

        Args:
            idempotency_key: names the job instead of its arguments.

        Returns:
            The result of the job that is run, with ``.deduplicated``: whether that had been submitted before.

        Raises:
            DuplicateTask: it was, and ``lock_on_duplicate`` is ``"raise"``.
            IdempotencyKeyReused: the key came with other arguments before.
            TypeError: the task takes no such arguments, or an option of the lock is given here or misspelled.
            LockBackendError: the store can't be reached, and ``lock_on_backend_error`` is ``"closed"``.
        """
        wrong = unknown_options(options, ("idempotency_key",))
        if wrong:
            raise TypeError(
                f"apply_async() of task {self.name}: {'; '.join(wrong)}. Options of its lock are the task's"
            )
        options = {"link": link, "link_error": link_error, **options}
        send = partial(super().apply_async, args, kwargs, producer=producer, shadow=shadow)
        if self.plain or self.app.conf.task_always_eager:
            return mark(send(task_id=task_id, **options), duplicated=False)

        def publish(task_id: str, **changes: Any) -> AsyncResult[Any]:
            return send(task_id=task_id, **{**options, **changes})

        return submit(self, args or (), kwargs or {}, task_id, idempotency_key, options, publish)

    async def aapply_async(self, *args: Any, **kwargs: Any) -> AsyncResult[Any]:
        """As ``apply_async``, from a coroutine: the broker's library blocks, so it is called in a thread."""
        result: AsyncResult[Any] = await sync_to_async(self.apply_async)(*args, **kwargs)
        return result

    async def adelay(self, *args: P.args, **kwargs: P.kwargs) -> AsyncResult[R_co]:
        """As ``delay``, from a coroutine."""
        return await self.aapply_async(args, kwargs)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        return self._run_locked(  # type: ignore[no-any-return]
            partial(self._body, *args, **kwargs), args, kwargs
        )

    def _run_locked(self, body: Callable[[], Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the body under the task's lock, unless this is a call within its run, or one that takes none."""
        request = self.request
        plain = request.called_directly or (request.is_eager and not self.lock_eager)
        if plain or self.plain or request.get("lock_run") is not None:
            return body()
        return run(self, body, args, kwargs)

    def _body(self, *args: Any, **kwargs: Any) -> Any:
        call = super().__call__
        if getattr(call, "__func__", None) is Task.__call__ and not self.request.called_directly:
            return self.run(*args, **kwargs)  # Celery's own would hide the request from the body
        return call(*args, **kwargs)


class SingletonTask(LockedTask[P, R_co]):
    """A job that never overlaps itself: one run per key in the cluster, and of many submissions that wait only one.

    ::

        class Task(SingletonTask):
            name = "nightly"

            def run(self): ...

        app.register_task(Task())

    ``@app.task(base=SingletonTask)`` and ``@shared_task(base=SingletonTask)`` do the same. For the options see
    ``TaskOptions``.
    """

    abstract = True


class IdempotentTask(LockedTask[P, R_co]):
    """A job that is run once however often it is submitted: ``delay()`` twice is one message, and the second caller gets
    the result of the first one. For the options see ``TaskOptions``."""

    abstract = True
    lock_on_backend_error = "closed"
    lock_usual_conflict = "follow"

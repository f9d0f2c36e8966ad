"""``SingletonTask`` and ``IdempotentTask``: base classes of tasks that run under a lock."""

from __future__ import annotations

from functools import partial, wraps
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from asgiref.sync import sync_to_async
from celery import Task
from celery.utils import uuid
from celery.utils.imports import symbol_by_name

from django_redis_locks import LockNotOwned

from .app_settings import apply_defaults, apply_settings, require_features
from .call_options import call_options, with_options
from .header import HEADER, Header
from .keys import key_of
from .options import P, R_co, TaskOptions, is_celerys_own, validate
from .run import run
from .run_lock import RunLock
from .submission import mark
from .submit import is_usual, submit, submit_usual

if TYPE_CHECKING:
    from collections.abc import Callable

    from celery import Celery
    from celery.result import AsyncResult


REQUEST = "celery_locks.request:Request"
"""The class that releases keys of dead runs. It is named by a str, which Celery imports in workers only."""


def _composed(request_class: Any) -> Any:
    """The project's own ``Request`` class of a task, extended by the one that releases the keys of dead runs."""
    request_class, base = symbol_by_name(request_class), symbol_by_name(REQUEST)
    return request_class if issubclass(request_class, base) else type(request_class.__name__, (base, request_class), {})


def _call_under_lock(task: type[LockedTask]) -> None:
    """Wrap the ``__call__`` of the project's own subclass, so that it runs under the lock even if it calls ``run()``
    itself, as in Flask's documentation."""
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
    """The common base of ``SingletonTask`` and ``IdempotentTask``, which differ in their options."""

    abstract = True
    Request = REQUEST

    @classmethod
    def on_bound(cls, app: Celery) -> None:
        """Check the options of the task when it is registered. Called by Celery.

        Args:
            app: the app that the task belongs to.

        Raises:
            ValueError: an option is unknown or has a wrong value.
            InvalidLockBackend: the store of ``lock_using`` has no records, or no semaphores for ``lock_limit``.
        """
        super().on_bound(app)
        apply_defaults(cls, app)
        validate(cls)
        apply_settings(app)
        if not is_celerys_own(cls.name):
            require_features(cls.lock_using, cls.lock_limit)
        _call_under_lock(cls)
        if cls.Request != REQUEST:
            cls.Request = _composed(cls.Request)

    @property
    def lock(self) -> RunLock:
        """The lock of the current run.

        Raises:
            LockNotOwned: there is none: the task is called directly, or eagerly without ``lock_eager``.
        """
        held = self.request.get("lock_run")
        if held is None:
            raise LockNotOwned(
                f"task {self.name} has no lock here: only a worker takes one. In tests, lock_eager = True takes it too",
                name=self.name,
            )
        return RunLock(held)

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
        """Send the task, unless the same job is queued, runs, or has a result that still counts.

        Args:
            idempotency_key: identifies the job instead of its arguments.
            **options: Celery's, and options of the lock for this call only, such as ``lock_on_duplicate="raise"``. All
                of them but ``lock_key``, ``lock_using``, ``lock_limit``, ``lock_on_lost``, ``lock_eager``, ``lock_redelivery_window``
                and ``unique_until`` can be given.
            args, kwargs, task_id, producer, link, link_error, shadow: as Celery's ``apply_async``.

        Returns:
            The result of the job, with ``.deduplicated``: whether it had been submitted before.

        Raises:
            DuplicateTask: it had, and ``lock_on_duplicate`` is ``"raise"``.
            IdempotencyKeyReused: the key was used with other arguments before.
            TypeError: the task takes no such arguments, or an option of the lock is misspelled or can only be declared.
            ValueError: an option of the lock has a wrong value.
            LockBackendError: the store can't be reached, and ``lock_on_backend_error`` is ``"closed"``.

        Example::

            result = charge.apply_async([order_id], idempotency_key=request.headers["Idempotency-Key"])
            if result.deduplicated:
                log.info("order %s was charged already", order_id)
        """
        has_options = options or not (task_id is link is link_error is producer is shadow is idempotency_key is None)
        takes_no_lock = self.plain or self.app.conf.task_always_eager
        if not has_options and not takes_no_lock and is_usual(self):
            return submit_usual(self, args or (), kwargs or {}, partial(super().apply_async, args, kwargs))
        lock_options = call_options(self, options)
        options = {"link": link, "link_error": link_error, **options}
        for name in lock_options:
            del options[name]
        send = partial(super().apply_async, args, kwargs, producer=producer, shadow=shadow)
        if takes_no_lock:
            if lock_options:
                task_id = task_id or uuid()
                header = Header(key_of(self, args or (), kwargs or {}, None)[0], task_id, options=lock_options)
                options["headers"] = {**(options.get("headers") or {}), HEADER: header.as_dict()}
            return mark(send(task_id=task_id, **options), duplicated=False)

        def publish(task_id: str, **changes: Any) -> AsyncResult[Any]:
            return send(task_id=task_id, **{**options, **changes})

        task = with_options(self, lock_options)
        return submit(task, args or (), kwargs or {}, task_id, idempotency_key, options, publish, lock_options)

    async def aapply_async(self, *args: Any, **kwargs: Any) -> AsyncResult[Any]:
        """Send the task from a coroutine, unless the same job is queued, runs, or has a result that still counts. It is
        sent in a thread, since the broker's library blocks.

        Args:
            *args: positional arguments of ``apply_async``.
            **kwargs: keyword arguments of ``apply_async``.

        Returns:
            The result of the job, with ``.deduplicated``: whether it had been submitted before.

        Raises:
            DuplicateTask: it had, and ``lock_on_duplicate`` is ``"raise"``.
            IdempotencyKeyReused: the key was used with other arguments before.
            TypeError: the task takes no such arguments, or an option of the lock is misspelled or can only be declared.
            ValueError: an option of the lock has a wrong value.
            LockBackendError: the store can't be reached, and ``lock_on_backend_error`` is ``"closed"``.
        """
        result: AsyncResult[Any] = await sync_to_async(self.apply_async)(*args, **kwargs)
        return result

    async def adelay(self, *args: P.args, **kwargs: P.kwargs) -> AsyncResult[R_co]:
        """Send the task from a coroutine, as ``aapply_async`` without options.

        Args:
            *args: positional arguments of the task.
            **kwargs: keyword arguments of the task.

        Returns:
            The result of the job, with ``.deduplicated``: whether it had been submitted before.

        Raises:
            DuplicateTask: it had, and ``lock_on_duplicate`` is ``"raise"``.
            TypeError: the task takes no such arguments.
            LockBackendError: the store can't be reached, and ``lock_on_backend_error`` is ``"closed"``.
        """
        return await self.aapply_async(args, kwargs)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Run the task's body: in a worker under the lock of its key, called directly without."""
        return self._run_locked(  # type: ignore[no-any-return]
            partial(self._body, *args, **kwargs), args, kwargs
        )

    def _run_locked(self, body: Callable[[], Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the body under the task's lock, but without one if the task is called directly or eagerly, or if this
        call is within its run."""
        request = self.request
        plain = request.called_directly or (request.is_eager and not self.lock_eager)
        if plain or self.plain or request.get("lock_run") is not None:
            return body()
        return run(self, body, args, kwargs)

    def _body(self, *args: Any, **kwargs: Any) -> Any:
        call = super().__call__
        if getattr(call, "__func__", None) is Task.__call__ and not self.request.called_directly:
            return self.run(*args, **kwargs)  # Celery's own __call__ would hide the request from the body
        return call(*args, **kwargs)


class SingletonTask(LockedTask[P, R_co]):
    """A task that never overlaps itself: at most one run, or ``lock_limit`` of them, and one queued message per key in the
    cluster.

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
    """A task that runs once, however often the same job is submitted: two calls of ``delay()`` send one message and
    return the same result.

    ::

        @shared_task(base=IdempotentTask)
        def confirm_order(order_id): ...

    For the options see ``TaskOptions``.
    """

    abstract = True
    lock_on_backend_error = "closed"
    lock_usual_conflict = "follow"

"""``refresh="celery"`` of cached functions: a worker carries out the load that a web process has claimed.

The message carries the token of the claim, which ends with its lease. If a message is lost or late, the next caller
sends another one. If it is delivered twice, or after an invalidation, its claim is void and the task does nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from celery import Celery, Task, shared_task
from kombu.exceptions import OperationalError
from kombu.serialization import dumps, loads

from django_redis_locks import clock

if TYPE_CHECKING:
    from django_redis_locks.cache import Job

NAME: Final = "celery_locks.load"

CONNECT_ONCE: Final[dict[str, Any]] = {"max_retries": 1, "interval_start": 0, "interval_step": 0, "interval_max": 0}
"""Retry policy: reconnect once, as after a restart of the broker, but don't wait for one that is down."""

RETRY_AFTER: Final = 5.0
"""Seconds for which a broker isn't used after a failed connection: a host that doesn't answer delays each caller."""

_down: WeakKeyDictionary[Celery, float] = WeakKeyDictionary()
"""By app: the time until which its broker isn't used."""
clock.on_install(_down.clear)


# Celery's own base class, also if the app has another default
@shared_task(name=NAME, base=Task, ignore_result=True, max_retries=0, acks_late=False)
def load(path: str, args: list[Any], kwargs: dict[str, Any], token: str) -> bool:
    """Load the value of a cached function for these arguments. Returns False if the claim is void, or the load
    failed."""
    from django_redis_locks.cache.decorator.function import take_over  # noqa: PLC0415 - most projects don't need it

    return take_over(path, token, args, kwargs)


def submit(job: Job) -> None:
    """Send a refresh job to the workers.

    Raises:
        TypeError: its arguments can't be serialized.
        LookupError: a worker couldn't import its function.
        OperationalError: the broker can't be reached.
    """
    kwargs = dict(job.kwargs or {})
    hidden = {"argsrepr": repr((job.path,)), "kwargsrepr": "{}"}  # the token is a secret: keep it out of logs
    options: dict[str, Any] = {"expires": job.expire, **hidden}
    task: Task[Any, Any] = load  # a proxy for the current app's task
    _check(job, task, kwargs)
    arguments = (job.path, list(job.args), kwargs, job.token)
    app = task.app
    if app.conf.task_always_eager:
        task.apply_async(arguments, **options)
        return
    if clock.now() < _down.get(app, 0.0):
        raise OperationalError("the broker couldn't be reached a moment ago")
    with app.producer_pool.acquire(block=True) as producer:
        # Connect first: kombu retries that for seconds even with retry=False, and in older versions with any policy
        assert producer.connection is not None  # noqa: S101 - producers of a pool have one
        try:
            producer.connection.ensure_connection(**CONNECT_ONCE)
        except OperationalError:
            _down[app] = clock.now() + RETRY_AFTER
            raise
        task.apply_async(arguments, producer=producer, retry=True, retry_policy=CONNECT_ONCE, **options)


def _check(job: Job, task: Task[Any, Any], kwargs: dict[str, Any]) -> None:
    """Raise if serialization would change the key that the arguments make: a worker would load another value."""
    from django_redis_locks.cache.decorator.function import is_same_value  # noqa: PLC0415 - most projects don't need it

    if job.path.startswith("__main__:"):
        raise LookupError(f"a worker can't import {job.path}: move it into a module")
    serializer = task.serializer
    try:
        content_type, encoding, data = dumps((job.args, kwargs), serializer)
        sent_args, sent_kwargs = loads(data, content_type, encoding, accept={content_type})
        same = is_same_value(job, sent_args, sent_kwargs)
    except Exception as error:
        if type(error) is LookupError:
            raise
        raise TypeError(_error_text(job, f"can't be sent as {serializer} ({error})")) from error
    if not same:
        raise TypeError(_error_text(job, f"aren't the same after they were sent as {serializer}"))


def _error_text(job: Job, what: str) -> str:
    kinds = ", ".join(sorted({type(value).__name__ for value in (*job.args, *(job.kwargs or {}).values())}))
    return (
        f"the arguments of {job.path} {what}; they are of the types {kinds}. Pass ids and other plain values instead of "
        'objects, or use refresh="thread"'
    )

"""``TaskOptions``: the options of a task, as class attributes or as arguments of ``@app.task``, and their
validation."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta
from math import inf
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, NamedTuple, TypeAlias, get_args

from celery.contrib.django.task import DjangoTask

from django_redis_locks.core.durations import wait_seconds
from django_redis_locks.core.suggestions import closest, did_you_mean

if TYPE_CHECKING:
    from typing_extensions import ParamSpec, TypeVar

    from django_redis_locks import Holder

    P = ParamSpec("P", default=...)
    R_co = TypeVar("R_co", default=Any, covariant=True)

    class CelerysTask(DjangoTask[P, R_co]):
        """Celery's own class. Type checkers know the arguments and the result of ``SingletonTask[[int], str]``."""

else:
    P = R_co = Any

    class CelerysTask(DjangoTask):
        """Celery's own class."""

        abstract = True

        def __class_getitem__(cls, types: Any) -> type:
            """The class itself, so that Celery takes it as ``base=``; the arguments are for type checkers."""
            return cls


Duration: TypeAlias = float | timedelta

OnDuplicate: TypeAlias = Literal["existing", "raise", "replace", "queue"]
OnConflict: TypeAlias = Literal["skip", "wait", "retry", "raise", "follow"]
OnBackendError: TypeAlias = Literal["open", "closed"]
OnLost: TypeAlias = Literal["log", "abort"]
Canvas: TypeAlias = Literal["follow", "run", "fail"]
UniqueUntil: TypeAlias = Literal["success", "start", "finish", "expired"]

CHOICES: Final = {
    "lock_on_duplicate": get_args(OnDuplicate),
    "lock_on_conflict": (None, *get_args(OnConflict)),
    "lock_on_backend_error": get_args(OnBackendError),
    "lock_canvas": get_args(Canvas),
    "unique_until": get_args(UniqueUntil),
}

_TIMES: Final = {
    "lock_expire": 1.0,
    "lock_wait": 0.0,
    "lock_min_hold": 0.0,
    "lock_max_hold": 1.0,
    "lock_retry_delay": 0.0,
    "lock_queue_ttl": 1.0,
    "lock_redelivery_window": 0.0,
    "idempotency_ttl": 0.0,
}
"""The smallest value of each, in seconds."""

PREFIXES: Final = ("lock_", "unique_", "idempotency_")
"""Prefixes of option names. Unknown attributes with these prefixes are refused, since they are misspelled options."""

_FOR_EVER: Final = ("lock_wait", "lock_max_hold")


def is_celerys_own(name: str | None) -> bool:
    """Whether a task of this name is one of Celery's own."""
    return (name or "").startswith("celery.")


class TaskOptions(CelerysTask[P, R_co]):
    """The options of a task's lock, as class attributes or as arguments of ``@app.task``.

    Times are seconds or a ``timedelta``; None is the default, -1 for ever.

    Attributes:
        lock_key: the key: a template such as ``"{tenant}"``, or a callable that gets the task and the arguments and
            returns a str. None: all arguments. The task's name is always a part of it.
        lock_using: the alias in ``REDIS_LOCKS``.
        lock_expire: the lease, renewed while the job runs: after a crash of its host the job can run elsewhere when the
            lease ends. By default the alias's ``EXPIRE``.
        lock_wait: how long a message waits for its key in the worker, which begins it as soon as the key is free: with
            ``lock_on_conflict="wait"`` before it raises, by default the alias's ``WAIT``; with ``"retry"`` before each
            redelivery, by default not at all.
        lock_min_hold: how long the key stays taken from the start of the run, even if the run is shorter.
        lock_max_hold: how long the lease is renewed. By default the task's ``time_limit`` and ten seconds; without one
            for ever.
        lock_limit: how many jobs of one key may run at a time. With more than one, a submission is a duplicate only while
            the job is queued, as with ``unique_until="start"``. For singletons.
        lock_on_duplicate: at submission, when the same job is queued or runs: ``"existing"`` returns its result,
            ``"raise"`` raises ``DuplicateTask``, ``"replace"`` lets this one run instead of one that is queued,
            ``"queue"`` sends every message.
        lock_on_conflict: at the start, when another job has the key: ``"skip"`` ends as REVOKED, ``"wait"`` waits and
            then raises, ``"retry"`` redelivers the message after ``lock_retry_delay``, ``lock_max_retries`` times,
            ``"raise"`` raises ``LockNotAcquired``, ``"follow"`` takes the result of the job that runs.
        lock_on_lost: when the lease was lost while the job runs: ``"log"``, ``"abort"`` raises ``LockLost`` in the job,
            or a callable that gets the task and its lock.
        lock_on_backend_error: at submission, when the store is down: ``"open"`` still sends the message (the
            worker decides), ``"closed"`` raises. At the start a job never runs unlocked: its message is redelivered.
        lock_queue_ttl: how long a queued message blocks submissions. Then the same job can be submitted again.
        lock_redelivery_window: how long a job is remembered after its end, so that a late copy of its message isn't
            run. By default the broker's visibility timeout, or an hour.
        lock_canvas: for a duplicate in a chord, group or chain, or with a callback: ``"follow"`` takes the result of
            the first one, ``"run"`` runs after it, ``"fail"`` raises ``DuplicateTask``.
        lock_eager: take the lock in ``apply()`` and with ``task_always_eager`` too.
        unique_until: until when a second submission is a duplicate: the job's ``"start"``; its ``"success"`` or final
            failure; its ``"finish"``; or until ``"expired"``, ``idempotency_ttl`` after its submission.
        idempotency_ttl: how long after its end a job's result is the result of new submissions.
    """

    lock_key: ClassVar[str | Callable[..., str] | None] = None
    lock_using: ClassVar[str] = "default"
    lock_expire: ClassVar[Duration | None] = None
    lock_wait: ClassVar[Duration | None] = None
    lock_min_hold: ClassVar[Duration] = 0
    lock_max_hold: ClassVar[Duration | None] = None
    lock_limit: ClassVar[int] = 1
    lock_on_duplicate: ClassVar[OnDuplicate] = "existing"
    lock_on_conflict: ClassVar[OnConflict | None] = None
    lock_retry_delay: ClassVar[Duration] = 5
    lock_max_retries: ClassVar[int] = 60
    lock_on_lost: ClassVar[OnLost | Callable[..., Any]] = "log"
    lock_on_backend_error: ClassVar[OnBackendError] = "open"
    lock_queue_ttl: ClassVar[Duration] = 86_400
    lock_redelivery_window: ClassVar[Duration | None] = None
    lock_canvas: ClassVar[Canvas] = "follow"
    lock_eager: ClassVar[bool] = False
    unique_until: ClassVar[UniqueUntil] = "success"
    idempotency_ttl: ClassVar[Duration] = 0

    abstract = True
    lock_usual_conflict: ClassVar[OnConflict] = "skip"
    """The default of ``lock_on_conflict``."""

    @property
    def plain(self) -> bool:
        """Whether it is one of Celery's own tasks, which get an app's default base class too: they take no lock."""
        return is_celerys_own(self.name)

    def on_lock_skipped(self, holder: Holder | None) -> None:
        """Called when a run is skipped because another job has the key. Does nothing by default.

        Args:
            holder: the run that has the key, if it is known.
        """

    def on_lock_lost(self) -> None:
        """Called when the lock of a run was lost, in a thread for notifications. Does nothing by default."""


def is_unique_until_start(task: TaskOptions | type[TaskOptions]) -> bool:
    """Whether a submission isn't a duplicate of a job that runs. The queue then has another record than the run."""
    return task.unique_until == "start" or task.lock_limit > 1


def seconds(value: Duration | None) -> float:
    """A duration in seconds; infinity for -1, 0 for None."""
    if isinstance(value, timedelta):
        return value.total_seconds()
    return inf if value == -1 else float(value or 0)


SET_BY_CLASS: Final = ("lock_usual_conflict",)
"""The names of attributes that a kind of task sets, for all of its tasks."""

OPTIONS: Final = tuple(
    name for name in TaskOptions.__annotations__ if name.startswith(PREFIXES) and name not in SET_BY_CLASS
)
"""The names of all options."""


def unknown_options(names: Iterable[str], known: Iterable[str]) -> list[str]:
    """Error messages about names that have the prefix of options and aren't options."""
    options = [name for name in known if name.startswith(PREFIXES)]
    wrong = sorted(name for name in set(names) - set(options) if name.startswith(PREFIXES))
    return [f"there is no option {name}{did_you_mean(closest(name, options))}" for name in wrong]


def errors_of(task: TaskOptions | type[TaskOptions]) -> list[str]:
    """Error messages about the options of a task."""
    return value_errors(task) or [contradiction.message for contradiction in contradictions(task)]


def value_errors(task: TaskOptions | type[TaskOptions]) -> list[str]:
    """Error messages about the values of a task's options, each by itself."""
    found = [
        f"{name} is one of {', '.join(map(repr, known))}, not {getattr(task, name)!r}"
        for name, known in CHOICES.items()
        if getattr(task, name) not in known
    ]
    found += [problem for name in _TIMES for problem in _of_time(name, getattr(task, name))]
    if task.lock_on_lost not in ("log", "abort") and not callable(task.lock_on_lost):
        found.append(f'lock_on_lost is "log", "abort" or a callable, not {task.lock_on_lost!r}')
    key: Any = task.lock_key
    if not (key is None or callable(key) or (isinstance(key, str) and key)):
        found.append(f"lock_key is a template or a callable, not {key!r}")
    if type(task.lock_max_retries) is not int or task.lock_max_retries < 0:
        found.append(f"lock_max_retries is a whole number, not {task.lock_max_retries!r}")
    if type(task.lock_limit) is not int or task.lock_limit < 1:
        found.append(f"lock_limit is a whole number of at least 1, not {task.lock_limit!r}")
    return found


def _of_time(name: str, value: Any) -> list[str]:
    if value is None and name in ("lock_expire", "lock_wait", "lock_max_hold", "lock_redelivery_window"):
        return []
    try:
        wait_seconds(value, name, least=_TIMES[name], for_ever=name in _FOR_EVER)
    except ValueError as error:
        return [str(error)]
    return []


class Contradiction(NamedTuple):
    """Options that can't be combined, each of which has a right value.

    Attributes:
        message: says what is wrong.
        options: the names of the options.
    """

    message: str
    options: tuple[str, str]


def contradictions(task: TaskOptions | type[TaskOptions]) -> list[Contradiction]:
    """The options of a task that can't be combined. Their values are right."""
    found = []
    if task.lock_max_hold is not None and seconds(task.lock_max_hold) < seconds(task.lock_min_hold):
        found.append(Contradiction("lock_max_hold is shorter than lock_min_hold", ("lock_max_hold", "lock_min_hold")))
    if task.unique_until == "expired" and not seconds(task.idempotency_ttl):
        text = 'unique_until="expired" needs an idempotency_ttl'
        found.append(Contradiction(text, ("unique_until", "idempotency_ttl")))
    if is_unique_until_start(task):
        limited = task.lock_limit > 1
        name, until_start = (
            ("lock_limit", f"lock_limit={task.lock_limit}") if limited else ("unique_until", 'unique_until="start"')
        )
        if seconds(task.idempotency_ttl):
            text = f"idempotency_ttl has no effect with {until_start}"
            found.append(Contradiction(text, ("idempotency_ttl", name)))
        if task.lock_on_conflict == "follow":
            text = f'lock_on_conflict="follow" can\'t be combined with {until_start}'
            found.append(Contradiction(text, ("lock_on_conflict", name)))
    return found + (_contradictions_of_limit(task) if task.lock_limit > 1 else [])


def _contradictions_of_limit(task: TaskOptions | type[TaskOptions]) -> list[Contradiction]:
    found = []
    if task.lock_usual_conflict == "follow":
        text = "lock_limit is for a SingletonTask: a job of an IdempotentTask is run once"
        found.append(Contradiction(text, ("lock_usual_conflict", "lock_limit")))
    if task.unique_until in ("finish", "expired"):
        text = f'unique_until="{task.unique_until}" can\'t be combined with lock_limit={task.lock_limit}: leave it out'
        found.append(Contradiction(text, ("unique_until", "lock_limit")))
    if seconds(task.lock_min_hold):
        text = f"lock_min_hold can't be combined with lock_limit={task.lock_limit}: leave one of them out"
        found.append(Contradiction(text, ("lock_min_hold", "lock_limit")))
    return found


def validate(task: type[Any]) -> None:
    """Validate the options of a task.

    Raises:
        ValueError: an option is wrong; the message names all that are.
    """
    found = unknown_options(dir(task), dir(TaskOptions)) + errors_of(task)
    if found:
        raise ValueError(f"task {getattr(task, 'name', None) or task.__name__}: {'; '.join(found)}")

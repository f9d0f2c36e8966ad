"""The key of a job, computed once, where it is submitted.

Without a ``lock_key`` it is the task's name and a BLAKE2b digest of its arguments as the task's signature binds them,
defaults included, written as Kombu's JSON: tuple or list, a UUID or its text, positional or by name, in whatever order, make
no difference, and no argument can be read out of it.
"""

from __future__ import annotations

import inspect
from functools import lru_cache
from hashlib import blake2b
from json import JSONEncoder, loads
from typing import TYPE_CHECKING, Any
from uuid import UUID

from kombu.utils import json

from django_redis_locks import LockKeyError, key_maker
from django_redis_locks.job_schema import KIND

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from .options import TaskOptions


PREFIX = f"{KIND}:"

_in_order = JSONEncoder(sort_keys=True, separators=(",", ":")).encode


class _Encoder(json.JSONEncoder):
    """Of pydantic's models what Celery itself sends of them, and of a UUID its text, which names the same thing."""

    def default(self, o: Any) -> Any:
        if isinstance(o, UUID):
            return str(o)
        dump = getattr(o, "model_dump", None)
        return dump(mode="json") if callable(dump) else super().default(o)


def key_of(task: TaskOptions, args: Sequence[Any], kwargs: Mapping[str, Any], given: Any) -> tuple[str, str]:
    """The key of a call, and the fingerprint of its arguments if they aren't its key.

    Raises:
        TypeError: the task doesn't take these arguments, or they have no JSON and there is no ``lock_key``.
        LockKeyError: the key is empty or no str.
    """
    chosen = task.__class__.lock_key  # of an instance, a function would be bound
    if given is not None:
        if not isinstance(given, str) or not given:
            raise LockKeyError(f"idempotency_key of task {task.name} is a text, not {given!r}", name=task.name)
        return f"{PREFIX}{task.name}:{_digest('key', given)}", _digest("args", _arguments(task, args, kwargs))
    if chosen is None:
        return f"{PREFIX}{task.name}:{_digest('args', _arguments(task, args, kwargs))}", ""
    if isinstance(chosen, str):
        filled: Any = _template(task, chosen)(tuple(args), dict(kwargs))
    else:
        filled = chosen(task, *args, **kwargs)
        if not isinstance(filled, str) or not filled:
            raise LockKeyError(f"lock_key of task {task.name} returned {filled!r}, not a text", name=task.name)
    return f"{PREFIX}{task.name}:{filled}", ""


def _digest(*parts: str) -> str:
    digest = blake2b(digest_size=16)
    for part in ("1", *parts):
        data = part.encode(errors="surrogatepass")
        digest.update(b"%d:%b" % (len(data), data))
    return digest.hexdigest()


def _arguments(task: TaskOptions, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    try:
        call = _signature(task.run).bind(*args, **kwargs)
    except TypeError:
        if task.typing:
            raise
        bound: Any = [list(args), dict(kwargs)]
    else:
        call.apply_defaults()
        bound = call.arguments
    try:
        text = json.dumps(bound, cls=_Encoder)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"the arguments of task {task.name} can't be made a key: {error}. "
            'Give the task a lock_key, such as lock_key="{order_id}", or send plain values'
        ) from None
    return _in_order(loads(text))  # by names as they are sent: JSON knows only text


@lru_cache(maxsize=1024)
def _signature(run: Callable[..., Any]) -> inspect.Signature:
    return inspect.signature(run)


@lru_cache(maxsize=1024)
def _template(task: TaskOptions, template: str) -> Callable[[tuple[Any, ...], dict[str, Any]], str]:
    return key_maker(template, task.run, {"self": task})

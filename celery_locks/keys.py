"""Computes the key of a job, from ``lock_key``, ``idempotency_key`` or the arguments. Only the submitter does so.

Without a ``lock_key`` the key is the task's name and a BLAKE2b digest of the arguments, which are bound to the task's
signature, completed with its defaults and written as Kombu's JSON. A tuple and a list, a UUID and its str, a positional
and a keyword argument make the same key. The arguments can't be read from the key.
"""

from __future__ import annotations

import inspect
from functools import lru_cache
from hashlib import blake2b
from json import JSONEncoder, loads
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from kombu.utils.json import JSONEncoder as KombuEncoder

from django_redis_locks import LockKeyError, key_maker
from django_redis_locks.job_schema import KIND

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from .options import TaskOptions


PREFIX = f"{KIND}:"

_in_order = JSONEncoder(sort_keys=True, separators=(",", ":")).encode

_SCALARS: Final = frozenset({str, int, float, bool, type(None)})
"""Types whose values JSON returns unchanged."""


class _Encoder(KombuEncoder):
    """Encodes pydantic's models as Celery sends them, and a UUID as its str."""

    def default(self, o: Any) -> Any:
        if isinstance(o, UUID):
            return str(o)
        dump = getattr(o, "model_dump", None)
        return dump(mode="json") if callable(dump) else super().default(o)


_as_sent = _Encoder().encode


def key_of(task: TaskOptions, args: Sequence[Any], kwargs: Mapping[str, Any], given: Any) -> tuple[str, str]:
    """The key of a call, and the fingerprint of its arguments if they aren't its key.

    Args:
        task: the task.
        args: the positional arguments.
        kwargs: the keyword arguments.
        given: the ``idempotency_key``, or None.

    Raises:
        TypeError: the task doesn't take these arguments, or JSON can't express them and there is no ``lock_key``.
        LockKeyError: the key is empty or not a str.
    """
    chosen = task.__class__.lock_key  # on an instance, a function would be bound
    if given is not None:
        if not isinstance(given, str) or not given:
            raise LockKeyError(f"idempotency_key of task {task.name} must be a str, not {given!r}", name=task.name)
        return f"{PREFIX}{task.name}:{_digest('key', given)}", _digest("args", _arguments(task, args, kwargs))
    if chosen is None:
        return f"{PREFIX}{task.name}:{_digest('args', _arguments(task, args, kwargs))}", ""
    if isinstance(chosen, str):
        filled: Any = _template(task, chosen)(tuple(args), dict(kwargs))
    else:
        filled = chosen(task, *args, **kwargs)
        if not isinstance(filled, str) or not filled:
            raise LockKeyError(f"lock_key of task {task.name} must return a str, not {filled!r}", name=task.name)
    return f"{PREFIX}{task.name}:{filled}", ""


def _digest(*parts: str) -> str:
    encoded = [part.encode(errors="surrogatepass") for part in ("1", *parts)]
    return blake2b(b"".join([b"%d:%b" % (len(part), part) for part in encoded]), digest_size=16).hexdigest()


def _arguments(task: TaskOptions, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    try:
        bound: Any = _parameters(task.run).bind(args, kwargs)
    except TypeError:
        if task.typing:
            raise
        bound = [list(args), dict(kwargs)]
    try:
        if bound.__class__ is dict and _SCALARS.issuperset(map(type, bound.values())):
            return _in_order(bound)
        text = _as_sent(bound)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"the arguments of task {task.name} can't be encoded as a key: {error}. "
            'Give the task a lock_key, such as lock_key="{order_id}", or pass plain values'
        ) from None
    return _in_order(loads(text))  # after the round trip all names are str, and can be sorted


class _Parameters:
    """The parameters of a task.

    Args:
        run: the task's function.
    """

    def __init__(self, run: Callable[..., Any]) -> None:
        self._signature = inspect.signature(run)
        parameters = self._signature.parameters.values()
        self._names = [parameter.name for parameter in parameters]
        self._defaults = {each.name: each.default for each in parameters if each.default is not each.empty}
        self._all_positional = all(
            each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD) for each in parameters
        )

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of a call by their names, completed with the defaults.

        Raises:
            TypeError: the task doesn't take these arguments.
        """
        names, defaults = self._names, self._defaults
        if self._all_positional and not kwargs and len(names) - len(defaults) <= len(args) <= len(names):
            return {**defaults, **dict(zip(names, args, strict=False))}
        call = self._signature.bind(*args, **kwargs)
        call.apply_defaults()
        return call.arguments


_parameters = lru_cache(maxsize=1024)(_Parameters)


@lru_cache(maxsize=1024)
def _template(task: TaskOptions, template: str) -> Callable[[tuple[Any, ...], dict[str, Any]], str]:
    return key_maker(template, task.run, {"self": task})

"""The public API as text: `tests/public_api.txt`, which a test compares with the code.

    python -m tools.public_api            writes the file
    python -m tools.public_api --check    shows the difference and fails if there is one

One line per item, sorted, so that a diff shows what was added, removed or changed. Annotations are as in the source,
and members inherited from other libraries are left out, so that the file is the same for all supported versions of
Python, Django, redis-py and Celery.
"""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import importlib
import inspect
import logging
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, Final, Generic, Protocol, get_overloads

import django
from celery.utils.dispatch import Signal as CelerySignal
from django.core.management import load_command_class
from django.dispatch import Signal
from django.template.backends.django import get_installed_libraries
from rest_framework.exceptions import APIException

from django_redis_locks import LockError
from django_redis_locks.cache import LoadError

ROOT: Final = Path(__file__).resolve().parent.parent
FILE: Final = ROOT / "tests" / "public_api.txt"
PACKAGES: Final = ("django_redis_locks", "celery_locks")

MODULES: Final[dict[str, tuple[str, ...]]] = {
    "celery_locks": (),
    "celery_locks.signals": (
        "dead_run_freed",
        "duplicate_suppressed",
        "lock_acquired",
        "lock_lost",
        "lock_released",
        "lock_skipped",
        "run_parked",
        "tick_suppressed",
    ),
    "celery_locks.testing": ("locked_eager", "running"),
    "django_redis_locks": (),
    "django_redis_locks.admin": (),
    "django_redis_locks.answers": ("answer",),
    "django_redis_locks.backends.memory": (),
    "django_redis_locks.backends.redis": (),
    "django_redis_locks.cache": (),
    "django_redis_locks.cache.middleware": (
        "StampedeFetchMiddleware",
        "StampedeUpdateMiddleware",
    ),
    "django_redis_locks.contrib.drf": (),
    "django_redis_locks.diagnosis": ("afacts", "afences", "araise_fences", "facts", "fences", "raise_fences"),
    "django_redis_locks.fencing": ("FencedModel", "afenced_update", "fenced_update"),
    "django_redis_locks.inspection": (),
    "django_redis_locks.middleware": ("LockMiddleware",),
    "django_redis_locks.models": ("HeldLock",),
    "django_redis_locks.signals": (
        "lock_acquired",
        "lock_backend_failed",
        "lock_contended",
        "lock_detached",
        "lock_force_released",
        "lock_lost",
        "lock_released",
    ),
    "django_redis_locks.testing": (),
    "django_redis_locks.testing.fixtures": ("captured_locks", "manual_clock", "memory_locks", "no_locks_left"),
}
"""The documented modules, and the public names of those without `__all__`."""

RETURNED: Final = (
    ("Cached", "django_redis_locks.cache.decorator.function"),
    ("Facts", "django_redis_locks.core.server_info"),
    ("FenceCounter", "django_redis_locks.core.server_info"),
    ("Locks", "django_redis_locks.client"),
    ("Written", "django_redis_locks.primitives.shared.record_values"),
)
"""Documented classes of returned values that no public module exports, with their modules."""

OPTIONS: Final = (
    ("@cached", "django_redis_locks.cache.decorator.cached", "CachedOptions"),
    ("@redis_lock", "django_redis_locks.decorators.redis_lock", "Options"),
)
"""Typed dicts of keyword arguments."""

MADE_HERE: Final = {
    "Cached",
    "Facts",
    "FenceCounter",
    "Grant",
    "HeldLock",
    "Latch",
    "Leader",
    "Lock",
    "Locks",
    "MultiGrant",
    "MultiLock",
    "ReadLock",
    "ReadWriteLock",
    "Record",
    "RecordRef",
    "RunLock",
    "Semaphore",
    "WriteLock",
}
"""Classes without a public constructor."""

ONLY: Final[dict[str, set[str]]] = {
    "clock": {"now", "wall"},
    "HeldLockAdmin": {"actions", "force_release", "has_force_release_permission", "list_display", "list_filter"},
    "MemoryBackend": set(),
    "RedisBackend": set(),
    "StampedeFetchMiddleware": {"stale", "using", "wait", "wait_with_cookies"},
    "StampedeUpdateMiddleware": {"stale", "using", "wait", "wait_with_cookies"},
}
"""The public members of a module, and of classes that settings name or that projects subclass."""

_OF_LOCKS: Final = {
    "exclusive",
    "role",
    "adopt_command",
    "aextend_grant",
    "arelease_grant",
    "check_block",
    "clean_up_release",
    "detach_grant",
    "adetach_grant",
    "leave_grant",
    "aleave_grant",
    "extend_grant",
    "keys",
    "lock_id",
    "options",
    "performer",
    "may_reenter",
    "waits_for",
    "why_not_reentered",
    "reentrant",
    "release_commands",
    "release_grant",
    "release_in_background",
    "spec",
}

INTERNAL: Final[dict[str, set[str]]] = {
    "Captured": {"add"},
    "Grant": {"aexit_block", "deferred", "exit_block", "waits_for_transaction", "whole"},
    "Job": {"request"},
    "Latch": {"error_context", "keys", "lock_id", "options", "performer", "with_context"},
    "LoadContext": {"may_store"},
    "Lock": _OF_LOCKS,
    "MultiGrant": {"deferred", "waits_for_transaction", "whole"},
    "MultiLock": _OF_LOCKS - {"keys"},
    "ReadLock": _OF_LOCKS,
    "Semaphore": _OF_LOCKS,
    "WriteLock": _OF_LOCKS,
    "LockHandler": {"configuration"},
    "ManualClock": {"wait"},
    "Locks": {"engine", "fence_counters", "indexes", "listed", "max_hold", "overrides", "settings"},
    "RecordRef": {
        "error_context",
        "keys",
        "lock_id",
        "options",
        "peek",
        "performer",
        "post",
        "prepared_put",
        "with_context",
    },
    "StampedeCache": {"coordinator", "full_key", "wraps_alias"},
}
"""Members without underscore that aren't public. Generators aren't public either."""

PROTOCOLS: Final = {
    "__aenter__",
    "__aexit__",
    "__bool__",
    "__call__",
    "__contains__",
    "__enter__",
    "__exit__",
    "__getitem__",
    "__iter__",
    "__len__",
    "__str__",
}


def text() -> str:
    """The whole file."""
    return "".join(f"{line}\n" for line in sorted(set(lines())))


def lines() -> Iterator[str]:
    for name, listed in MODULES.items():
        module = importlib.import_module(name)
        for public in listed or module.__all__:
            yield from of_value(f"{name}.{public}", getattr(module, public))
    for title, name in RETURNED:
        yield from of_class(title, getattr(importlib.import_module(name), title))
    for title, name, attribute in OPTIONS:
        for option, annotation in annotations_of(getattr(importlib.import_module(name), attribute)).items():
            yield f"{title} option {option}: {annotation}"
    yield from of_settings()
    yield from of_command()
    yield from of_django()
    yield from of_sources()


# Values


def of_value(path: str, value: Any) -> Iterator[str]:
    if isinstance(value, type):
        yield from of_class(path, value)
    elif isinstance(value, ModuleType):
        yield f"{path}: module"
        names = ONLY[path.rpartition(".")[2]]
        yield from (f"{path}.{name}: {said}" for name, said in annotations_of(value).items() if name in names)
    elif isinstance(value, Signal | CelerySignal):
        yield f"{path}: signal ({arguments_of(value)})"
    elif path.startswith("django_redis_locks.testing.fixtures."):
        yield f"{path}: pytest fixture"
    elif inspect.isroutine(value):
        yield from of_function(path, value)
    elif type(value).__module__.startswith(PACKAGES):
        yield f"{path}: {type(value).__name__.lstrip('_')}"
        yield from of_members(path, type(value))
    else:
        yield f"{path} = {shown(value)}"


def arguments_of(signal: Any) -> str:
    """The keyword arguments of receivers of a signal."""
    if hasattr(signal, "providing_args"):
        return ", ".join(sorted(signal.providing_args))
    for event, found in importlib.import_module("django_redis_locks.signals")._signals.items():
        if found is signal:
            fields = ", ".join(field.name for field in dataclasses.fields(event))
            level = logging.getLevelName(event.level)
            return f"event: {event.__name__}({fields}), logged by django_redis_locks.{event.kind} as {level}"
    return "..."


def of_function(path: str, function: Any, *words: str) -> Iterator[str]:
    words = (*words, "async") if inspect.iscoroutinefunction(function) else words
    for overload in get_overloads(function):
        yield f"{path}: {' '.join((*words, 'overload'))} {signature_of(overload)}"
    yield f"{path}: {' '.join((*words, 'function'))} {signature_of(function)}"


def of_class(path: str, kind: type) -> Iterator[str]:
    yield f"{path}: class ({', '.join(bases_of(kind))})"
    own = any({"__init__", "__new__"} & vars(one).keys() for one in own_classes(kind))
    if own and kind.__name__ not in {*MADE_HERE, *ONLY}:
        yield f"{path}: constructor {signature_of(kind)}"
    yield from of_members(path, kind)


def bases_of(kind: type) -> Iterator[str]:
    """The bases of a class; those that are internal are replaced by their own bases."""
    for base in kind.__bases__:
        if base.__module__.startswith(PACKAGES) and not is_public(base):
            yield from bases_of(base)
        elif base not in (object, Generic, Protocol, tuple):
            yield base.__qualname__


def is_public(kind: type) -> bool:
    for name, listed in MODULES.items():
        module = importlib.import_module(name)
        if kind.__name__ in (listed or module.__all__) and getattr(module, kind.__name__) is kind:
            return True
    return False


def own_classes(kind: type) -> list[type]:
    return [one for one in kind.__mro__ if one.__module__.startswith(PACKAGES)]


def of_members(path: str, kind: type) -> Iterator[str]:
    found: dict[str, list[str]] = {}
    for one in reversed(own_classes(kind)):
        annotations = annotations_of(one)
        found |= {name: [f"{path}.{name}"] for name in documented_in(one)}
        found |= {name: [f"{path}.{name}: {said}"] for name, said in annotations.items()}
        for name, value in vars(one).items():
            if not (name in annotations and (dataclasses.is_dataclass(one) or hasattr(one, "_fields"))):
                start = f"{path}.{name}: {annotations[name]}" if name in annotations else f"{path}.{name}"
                found[name] = list(of_member(start, value)) or found.get(name, [])
    if issubclass(kind, LockError | LoadError) and not issubclass(kind, APIException):
        found |= {name: [f"{path}.{name} = {value!r}"] for name, value in vars(kind("")).items()}
    for name, said in found.items():
        public = not name.startswith("_") or name in PROTOCOLS
        if public and name in ONLY.get(kind.__name__, found) and name not in INTERNAL.get(kind.__name__, ()):
            yield from said


def documented_in(kind: type) -> list[str]:
    """The names under `Attributes:` in its docstring."""
    _, _, section = inspect.cleandoc(kind.__doc__ or "").partition("\nAttributes:\n")
    return re.findall(r"^    (\w+): ", section.partition("\n\n")[0], re.MULTILINE)


def of_member(path: str, value: Any) -> Iterator[str]:
    if isinstance(value, property):
        yield f"{path}: {inspect.signature(value.fget).return_annotation if value.fget else 'Any'}"
    elif isinstance(value, classmethod | staticmethod):
        yield from of_function(path, value.__func__, type(value).__name__)
    elif inspect.isfunction(value) and not inspect.isgeneratorfunction(value):
        yield from of_function(path, value)
    elif not inspect.isclass(value) and not hasattr(value, "__get__"):
        yield f"{path} = {shown(value)}"


def annotations_of(value: Any) -> dict[str, str]:
    """The annotations of an object itself, as in the source, without ClassVar and Final."""
    own: dict[str, Any] = vars(value).get("__annotations__", {})
    spelled = {name: str(getattr(said, "__forward_arg__", said)) for name, said in own.items()}
    return {name: re.sub(r"^(?:ClassVar|Final)\[(.*)\]$", r"\1", said) for name, said in spelled.items()}


# Signatures


def signature_of(function: Any) -> str:
    signature = inspect.signature(function)
    parameters = [Spelled.parameter(one) for one in signature.parameters.values() if one.name not in ("self", "cls")]
    return str(signature.replace(parameters=parameters, return_annotation=Spelled.of(signature.return_annotation)))


class Spelled:
    """An annotation or a default that `inspect` shows as text without quotes."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text

    @classmethod
    def of(cls, annotation: Any) -> Any:
        if annotation is inspect.Parameter.empty:
            return annotation
        return cls(str(getattr(annotation, "__forward_arg__", annotation)))

    @classmethod
    def parameter(cls, one: inspect.Parameter) -> inspect.Parameter:
        default = one.default if one.default is one.empty else cls(shown(one.default))
        return one.replace(annotation=cls.of(one.annotation), default=default)


def shown(value: Any) -> str:
    """The repr of a value, without parts that differ between runs."""
    if isinstance(value, dict) and any(map(callable, value.values())):
        return repr(list(value))
    if isinstance(value, type | FunctionType):
        return value.__qualname__
    if isinstance(value, tuple | list) and any(isinstance(one, type) for one in value):
        return f"({', '.join(map(shown, value))})"
    return re.sub(r"<(?:[\w.]*\.)?(\w+)(?: object)? at 0x\w+>", r"<\1>", repr(value))


# Settings, commands, Django


def of_settings() -> Iterator[str]:
    conf: Any = importlib.import_module("django_redis_locks.conf")
    for key, default in conf.DEFAULTS.items():
        yield f"REDIS_LOCKS[alias] {key} = {default!r}"
    for key in conf.overrides.PER_NAME:
        yield f"REDIS_LOCKS[alias]['LOCKS'][name] {key}"
    wrapper: Any = importlib.import_module("django_redis_locks.cache.stampede_settings")
    for key in wrapper.ENTRY_KEYS:
        yield f"CACHES[alias] of a StampedeCache {key}"
    for key in wrapper.OPTION_NAMES:
        yield f"CACHES[alias]['OPTIONS'] of a StampedeCache {key}"
    options: Any = importlib.import_module("django_redis_locks.cache.options")
    for field in dataclasses.fields(options.CheckedOptions):
        yield f"load option {field.name} = {shown(field.default)}"
    metrics: Any = importlib.import_module("django_redis_locks.cache.metrics")
    yield from (f"load counter {value}" for name, value in vars(metrics).items() if name.isupper())
    choices = importlib.import_module("celery_locks.options").CHOICES
    for name, known in choices.items():
        yield f"celery task option {name} in {known!r}"


def of_command() -> Iterator[str]:
    parser = load_command_class("django_redis_locks", "redis_locks").create_parser("manage.py", "redis_locks")
    (verbs,) = (action.choices for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    for verb, one in verbs.items():
        for action in one._actions:
            if action.help != argparse.SUPPRESS and "--help" not in action.option_strings:
                default = "" if action.required else f" = {action.default!r}"
                choices = f" in {sorted(action.choices)!r}" if action.choices else ""
                yield f"manage.py redis_locks {verb} {' '.join(action.option_strings) or action.dest}{choices}{default}"
    console: Any = importlib.import_module("django_redis_locks.console.console")
    for code in ("OK", "NO", "WRONG", "DOWN"):
        yield f"manage.py redis_locks exit code {getattr(console, code)} {code}"
    command: Any = importlib.import_module("django_redis_locks.management.commands.redis_locks")
    yield f"manage.py redis_locks exit code {command.INTERRUPTED} INTERRUPTED"


def of_django() -> Iterator[str]:
    models: Any = importlib.import_module("django_redis_locks.models")
    meta = models.HeldLock._meta
    yield f"app label {meta.app_label}"
    yield from (f"permission {meta.app_label}.{verb}_{meta.model_name}" for verb in meta.default_permissions)
    yield from (f"permission {meta.app_label}.{codename}" for codename, _ in meta.permissions)
    for name, path in get_installed_libraries().items():
        if path.startswith(PACKAGES):
            library = importlib.import_module(path).register
            yield from (f"template library {name} tag {tag}" for tag in library.tags)
            yield from (f"template library {name} filter {tag}" for tag in library.filters)
    package = ROOT / "django_redis_locks"
    for folder in ("templates", "static"):
        for found in (package / folder).rglob("*.*"):
            yield f"{folder} {found.relative_to(package / folder).as_posix()}"


def of_sources() -> Iterator[str]:
    """Public literals: check ids, loggers, further settings and task names."""
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            source = path.read_text(encoding="utf-8")
            tag = "redis_locks" if package == "django_redis_locks" else package
            yield from (f"system check {tag}.{id}" for id in re.findall(r"[\".]([EWI]\d{3})\b", source))
            yield from (
                f"logger {name}" for name in re.findall(r"getLogger\(\"((?:django_redis|celery)[\w.]+)", source)
            )
            yield from (f"setting {name}" for name in re.findall(r"\"(CACHE_MIDDLEWARE_\w+)\"", source))
            yield from (f"celery app.conf {name}" for name in re.findall(r"conf\.get\(\"(\w+)\"", source))
            yield from (f"celery task {name}" for name in re.findall(r"name=\"(celery_locks\.\w+)\"", source))


# The file


def difference() -> str:
    """The diff between the file and the code; "" if there is none."""
    kept = FILE.read_text(encoding="utf-8") if FILE.exists() else ""
    names = (str(FILE.relative_to(ROOT)), "the code")
    return "\n".join(difflib.unified_diff(kept.splitlines(), text().splitlines(), *names, lineterm="", n=0))


def main(arguments: list[str]) -> int:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
    django.setup()
    if "--check" in arguments:
        found = difference()
        print(found or "No difference.")
        return bool(found)
    FILE.write_text(text(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

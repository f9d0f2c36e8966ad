"""The docstrings of the public API: each says all of it, so that its reader needs no other."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from functools import reduce
from importlib import import_module
from typing import Any

from tools import public_api

ITEM = re.compile(r"([\w.]+)(?::| =) ")
SECTION = re.compile(r"^(Args|Returns|Raises):\n((?:    .*\n|\n(?=    ))*)", re.MULTILINE)
ENTRY = re.compile(r"^    ([*\w., ]+): ((?:.*\n(?:     .*\n)*))", re.MULTILINE)

OF_DJANGO = ("django_redis_locks.cache.StampedeCache.", "django_redis_locks.fencing.FencedModel.")
"""Classes with methods of Django's, whose documentation is Django's."""

POSITIONAL = {"target"}
"""Parameters without a name that callers use: a template, or the decorated function."""

OF_CALLER = {"SynchronousOnlyOperation", "TypeError", "default", "immediate", "loader"}
"""Entries that differ between twins, since one is for synchronous callers and the other for asynchronous ones."""

TWINS_NAMED = re.compile(r"(``|\.)a(?=(?:delete|get|get_or_load|release)\b)")
"""The twins that entries name."""


def documentable(value: Any) -> bool:
    return isinstance(value, type | property) or inspect.isfunction(value) or inspect.ismethod(value)


def resolved(path: str) -> Any:
    """The value with this name in the public API; None for an attribute that only instances have."""
    roots = {title: f"{module}.{title}" for title, module in public_api.RETURNED}
    full = re.sub(r"^\w+", lambda root: roots.get(root[0], root[0]), path)
    module = max(
        (name for name in [*public_api.MODULES, *roots.values()] if f"{full}.".startswith(f"{name}.")), key=len
    )
    if module in roots.values():
        module = module.rpartition(".")[0]
    names = full.removeprefix(f"{module}.").split(".")
    return reduce(lambda value, name: getattr(value, name, None), names, import_module(module))


PATHS = {match[1] for match in map(ITEM.match, public_api.lines()) if match}
ITEMS = {path: value for path in sorted(PATHS) if documentable(value := resolved(path))}
FUNCTIONS = {
    path: value
    for path, value in ITEMS.items()
    if not isinstance(value, type | property) and not (value.__name__.startswith("__") or path.startswith(OF_DJANGO))
}


def sections_of(function: Any) -> dict[str, dict[str, str]]:
    """The entries of each section by their names. A section of prose is one entry without name."""
    text = (inspect.getdoc(function) or "") + "\n"
    return {title: dict(entries_of(body)) for title, body in SECTION.findall(text)}


def entries_of(body: str) -> Iterator[tuple[str, str]]:
    for names, text in ENTRY.findall(body) or [("", body)]:
        yield from ((name, " ".join(text.split())) for name in names.split(", "))


def parameters_of(function: Any) -> set[str]:
    """The names of the parameters as a docstring spells them, without those that collect what is refused or ignored."""
    marks = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    found = {f"{marks.get(one.kind, '')}{one.name}" for one in inspect.signature(function).parameters.values()}
    return found - {"self", "**unknown", "**_"} - POSITIONAL


def common_entries(function: Any, title: str) -> dict[str, str]:
    """The entries of a section that twins share, without the prefix of twins."""
    entries = sections_of(function).get(title, {})
    return {name: TWINS_NAMED.sub(r"\1", text) for name, text in entries.items() if name not in OF_CALLER}


def test_every_public_class_function_and_property_has_a_docstring() -> None:
    """Ruff can't see what is public: it is lenient with magic methods, and where methods override others."""
    assert {"Cached", "django_redis_locks.Grant.__enter__", "django_redis_locks.Grant.key"} <= set(ITEMS)
    mute = [path for path, value in ITEMS.items() if not (inspect.getdoc(value) or path.startswith(OF_DJANGO))]
    assert mute == []


def test_every_public_function_documents_its_parameters() -> None:
    documented = {path: set(sections_of(function).get("Args", {})) for path, function in FUNCTIONS.items()}
    parameters = {path: parameters_of(function) for path, function in FUNCTIONS.items()}
    assert {path: names for path, names in documented.items() if names != parameters[path]} == {}
    assert {"expected", "expire", "shorten"} == documented["django_redis_locks.RecordRef.atouch"]


def test_awaitable_twin_documents_the_same_as_its_synchronous_one() -> None:
    names = {path: re.sub(r"(\w+)$", r"a\1", path) for path in FUNCTIONS}
    twins = {path: FUNCTIONS.get(name, FUNCTIONS.get(f"{name}_")) for path, name in names.items()}  # await is a keyword
    pairs = [(FUNCTIONS[path], twin) for path, twin in twins.items() if twin is not None]
    assert len(pairs) > 30
    for function, twin in pairs:
        titles = (
            ["Args", "Returns", "Raises"] if parameters_of(function) == parameters_of(twin) else ["Returns", "Raises"]
        )
        for title in titles:
            assert common_entries(function, title) == common_entries(twin, title), twin.__qualname__

"""Rules for the tests themselves: access to internals, length of files, names of tests."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path

from tools.public_api import MODULES, PACKAGES, RETURNED, ROOT

TESTS = ROOT / "tests"
FILES = sorted(str(path.relative_to(TESTS)) for path in TESTS.rglob("*.py"))
INSIDE = ("probes/", "simulation/", "unit/", "test_architecture.py", "test_scripts.py")
"""Where tests may use private attributes and internal modules; the two files check the source itself."""


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


# Internals


@cache
def private_names() -> frozenset[str]:
    """Every name with a leading underscore that the two packages define."""
    found = set()
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            for node in ast.walk(tree_of(path)):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                    found.add(node.name)
                elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
                    found.add(node.id if isinstance(node, ast.Name) else node.attr)
    return frozenset(name for name in found if re.match(r"_[^_]", name))


def is_internal(module: str, name: str = "") -> bool:
    """Whether a module of the packages, or a name in it, isn't public. Types of returned values count as public."""
    if not module.startswith(PACKAGES) or (name, module) in RETURNED:
        return False
    if f"{module}.{name}" in MODULES or (module in MODULES and not name):
        return False
    return module not in MODULES or name not in (MODULES[module] or import_module(module).__all__)


def internals_in(tree: ast.Module) -> Iterator[str]:
    """The non-public names of the packages that a test file uses, except names that the file defines itself."""
    nodes = list(ast.walk(tree))
    own = {node.name for node in nodes if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    own |= {node.attr for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)}
    private = private_names() - own
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if is_internal(alias.name))
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names if is_internal(node.module, alias.name))
        elif isinstance(node, ast.Attribute) and node.attr in private:
            if not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")):
                yield ast.unparse(node)
        elif isinstance(node, ast.Call) and called(node).endswith(("attr", "patch", "object", "import_module")):
            for text in (
                one.value for one in node.args if isinstance(one, ast.Constant) and isinstance(one.value, str)
            ):
                if text in private or (text.startswith(PACKAGES) and is_internal(*text.rpartition(".")[::2])):
                    yield text


def called(node: ast.Call) -> str:
    return getattr(node.func, "attr", getattr(node.func, "id", ""))


def test_internals_are_touched_inside_unit_simulation_and_probes_only() -> None:
    """Other tests use internals through functions of `tests/probes`, so a renamed attribute changes one file."""
    checked = [file for file in FILES if not file.startswith(INSIDE)]
    found = {file: sorted(set(internals_in(tree_of(TESTS / file)))) for file in checked}
    assert {file: internals for file, internals in found.items() if internals} == {}


def test_internals_are_recognized_in_each_spelling() -> None:
    """The rule above reports each of these."""
    for text in (
        "import django_redis_locks.core.hold",
        "from django_redis_locks.core import hold",
        "from django_redis_locks import engine",
        "from django_redis_locks.cache import options",
        "grant._hold",
        "locks['default'].engine._queues",
        "monkeypatch.setattr(grant, '_hold', None)",
        "mock.patch('celery_locks.beat.claim')",
        "import_module('celery_locks.beat')",
    ):
        assert list(internals_in(ast.parse(text))), text
    for text in (
        "from django_redis_locks import Lock, clock, inspection",
        "from django_redis_locks.cache import MISSING",
        "from django_redis_locks.backends.memory import MemoryBackend",
        "self._hold",
        "import_string('django_redis_locks.cache.StampedeCache')",
        "model._meta",
    ):
        assert not list(internals_in(ast.parse(text))), text


# Length


LONGEST = 500


def test_files_are_no_longer_than_500_lines() -> None:
    lengths = {file: len((TESTS / file).read_text(encoding="utf-8").splitlines()) for file in FILES}
    assert {file: lines for file, lines in lengths.items() if lines > LONGEST} == {}


MOST_LINES = 1.8
"""Lines of tests per line of the packages. Before adding a test, look for one that it makes superfluous."""


def test_tests_have_at_most_1_8_lines_per_line_of_source() -> None:
    sources = [path for package in PACKAGES for kind in ("py", "lua") for path in (ROOT / package).rglob(f"*.{kind}")]
    tests, source = (
        sum(path.read_text(encoding="utf-8").count("\n") for path in paths)
        for paths in ((TESTS / file for file in FILES), sources)
    )
    assert tests <= MOST_LINES * source, f"{tests} lines of tests, {source} of source"


# Names


VAGUE = re.compile(
    r"_(anew|anybody|everybody|he|him|himself|his|nobody|somebody|tell|tells|told|who|whoever|whom)(_|$)"
)


def test_names_of_tests_say_subject_condition_and_outcome() -> None:
    """At least three words, or two in a class that names the subject; and the field's words instead of pronouns."""
    files = [file for file in FILES if file != "contract/test_cpython_lock_tests.py"]  # CPython's own tests and names
    unclear = [f"{file}: {name}" for file in files for name in unclear_names(tree_of(TESTS / file))]
    assert unclear == []


def unclear_names(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        for one in node.body if isinstance(node, ast.ClassDef) else [node]:
            if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef) and one.name.startswith("test_"):
                words = 2 if isinstance(node, ast.ClassDef) else 3
                if one.name.count("_") < words or VAGUE.search(one.name):
                    yield one.name

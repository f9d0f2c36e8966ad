"""Rules of the two packages that no linter checks."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import celery_locks
import django_redis_locks
from django_redis_locks import Grant, Lock
from django_redis_locks.backends.base import Backend
from django_redis_locks.primitives.record import RecordRef

ROOT = Path(__file__).parent.parent
PACKAGES = ("django_redis_locks", "celery_locks")
FILES = sorted(path.relative_to(ROOT) for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
SUITES = sorted(path.stem for path in (ROOT / "tests" / "contract").glob("test_*.py"))


@cache
def tree_of(file: Path) -> ast.Module:
    return ast.parse((ROOT / file).read_text(encoding="utf-8"))


# Asynchronous counterparts of methods


LOCAL = {
    Lock: {
        "adopt_command",
        "check_block",
        "clean_up_release",
        "owned",
        "may_reenter",
        "release_commands",
        "release_in_background",
        "waits_for",
    },
    Grant: {"remaining", "waits_for_transaction"},
    RecordRef: {"peek", "post", "with_context"},  # the first two of submissions, which are synchronous
    Backend: {
        "validation_error",
        "close",
        "after_fork_in_child",
        "call_many",
        "subscriber",
        "facts",
        "prepare",
        "probe",
        "refusal",
        "together",
        "topology",
        "why_unsupported",
        "tuned",
    },
}
"""Methods without an asynchronous counterpart: they do no I/O, or only a background thread calls them. Programs
(generators) are skipped."""


def _without_loop(method: Any) -> inspect.Signature:
    """The signature, without the running loop: an asynchronous method knows that there is one."""
    signature = inspect.signature(method)
    return signature.replace(parameters=[each for name, each in signature.parameters.items() if name != "loop"])


def test_every_method_with_io_has_an_awaitable_twin() -> None:
    """Each method x has an awaitable ax with the same signature, and each __enter__ an __aenter__."""
    for face, local in LOCAL.items():
        methods = {
            name: method
            for name, method in inspect.getmembers(face, inspect.isfunction)
            if not (name.startswith("_") or name in local or inspect.isgeneratorfunction(method))
        }
        plain = {name for name in methods if not (name.startswith("a") and name[1:] in methods)}
        assert plain | {f"a{name}" for name in plain} == set(methods), face
        for name in plain:
            twin = methods[f"a{name}"]
            assert _without_loop(twin) == _without_loop(methods[name]), (face, name)
            assert inspect.iscoroutinefunction(twin), (face, name)
            assert not inspect.iscoroutinefunction(methods[name]), (face, name)
            assert twin.__doc__, (face, name)
        if hasattr(face, "__enter__"):
            assert inspect.iscoroutinefunction(face.__aenter__), face
            assert inspect.iscoroutinefunction(face.__aexit__), face
            assert inspect.signature(face.__aexit__) == inspect.signature(face.__exit__), face


# Files


def test_every_module_has_a_docstring() -> None:
    """[Y 4] The docstring says what the module is for."""
    assert [str(file) for file in FILES if not ast.get_docstring(tree_of(file))] == []


def test_modules_are_no_longer_than_350_lines() -> None:
    """[Y 4] A file of more than 350 lines is to be split."""
    assert [str(file) for file in FILES if (ROOT / file).read_text(encoding="utf-8").count("\n") > 350] == []


def test_no_class_defines_del() -> None:
    """[H13] [L47] The garbage collector may run at any point, with any mutex held, so it must not run our code."""
    functions = ast.FunctionDef | ast.AsyncFunctionDef
    defined = {file: {node.name for node in ast.walk(tree_of(file)) if isinstance(node, functions)} for file in FILES}
    assert [str(file) for file, names in defined.items() if "__del__" in names] == []


CLOCKS = {"django_redis_locks/core/clock.py", "celery_locks/schedule.py"}
"""The engine's clock, and the schedules of beat, which use Celery's time."""


def clocks_read(tree: ast.Module) -> set[str]:
    """The clocks of `time`, `datetime` and event loops that a module reads; types and `time.sleep` don't count."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "time" and node.attr != "sleep":
            found.add(ast.unparse(node))
        elif isinstance(node, ast.ImportFrom) and node.module == "time":
            found |= {f"time.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Attribute) and node.attr in {"now", "utcnow", "today", "localtime"}:
            if not (isinstance(node.value, ast.Name) and node.value.id == "clock"):
                found.add(ast.unparse(node))
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("loop.time"):
            found.add(ast.unparse(node))
    return found


def test_only_listed_modules_read_a_clock() -> None:
    """[H14] Another clock might stop when the machine is suspended, or in tests with frozen time."""
    found = {file.as_posix(): sorted(clocks_read(tree_of(file))) for file in FILES}
    assert {file: clocks for file, clocks in found.items() if clocks and file not in CLOCKS} == {}
    assert [file for file in CLOCKS if not found[file]] == []


def test_clock_is_recognized_in_each_spelling() -> None:
    """The rule above reports each of these."""
    for text in ("time.time()", "from time import monotonic", "datetime.now()", "timezone.now()", "loop.time()"):
        assert clocks_read(ast.parse(text)), text


ON_KAZOO = "django_redis_locks.backends.zookeeper"

AFTER_SETUP = tuple(f"django_redis_locks.{module}" for module in ("fencing", "models", "admin", "contrib.drf"))
"""Modules with models can only be imported after Django's setup."""


def test_import_starts_no_thread_and_no_celery() -> None:
    """[L47] Importing all modules starts no thread and opens no connection; only `celery_locks` imports Celery, and only
    the backend for ZooKeeper kazoo."""
    modules = [".".join(file.with_suffix("").parts).removesuffix(".__init__") for file in FILES]
    companion = [module for module in modules if module.startswith(("celery_locks", ON_KAZOO))]
    modules = [module for module in modules if module not in companion]
    late = [module for module in modules if module.startswith(AFTER_SETUP)]
    program = (
        "import sys, threading, importlib\n"
        f"for module in {sorted(set(modules) - set(late))}: importlib.import_module(module)\n"
        "import django\n"
        "from django.conf import settings\n"
        "assert not settings.configured\n"
        "apps = ['admin', 'auth', 'contenttypes', 'sessions', 'messages']\n"
        "settings.configure(INSTALLED_APPS=[f'django.contrib.{app}' for app in apps])\n"
        "django.setup()\n"
        f"for module in {late}: importlib.import_module(module)\n"
        "assert threading.active_count() == 1, threading.enumerate()\n"
        "assert not {'celery', 'kazoo'} & set(sys.modules)\n"
        f"for module in {companion}: importlib.import_module(module)\n"
        "assert threading.active_count() == 1, threading.enumerate()\n"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", program], cwd=ROOT, check=True, env={"PATH": ""})


def test_every_module_is_checked_by_these_rules() -> None:
    """The rules cover every importable module."""
    modules = {
        name
        for package in (django_redis_locks, celery_locks)
        for _, name, _ in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    } | set(PACKAGES)
    listed = {".".join(file.with_suffix("").parts).removesuffix(".__init__") for file in FILES}
    assert modules == listed


# Private names


FOREIGN_NAMES = {"_connection", "_context", "_meta", "_request"}
"""Private names of Celery, Django, DRF and kazoo that our classes also define."""


def home_of(file: Path) -> Path:
    """The package within which a module's private names may be used. `shared` belongs to the folder around it."""
    if len(file.parts) == 2:
        return file
    return file.parent.parent if file.parent.name == "shared" else file.parent


def private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def defined_in(tree: ast.Module) -> set[str]:
    """The private functions, class members and attributes that a module defines."""
    found = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            found.add(node.attr)
        elif isinstance(node, ast.ClassDef):
            names = (child for child in ast.walk(node) if isinstance(child, ast.Name))
            found |= {name.id for name in names if isinstance(name.ctx, ast.Store)}
    return {name for name in found if private(name)}


def used_in(tree: ast.Module) -> set[str]:
    """The private attributes that a module uses of objects other than `self`, `cls` and `super()`."""
    attributes = (node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and private(node.attr))
    own = {"self", "cls", "super()"}
    return {node.attr for node in attributes if ast.unparse(node.value) not in own}


def test_packages_use_no_private_attribute_of_another_package() -> None:
    """A package, or a top-level module, is used by its public names only."""
    homes: dict[str, set[Path]] = {}
    for file in FILES:
        for name in defined_in(tree_of(file)) - FOREIGN_NAMES:
            homes.setdefault(name, set()).add(home_of(file))
    for file in FILES:
        foreign = {name for name in used_in(tree_of(file)) if name in homes and home_of(file) not in homes[name]}
        assert foreign == set(), file
    assert used_in(ast.parse("grant._lock.x; self._mine; super()._base")) == {"_lock"}


# Floors


def test_imports_keep_the_layers_of_pyproject() -> None:
    """[Y 3.3] The contracts of import-linter, if it is installed; `make lint` always checks them."""
    pytest.importorskip("importlinter", reason="import-linter is in the group `lint`")
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command; lint_imports_command()"]
    run = subprocess.run([*command, "--no-cache"], cwd=ROOT, check=False, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
    assert re.search(r"[1-9]\d* kept, 0 broken", run.stdout)


# Tests


def test_files_of_a_kind_of_lock_are_guessed_from_its_name() -> None:
    """Each kind has primitives/<kind>.py, scripts in lua/<kind>/ and contract tests in
    tests/contract/test_<kind>.py. Some have the scripts of another one, or of what they are made of."""
    scripts_of = {"fair_lock": "lock", "multi_lock": "multi", "rwlock": "permits", "semaphore": "permits"}
    kinds = {file.stem for file in FILES if file.parent.name == "primitives"} - {"__init__"}
    scripts = ROOT / "django_redis_locks" / "backends" / "redis" / "lua"
    assert kinds
    assert {scripts_of.get(kind, kind) for kind in kinds} <= {folder.name for folder in scripts.iterdir()}
    assert {f"test_{kind}" for kind in kinds} <= set(SUITES)


def test_every_backend_has_a_row_in_the_contract_matrix() -> None:
    """[Y 17] A backend without a row would not be tested."""
    matrix: Any = importlib.import_module("tests.contract.matrix")
    folder = ROOT / "django_redis_locks" / "backends"
    backends = {path.stem for path in folder.iterdir() if path.stem not in {"__init__", "base", "__pycache__"}}
    assert backends <= {row.id for row in matrix.BACKENDS}

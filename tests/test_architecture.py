"""The rules of the house that a reader relies on and no linter knows."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

import celery_locks
import django_redis_locks
from django_redis_locks import Grant, Lock
from django_redis_locks.backends.base import Backend
from django_redis_locks.backends.memory import backend as memory
from django_redis_locks.backends.redis.scripts import PLAIN, script
from django_redis_locks.primitives.record import RecordRef

ROOT = Path(__file__).parent.parent
PACKAGES = ("django_redis_locks", "celery_locks")
FILES = sorted(path.relative_to(ROOT) for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
SCRIPTS = ROOT / "django_redis_locks" / "backends" / "redis" / "lua"
LUA = sorted(str(path.relative_to(SCRIPTS).with_suffix("")) for path in SCRIPTS.rglob("*.lua"))
COMMANDS = [name for name in LUA if not name.startswith("shared/")]
SHARED = [name.removeprefix("shared/") for name in LUA if name.startswith("shared/")]
SUITES = sorted(path.stem for path in (ROOT / "tests" / "contract").glob("test_*.py"))

every_file = pytest.mark.parametrize("file", FILES, ids=str)


@cache
def tree_of(file: Path) -> ast.Module:
    return ast.parse((ROOT / file).read_text(encoding="utf-8"))


# The public face


LOCAL = {
    Lock: {"owned", "misplaced", "acquiring"},
    Grant: {"remaining"},
    RecordRef: set(),
    Backend: {"complaint", "close", "after_fork_in_child", "call_many", "inbox", "facts"},
}
"""Methods without twin: they do no I/O, or only a thread of ours calls them. Programs are neither: they are run."""


@pytest.mark.parametrize("face", LOCAL, ids=lambda face: face.__name__)
def test_every_method_with_io_has_its_twin(face: type) -> None:
    """Each x stands beside its ax, awaitable and with the same signature; each __enter__ has its __aenter__."""
    methods = {
        name: method
        for name, method in inspect.getmembers(face, inspect.isfunction)
        if not (name.startswith("_") or name in LOCAL[face] or inspect.isgeneratorfunction(method))
    }
    plain = {name for name in methods if not (name.startswith("a") and name[1:] in methods)}
    assert plain | {f"a{name}" for name in plain} == set(methods)
    for name in plain:
        twin = methods[f"a{name}"]
        assert inspect.signature(twin) == inspect.signature(methods[name]), name
        assert inspect.iscoroutinefunction(twin), name
        assert not inspect.iscoroutinefunction(methods[name]), name
        assert twin.__doc__, name
    if hasattr(face, "__enter__"):
        assert inspect.iscoroutinefunction(face.__aenter__)
        assert inspect.iscoroutinefunction(face.__aexit__)
        assert inspect.signature(face.__aexit__) == inspect.signature(face.__exit__)


# Commands


def lua(name: str) -> str:
    return (SCRIPTS / f"{name}.lua").read_text(encoding="utf-8")


def header_of(name: str) -> list[str]:
    """The comments before the first statement."""
    lines = lua(name).splitlines()
    end = next(index for index, line in enumerate(lines) if not line.startswith("--"))
    return [line.removeprefix("--").strip() for line in lines[:end]]


def sections_of(header: list[str]) -> dict[str, str]:
    """What a header says of KEYS, ARGV and the answer; such a section may take several lines."""
    sections: dict[str, str] = {}
    current = ""
    for line in header:
        word = line.partition(" ")[0]
        current = word if word in ("KEYS", "ARGV", "returns") else current
        if current:
            sections[current] = f"{sections.get(current, '')} {line.removeprefix(current)}"
    return sections


@pytest.mark.parametrize("command", COMMANDS)
def test_a_script_tells_its_face(command: str) -> None:
    """[Y 5] Prose, then KEYS, ARGV and what it returns, in comments before the first statement."""
    header = header_of(command)
    assert "." in header[0] + header[1]
    sections = sections_of(header)
    assert list(sections) == ["KEYS", "ARGV", "returns"]
    for name in ("KEYS", "ARGV"):
        used = {int(number) for number in re.findall(rf"{name}\[(\d+)\b", lua(command))}
        told = re.split(r",|\band [\w ]+:", re.sub(r"\(.*?\)", "", sections[name]))
        assert used == set(range(1, len([word for word in told if word.strip()]) + 1)), f"{name}: {sections[name]}"


def functions_of(shared: str) -> set[str]:
    return set(re.findall(r"^local function (\w+)\(", lua(f"shared/{shared}"), re.MULTILINE))


def code_of(name: str) -> str:
    return re.sub(r"--.*", "", lua(name))


@pytest.mark.parametrize("shared", SHARED)
def test_a_shared_part_is_functions_that_say_what_they_do(shared: str) -> None:
    """[Y 5] Prose before each function. It knows no KEYS and no ARGV, so that what a script touches stands in the
    script."""
    assert functions_of(shared)
    assert "." in " ".join(header_of(f"shared/{shared}"))
    lines = lua(f"shared/{shared}").splitlines()
    assert all(
        lines[index - 1].startswith("--") for index, line in enumerate(lines) if line.startswith("local function")
    )
    assert all(line.startswith(("--", " ", "local function", "end")) for line in lines if line)
    assert not re.search(r"\b(KEYS|ARGV)\b", code_of(f"shared/{shared}"))


@pytest.mark.parametrize("command", COMMANDS)
def test_a_script_uses_what_it_says_and_nothing_else(command: str) -> None:
    """A part that is missing would be found by the first call, and one too many is sent for nothing."""
    told = {name for line in header_of(command) if line.startswith("uses ") for name in line.split()[1:]}
    source = script(command).source
    calls = re.sub(r"local function \w+\(", "", source)
    called = {name for name in SHARED if any(re.search(rf"\b{function}\(", calls) for function in functions_of(name))}
    assert told == called
    for name in told:
        assert all(source.count(f"local function {function}(") == 1 for function in functions_of(name))


def test_every_shared_part_is_used() -> None:
    """Nothing lies about that no script is made of."""
    assert set(SHARED) == {
        name
        for command in COMMANDS
        for line in header_of(command)
        if line.startswith("uses ")
        for name in line.split()[1:]
    }


def commands_named() -> set[str]:
    names = set()
    for file in FILES:
        for node in ast.walk(tree_of(file)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Command":
                assert isinstance(node.args[0], ast.Constant), f"{file}: a command's name is a literal"
                names.add(node.args[0].value)
    return names


def test_every_command_has_its_script_and_its_specification() -> None:
    """[Y 17] What programs and the engine name, Redis has as a script and memory as a step, and neither has more."""
    named = commands_named()
    assert named - set(PLAIN) == set(COMMANDS)
    assert named == set(memory._steps)


def test_scripts_are_found_where_the_package_is_installed() -> None:
    """A wheel without its scripts would fail at the first lock."""
    folder = resources.files("django_redis_locks.backends.redis").joinpath("lua")
    assert all(folder.joinpath(f"{command}.lua").is_file() for command in LUA)


# Files


@every_file
def test_a_file_begins_with_its_role(file: Path) -> None:
    """[Y 4] A module without a docstring leaves its reader to guess."""
    assert ast.get_docstring(tree_of(file)), f"{file} has no docstring"


@pytest.mark.parametrize("file", [*FILES, *(path.relative_to(ROOT) for path in SCRIPTS.rglob("*.lua"))], ids=str)
def test_a_file_is_small(file: Path) -> None:
    """Above 350 lines a file wants to be two."""
    assert len((ROOT / file).read_text(encoding="utf-8").splitlines()) <= 350


@every_file
def test_nothing_happens_in_the_garbage_collector(file: Path) -> None:
    """[H13] [L47] No __del__: it runs in the middle of anything, with any mutex held."""
    defined = {
        node.name for node in ast.walk(tree_of(file)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert "__del__" not in defined


CLOCKS = {
    "django_redis_locks/core/clock.py",
    "django_redis_locks/backends/memory/backend.py",
    "django_redis_locks/backends/memory/loads.py",
    "django_redis_locks/backends/memory/store.py",
    "django_redis_locks/cache/values.py",
    "celery_locks/slots.py",
}
"""The engine's clock; the store whose leases run on the user's clock, on purpose; values that are stale on it, as those of
Django's caches end on it; and the schedules of beat, as Celery reads them."""


def clocks_read(tree: ast.Module) -> set[str]:
    """What a module takes from `time`, `datetime` and the loops' clock, other than types."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name == "time"}
        elif isinstance(node, ast.ImportFrom) and node.module == "time":
            found |= {f"time.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Attribute) and node.attr in {"now", "utcnow", "today", "localtime"}:
            if not (isinstance(node.value, ast.Name) and node.value.id == "clock"):
                found.add(ast.unparse(node))
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("loop.time"):
            found.add(ast.unparse(node))
    return found


@every_file
def test_one_module_reads_a_clock(file: Path) -> None:
    """[H14] A second clock would be one that a suspended machine or frozen time stops."""
    if file.as_posix() in CLOCKS:
        assert clocks_read(tree_of(file))
    else:
        assert clocks_read(tree_of(file)) == set()


@pytest.mark.parametrize(
    "text",
    ["import time", "from time import monotonic", "from datetime import datetime\ndatetime.now()", "loop.time()"],
)
def test_a_hidden_clock_is_seen(text: str) -> None:
    """The test above can fail."""
    assert clocks_read(ast.parse(text))


AFTER_SETUP = tuple(f"django_redis_locks.{module}" for module in ("fencing", "models", "admin", "contrib.drf"))
"""What is made of models wants Django's settings and apps first."""


def test_importing_is_quiet() -> None:
    """[L47] No thread, no connection, no file, by importing all there is; and no Celery, but by its companion."""
    modules = [".".join(file.with_suffix("").parts).removesuffix(".__init__") for file in FILES]
    companion = [module for module in modules if module.startswith("celery_locks")]
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


def test_every_module_is_listed() -> None:
    """No file escapes these rules by standing elsewhere."""
    modules = {
        name
        for package in (django_redis_locks, celery_locks)
        for _, name, _ in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    } | set(PACKAGES)
    listed = {".".join(file.with_suffix("").parts).removesuffix(".__init__") for file in FILES}
    assert modules == listed


# Floors


def test_an_import_only_points_down() -> None:
    """[Y 3.3] The floors of pyproject.toml, where import-linter is installed; `make lint` checks them everywhere."""
    pytest.importorskip("importlinter", reason="import-linter is in the group `lint`")
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command; lint_imports_command()"]
    run = subprocess.run([*command, "--no-cache"], cwd=ROOT, check=False, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
    assert re.search(r"[1-9]\d* kept, 0 broken", run.stdout)


# Tests


def test_every_kind_of_lock_has_its_suite() -> None:
    """The guessing rule: a kind in primitives/<kind>.py has its promises in tests/contract/test_<kind>.py."""
    kinds = {file.stem for file in FILES if file.parent.name == "primitives"} - {
        "__init__",
        "base",
        "returning",
        "programs",
        "record_values",
        "infos",
        "listing",  # read by inspection, whose suite is test_inspection.py
        "asking",
        "fences",
        "waiting",
        "wishes",
    }
    assert kinds
    assert {f"test_{kind}" for kind in kinds} <= set(SUITES)


def test_every_backend_has_its_row() -> None:
    """[Y 17] A backend that isn't in the table keeps no promise."""
    matrix: Any = importlib.import_module("tests.contract.matrix")
    folder = ROOT / "django_redis_locks" / "backends"
    backends = {path.stem for path in folder.iterdir() if path.stem not in {"__init__", "base", "__pycache__"}}
    assert backends <= {row.id for row in matrix.BACKENDS}

"""The Lua scripts: each documents its arguments, lists the shared parts it uses, and has a counterpart in memory."""

from __future__ import annotations

import ast
import re
from importlib import resources
from typing import get_args, get_type_hints

from django_redis_locks.backends.memory import backend as memory
from django_redis_locks.backends.redis.scripts import PLAIN, script
from django_redis_locks.core.steps import STEPS
from tools.public_api import PACKAGES, ROOT

FOLDER = ROOT / "django_redis_locks" / "backends" / "redis" / "lua"
LUA = sorted(path.relative_to(FOLDER).with_suffix("").as_posix() for path in FOLDER.rglob("*.lua"))
COMMANDS = [name for name in LUA if not name.startswith("shared/")]
SHARED = [name.removeprefix("shared/") for name in LUA if name.startswith("shared/")]


def lua(name: str) -> str:
    return (FOLDER / f"{name}.lua").read_text(encoding="utf-8")


def header_of(name: str) -> list[str]:
    """The comments before the first statement."""
    lines = lua(name).splitlines()
    end = next(index for index, line in enumerate(lines) if not line.startswith("--"))
    return [line.removeprefix("--").strip() for line in lines[:end]]


def sections_of(header: list[str]) -> dict[str, str]:
    """The sections of a header on KEYS, ARGV and the reply; a section may have several lines."""
    sections: dict[str, str] = {}
    current = ""
    for line in header:
        word = line.partition(" ")[0]
        current = word if word in ("KEYS", "ARGV", "returns") else current
        if current:
            sections[current] = f"{sections.get(current, '')} {line.removeprefix(current)}"
    return sections


def functions_of(shared: str) -> set[str]:
    return set(re.findall(r"^local function (\w+)\(", lua(f"shared/{shared}"), re.MULTILINE))


def parts_named_by(command: str) -> set[str]:
    return {name for names in re.findall(r"^ *-- uses (.+)$", lua(command), re.MULTILINE) for name in names.split()}


def arguments_of(command: str) -> list[str]:
    """The names of a step's arguments, those of its optional group included."""
    step = STEPS[command]
    *types, last = get_type_hints(step).values() or [None]
    groups = [group for group in get_args(last) if hasattr(group, "_fields")]
    return [*step._fields[: len(types)], *groups[0]._fields] if groups else list(step._fields)


def test_script_header_documents_keys_arguments_and_reply() -> None:
    """[Y 5] A description, then KEYS, ARGV and the reply, in comments before the first statement. A script has the
    arguments of its step."""
    for command in COMMANDS:
        header = header_of(command)
        assert "." in header[0] + header[1], command
        sections = sections_of(header)
        assert list(sections) == ["KEYS", "ARGV", "returns"], command
        for name in ("KEYS", "ARGV"):
            used = {int(number) for number in re.findall(rf"{name}\[(\d+)\b", lua(command))}
            documented = re.split(r",|\band [\w ]+:", re.sub(r"\(.*?\)", "", sections[name]))
            count = len([word for word in documented if word.strip()])
            assert used == set(range(1, count + 1)), f"{command} {name}: {sections[name]}"
        assert count == len(arguments_of(command)), command


def test_shared_part_holds_documented_functions_only() -> None:
    """[Y 5] A comment precedes each function. A part uses neither KEYS nor ARGV: a script shows its own accesses."""
    for shared in SHARED:
        assert functions_of(shared), shared
        assert "." in " ".join(header_of(f"shared/{shared}")), shared
        lines = lua(f"shared/{shared}").splitlines()
        for before, line in zip(["", *lines], lines, strict=False):
            assert before.startswith("--") or not line.startswith("local function"), f"{shared}: {line}"
            assert not line or line.startswith(("--", " ", "local function", "end")), f"{shared}: {line}"
            assert not re.search(r"\b(KEYS|ARGV)\b", line.partition("--")[0]), f"{shared}: {line}"


def test_script_includes_exactly_the_shared_parts_that_it_calls() -> None:
    """A missing part would fail the first call; a superfluous one would be sent in vain."""
    for command in COMMANDS:
        source = script(command).source
        calls = re.sub(r"local function \w+\(", "", source)
        called = {part for part in SHARED if any(re.search(rf"\b{name}\(", calls) for name in functions_of(part))}
        assert parts_named_by(command) == called, command
        for function in (name for part in called for name in functions_of(part)):
            assert source.count(f"local function {function}(") == 1, f"{command}: {function}"


def test_shared_parts_are_all_used() -> None:
    assert set(SHARED) == {part for command in COMMANDS for part in parts_named_by(command)}


def commands_named() -> set[str]:
    """The first argument of each `Command(...)` in the packages, but of a prepared command, which gets its name."""
    names = set()
    for path in (path for package in PACKAGES for path in (ROOT / package).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Command":
                if path.name == "prepared.py":
                    continue
                assert isinstance(node.args[0], ast.Constant), f"{path}: a command's name is a literal"
                names.add(node.args[0].value)
    return names


def test_every_step_is_used_and_implemented_by_both_backends() -> None:
    """[Y 17] The commands of the packages, the scripts of Redis and the functions of the memory backend are those of
    the steps."""
    steps = set(STEPS)
    assert commands_named() == steps
    assert {*COMMANDS, *PLAIN} == steps
    assert set(memory._steps) == steps


def test_scripts_are_found_where_the_package_is_installed() -> None:
    """A wheel without its scripts would fail at the first lock."""
    folder = resources.files("django_redis_locks.backends.redis").joinpath("lua")
    assert all(folder.joinpath(f"{command}.lua").is_file() for command in LUA)


def test_scripts_are_short() -> None:
    """[Y 4] A file of more than 350 lines is to be split."""
    assert [name for name in LUA if lua(name).count("\n") > 350] == []

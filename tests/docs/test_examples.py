"""Every Python block of the documentation runs."""

from __future__ import annotations

import ast
import asyncio
import inspect
import os
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from django_redis_locks import current_grant
from tests.docs.examples import AFTER, GIVEN, Names
from tests.docs.pages import BLOCKS, EXAMPLES, Block, page_id
from tools.public_api import ROOT

for path in Path(__file__).parent.glob("docs_*.py"):
    import_module(f"tests.docs.{path.stem}")

ALONE = {
    "howto/locks:no-django",
    *(example for example in EXAMPLES if example.startswith("explain/naive-locks:")),
}
"""In a process of their own; those of naive-locks by test_naive_locks.py."""

DATABASE = {
    "howto/caching:invalidate",
    "howto/celery:transactions",
    "howto/fencing:model",
    "howto/locks:transaction",
    "howto/testing:commit",
    "howto/testing:forgotten",
    "howto/testing:testcase",
    "howto/views:ask-before-commit",
    "howto/views:hold",
    "howto/views:outlives",
}


FIXTURES = {
    "howto/answers:handler": "settings",
    "howto/answers:middleware": "settings",
    "howto/answers:shop": "settings",
    "howto/fencing:model": "bank",
    "howto/locks:fence": "accounts",
    "howto/testing:down": "settings",
}


def marked(example: str) -> object:
    return pytest.param(example, marks=[pytest.mark.django_db(transaction=True)] if example in DATABASE else [])


@pytest.mark.parametrize("example", [marked(example) for example in EXAMPLES if example not in ALONE])
@pytest.mark.usefixtures("memory")
def test_example_of_a_page_runs(
    example: str, modules: Callable[[str], ModuleType], request: pytest.FixtureRequest
) -> None:
    names: Names = {"__name__": "__main__"}
    modules("mysite.urls").urlpatterns = []
    for key, value in GIVEN.get(example, dict)().items():
        if isinstance(value, ModuleType):
            vars(modules(key)).update(vars(value))
        else:
            names[key] = value
    if example in FIXTURES:
        names[FIXTURES[example]] = request.getfixturevalue(FIXTURES[example])
    for block in EXAMPLES[example]:
        assert block.name is not None
        if "." in block.name:
            module = modules(block.name)
            vars(module).update(names, __name__=block.name)
            run(block, vars(module))
            names[block.name.rpartition(".")[2]] = module
        else:
            run(block, names)
    assert AFTER.get(example, lambda names: None)(names) is not False
    names.clear()
    assert current_grant() is None


def run(block: Block, names: Names) -> None:
    """Run a block, which may `await` at its top level; tracebacks name the page and the line."""
    code = compile("\n" * block.line + block.code, str(block.page), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    if code.co_flags & inspect.CO_COROUTINE:
        asyncio.run(eval(code, names))
    else:
        exec(code, names)


def test_every_python_block_is_part_of_an_example() -> None:
    unnamed = [
        f"{page_id(block.page)}:{block.line}" for block in BLOCKS if block.language == "python" and not block.name
    ]
    assert [place for place in unnamed if not place.startswith("README")] == []
    assert {*GIVEN, *AFTER, *ALONE, *DATABASE, *FIXTURES} <= set(EXAMPLES)


def test_example_without_django_runs_in_a_process_without_settings(redis_url: str) -> None:
    (block,) = EXAMPLES["howto/locks:no-django"]
    assert "redis://127.0.0.1:6379/0" in block.code
    code = block.code.replace("redis://127.0.0.1:6379/0", redis_url).replace(
        "    ...", "    print(locks.lock('nightly').holder())"
    )
    environment = {name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert "pid" in done.stdout
    assert done.stderr == ""

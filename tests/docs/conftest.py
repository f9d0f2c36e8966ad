"""Fixtures of the examples."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from django.apps import apps
from django.db import connection

for path in Path(__file__).parent.glob("docs_*.py"):
    pytest.register_assert_rewrite(f"tests.docs.{path.stem}")
pytest.register_assert_rewrite("tests.docs.examples")

from tests.docs.examples import MEMORY  # noqa: E402 - its asserts are rewritten


@pytest.fixture
def memory(settings: Any, request: pytest.FixtureRequest) -> None:
    settings.ROOT_URLCONF = "mysite.urls"
    settings.REDIS_LOCKS = {
        alias: {"BACKEND": MEMORY, "LOCATION": request.node.nodeid} for alias in ("default", "payments")
    }


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """`modules(name)` makes a module that can be imported until the test ends, with the packages that it is in."""

    def make(name: str) -> ModuleType:
        package, _, last = name.rpartition(".")
        module = ModuleType(name)
        module.__package__ = package or name
        if package:
            setattr(sys.modules.get(package) or make(package), last, module)
        else:
            module.__path__ = []
        monkeypatch.setitem(sys.modules, name, module)
        return module

    return make


@pytest.fixture
def accounts(db: None) -> None:
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE account (id integer PRIMARY KEY, balance integer, fence bigint)")
        cursor.execute("INSERT INTO account VALUES (1, 100, 0)")


@pytest.fixture
def bank(monkeypatch: pytest.MonkeyPatch) -> None:
    """An app, for the model that the page defines."""
    monkeypatch.setattr(apps, "get_containing_app_config", lambda module: SimpleNamespace(label="bank"))
    apps.all_models["bank"].clear()

"""Runs Django's own cache tests with plain and with wrapped caches, and compares the results; tests the comparison."""

from __future__ import annotations

import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests.servers import unavailable
from tools import django_sdist
from tools.django_cache_tests import SKIPS, compare, read_skips, run
from tools.django_sdist import TestsNotFound, django_tests, unpack

CLASSES = ("LocMemCacheTests", "RedisCacheTests", "DBCacheTests", "FileBasedCacheTests", "AsyncDummyCacheTests")


@pytest.fixture(scope="module")
def tests_of_django(redis_executable: None) -> None:
    try:
        django_tests()
    except TestsNotFound as error:
        unavailable(str(error))


@pytest.mark.chaos
def test_wrapped_caches_pass_what_plain_ones_pass(tests_of_django: None) -> None:
    """The cache tests of the installed Django version, for every backend."""
    result = run()
    assert not result.plain_trouble
    assert not result.broken
    assert not result.stale, "these need no excuse in django_skips.txt"
    assert {name for name in CLASSES for test in result.passed if f".{name}." in test} == set(CLASSES)
    assert len(result.passed) > 400


PASSED, FAILED = "passed", "Traceback"

COMPARISONS: list[tuple[dict[str, str], dict[str, str], dict[str, str], dict[str, Any]]] = [
    ({"a": PASSED, "b": PASSED}, {"a": PASSED, "b": FAILED}, {}, {"broken": {"b": FAILED}, "good": False}),
    ({"a": PASSED}, {}, {}, {"broken": {"a": "wasn't run"}}),
    ({"a": PASSED}, {"a": "skipped: no server"}, {}, {"good": False}),
    ({"x.a": PASSED, "b": PASSED}, {"b": PASSED}, {"*.a": "why"}, {"excused": {"x.a": "why"}, "good": True}),
    ({"a": PASSED}, {"a": PASSED}, {"a": "why"}, {"stale": ["a"]}),  # a skip without a test that needs it
    ({"a": PASSED}, {"a": PASSED}, {"gone": "why"}, {"stale": ["gone"]}),
    ({"a": FAILED, "c": PASSED}, {"c": PASSED}, {}, {"plain_trouble": {"a": FAILED}, "broken": {}}),
    ({}, {}, {}, {"good": False}),
]


def test_comparison_of_plain_and_wrapped_results() -> None:
    for plain, wrapped, excuses, expected in COMPARISONS:
        result = compare(plain, wrapped, excuses)
        assert {name: getattr(result, name) for name in expected} == expected, (plain, wrapped, excuses)
    assert not compare({"a": PASSED}, {"a": PASSED}, {"gone": "why"}, narrowed=True).stale


def test_every_skipped_django_test_has_a_reason() -> None:
    read_skips(SKIPS.read_text(encoding="utf-8"))
    assert read_skips("# why\n\ncache.tests.A.b: it can't\n") == {"cache.tests.A.b": "it can't"}
    with pytest.raises(ValueError, match="Line 1 has no reason"):
        read_skips("cache.tests.A.b")


def archive(folder: Path, *names: str) -> Path:
    path = folder / "django-9.9.tar.gz"
    file = folder / "file"
    file.write_text("# Django's\n")
    with tarfile.open(path, "w:gz") as archive:
        for name in names:
            archive.add(file, name)
    return path


def test_source_archive_is_unpacked_in_the_folder_of_the_cache_tests(tmp_path: Path) -> None:
    names = ("cache/tests.py", "cache/__init__.py", "cache_more/tests.py", "cache/../../evil.py")
    unpack(archive(tmp_path, *(f"django-9.9/tests/{name}" for name in names)), tmp_path / "made")
    made = sorted(str(path.relative_to(tmp_path / "made")) for path in (tmp_path / "made").rglob("*.py"))
    assert made == ["cache/__init__.py", "cache/tests.py"]
    with pytest.raises(tarfile.TarError, match=r"has no tests/cache/tests\.py"):
        unpack(archive(tmp_path, "django-9.9/setup.py"), tmp_path / "other")


def test_source_archive_is_fetched_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a network the error message says what to do."""
    fetched = []

    def fail(command: list[str], **_: object) -> None:
        raise subprocess.CalledProcessError(1, command, stderr="No matching distribution found for django==9.9")

    def download(command: list[str], **_: object) -> None:
        fetched.append(command[-1])
        (destination,) = [word.removeprefix("--dest=") for word in command if word.startswith("--dest=")]
        archive(Path(destination), "django-9.9/tests/cache/tests.py")

    monkeypatch.setattr(django_sdist.subprocess, "run", fail)
    with pytest.raises(TestsNotFound, match=r"(?s)Django 9\.9.*couldn't be had from PyPI.*No matching distribution"):
        django_tests("9.9", cache=tmp_path)
    monkeypatch.setattr(django_sdist.subprocess, "run", download)
    assert [django_tests("9.9", cache=tmp_path) for _ in range(2)] == [tmp_path / "tests-9.9"] * 2
    assert (tmp_path / "tests-9.9" / "cache" / "tests.py").exists()
    assert fetched == ["django==9.9"]

"""Django's own cache tests, with plain caches and with wrapped ones; and that the comparison would notice."""

from __future__ import annotations

import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest
from django.core.cache import caches
from django.core.cache.backends.base import BaseCache

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


class Careless(BaseCache):
    """A wrapper that forgets to pass the version on."""

    def __init__(self, location: str, params: dict[str, Any]) -> None:
        self._alias = location

    def __getattr__(self, name: str) -> Any:
        return getattr(caches[self._alias], name)

    def get(self, key: str, default: Any = None, version: int | None = None) -> Any:
        return caches[self._alias].get(key, default)

    def set(self, key: str, value: Any, timeout: Any = 300, version: int | None = None) -> None:
        caches[self._alias].set(key, value, timeout)

    def clear(self) -> None:
        caches[self._alias].clear()


@pytest.mark.chaos
@pytest.mark.usefixtures("tests_of_django")
class TestRuns:
    def test_wrapped_caches_pass_what_plain_ones_pass(self) -> None:
        """The tests of every backend, as the authors of the installed Django wrote them."""
        result = run()
        assert not result.plain_trouble
        assert not result.broken
        assert not result.stale, "these need no excuse in django_skips.txt"
        assert {name for name in CLASSES for test in result.passed if f".{name}." in test} == set(CLASSES)
        assert len(result.passed) > 400

    def test_a_wrapper_that_breaks_something_is_caught(self) -> None:
        result = run(
            ["LocMemCacheTests.test_cache_versioning_get", "LocMemCacheTests.test_simple"], wrapper=_path(Careless)
        )
        assert "cache.tests.LocMemCacheTests.test_simple" in result.passed
        assert "cache.tests.LocMemCacheTests.test_cache_versioning_get_set" in result.broken
        assert not result.good


def _path(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


class TestComparison:
    PASSED = "passed"

    def test_what_only_plain_passes_is_broken(self) -> None:
        result = compare({"a": "passed", "b": "passed"}, {"a": "passed", "b": "Traceback"}, {})
        assert result.broken == {"b": "Traceback"}
        assert not result.good

    def test_what_was_not_run_is_broken(self) -> None:
        assert compare({"a": "passed"}, {}, {}).broken == {"a": "wasn't run"}
        assert compare({"a": "passed"}, {"a": "skipped: no server"}, {}).broken

    def test_an_excuse(self) -> None:
        result = compare(
            {"x.a": "passed", "b": "passed"}, {"x.a": "Traceback", "b": "passed"}, {"*.a": "says what it is"}
        )
        assert result.excused == {"x.a": "says what it is"}
        assert result.good

    def test_an_excuse_that_nothing_needs(self) -> None:
        """The file can't rot: a test that passes, or that a newer Django hasn't, leaves it."""
        assert compare({"a": "passed"}, {"a": "passed"}, {"a": "why"}).stale == ["a"]
        assert compare({"a": "passed"}, {"a": "passed"}, {"gone": "why"}).stale == ["gone"]
        assert not compare({"a": "passed"}, {"a": "passed"}, {"gone": "why"}, narrowed=True).stale

    def test_what_fails_without_us(self) -> None:
        result = compare({"a": "Traceback", "b": "skipped: no memcached", "c": "passed"}, {"c": "passed"}, {})
        assert result.plain_trouble == {"a": "Traceback"}
        assert not result.broken

    def test_nothing_is_not_good(self) -> None:
        assert not compare({}, {}, {}).good

    def test_every_excuse_has_a_reason(self) -> None:
        read_skips(SKIPS.read_text(encoding="utf-8"))
        assert read_skips("# why\n\ncache.tests.A.b: it can't\n") == {"cache.tests.A.b": "it can't"}
        with pytest.raises(ValueError, match="Line 1 has no reason"):
            read_skips("cache.tests.A.b")


class TestSourceArchive:
    def archive(self, folder: Path, *names: str) -> Path:
        path = folder / "django-9.9.tar.gz"
        file = folder / "file"
        file.write_text("# Django's\n")
        with tarfile.open(path, "w:gz") as archive:
            for name in names:
                archive.add(file, name)
        return path

    def test_only_the_folder_of_the_cache_tests(self, tmp_path: Path) -> None:
        names = (
            "tests/cache/tests.py",
            "tests/cache/__init__.py",
            "tests/cache_more/tests.py",
            "tests/cache/../../evil.py",
        )
        unpack(self.archive(tmp_path, *(f"django-9.9/{name}" for name in names)), tmp_path / "made")
        made = sorted(str(path.relative_to(tmp_path / "made")) for path in (tmp_path / "made").rglob("*.py"))
        assert made == ["cache/__init__.py", "cache/tests.py"]

    def test_an_archive_without_them(self, tmp_path: Path) -> None:
        with pytest.raises(tarfile.TarError, match=r"has no tests/cache/tests\.py"):
            unpack(self.archive(tmp_path, "django-9.9/setup.py"), tmp_path / "made")

    def test_without_a_network_it_says_what_to_do(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(command: list[str], **_: object) -> None:
            raise subprocess.CalledProcessError(1, command, stderr="No matching distribution found for django==9.9")

        monkeypatch.setattr(django_sdist.subprocess, "run", fail)
        with pytest.raises(
            TestsNotFound, match=r"(?s)Django 9\.9.*couldn't be had from PyPI.*No matching distribution"
        ):
            django_tests("9.9", cache=tmp_path)

    def test_it_is_fetched_once(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        fetched = []

        def download(command: list[str], **_: object) -> None:
            fetched.append(command[-1])
            (destination,) = [word.removeprefix("--dest=") for word in command if word.startswith("--dest=")]
            self.archive(Path(destination), "django-9.9/tests/cache/tests.py")

        monkeypatch.setattr(django_sdist.subprocess, "run", download)
        found = [django_tests("9.9", cache=tmp_path) for _ in range(2)]
        assert found == [tmp_path / "tests-9.9"] * 2
        assert (found[0] / "cache" / "tests.py").exists()
        assert fetched == ["django==9.9"]

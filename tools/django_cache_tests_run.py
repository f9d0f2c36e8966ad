"""One process of a run of Django's cache tests, which `tools/django_cache_tests.py` starts.

Caches are wrapped where Django creates them, not in the settings: the tests override `CACHES`, change its entries, and
look up classes there, which must concern the wrapped caches.
"""

from __future__ import annotations

import json
import sys
import unittest
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

RAW = "raw "
"""Prefix of the alias of a wrapped cache."""


def configure(values: str, locks: str, memcached: str) -> None:
    from django.conf import settings

    caches = {
        "default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"},
        "redis": {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": values},
    }
    if memcached:
        caches["memcached"] = {
            "BACKEND": "django.core.cache.backends.memcached.PyMemcacheCache",
            "LOCATION": memcached,
        }
    # As in Django's own tests/runtests.py
    settings.configure(
        SECRET_KEY="not a secret",  # noqa: S106
        USE_TZ=False,
        DEFAULT_AUTO_FIELD="django.db.models.AutoField",
        DATABASES={
            "default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"},
            "other": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"},
        },
        INSTALLED_APPS=["django.contrib.sites", "cache"],
        SITE_ID=1,
        LANGUAGE_CODE="en",
        TEMPLATES=[
            {
                "BACKEND": "django.template.backends.django.DjangoTemplates",
                "OPTIONS": {"context_processors": ["django.template.context_processors.request"]},
            }
        ],
        CACHES=caches,
        REDIS_LOCKS={"default": {"LOCATION": locks}},
    )


def wrapped(table: dict[str, dict[str, Any]], wrapper: str) -> dict[str, dict[str, Any]]:
    """Entries of wrappers for all aliases, and the original entries by other aliases."""
    found = {f"{RAW}{alias}": entry for alias, entry in table.items()}
    return found | {alias: {"BACKEND": wrapper, "LOCATION": f"{RAW}{alias}"} for alias in table}


def wrap_caches(wrapper: str) -> None:
    from django.core.cache import caches
    from django.core.management.commands import createcachetable

    configure_settings = caches.configure_settings

    def configure_wrapped(own: Any) -> dict[str, Any]:
        return wrapped(configure_settings(own), wrapper)

    class Raw:
        """A project's CACHES has the aliases that are wrapped, too: there the command finds them."""

        def __getitem__(self, alias: str) -> Any:
            return caches[f"{RAW}{alias}"]

    mock.patch.object(caches, "configure_settings", configure_wrapped).start()
    mock.patch.object(createcachetable, "caches", Raw()).start()


class Outcomes(unittest.TestResult):
    """Collects the outcome of each test."""

    def __init__(self, *_: object, **__: object) -> None:
        super().__init__()
        self.found: dict[str, str] = {}

    def stopTest(self, test: unittest.TestCase) -> None:  # noqa: N802 - unittest's name
        self.found.setdefault(test.id(), "passed")
        super().stopTest(test)

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:  # noqa: N802
        self.found[test.id()] = f"skipped: {reason}"

    def addFailure(self, test: unittest.TestCase, err: Any) -> None:  # noqa: N802
        self.found[test.id()] = self._exc_info_to_string(err, test)  # type: ignore[attr-defined]

    addError = addFailure  # noqa: N815

    def addExpectedFailure(self, test: unittest.TestCase, err: Any) -> None:  # noqa: N802
        self.found[test.id()] = "skipped: expected to fail"

    def addSubTest(self, test: unittest.TestCase, subtest: unittest.TestCase, err: Any) -> None:  # noqa: N802
        if err is not None:
            self.addFailure(test, err)


def tests_in(suite: unittest.TestSuite) -> Iterator[unittest.TestCase]:
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from tests_in(test)
        else:
            yield test


def share_of(tests: Iterable[unittest.TestCase], share: int, shares: int) -> Iterator[unittest.TestCase]:
    """The tests of this process. The tests of a class stay together, because they share a cache that each one
    clears."""
    classes: dict[type, list[unittest.TestCase]] = {}
    for test in tests:
        classes.setdefault(type(test), []).append(test)
    loads: list[list[unittest.TestCase]] = [[] for _ in range(shares)]
    weights = [0] * shares
    for kind, found in sorted(classes.items(), key=lambda item: (-_weight(*item), item[0].__qualname__)):
        lightest = min(range(shares), key=weights.__getitem__)
        weights[lightest] += _weight(kind, found)
        loads[lightest].extend(found)
    yield from loads[share]


def _weight(kind: type, tests: list[unittest.TestCase]) -> int:
    return 0 if getattr(kind, "__unittest_skip__", False) else len(tests)


def main(
    tests: str, report: str, values: str, locks: str, memcached: str, wrapper: str, part: str, *words: str
) -> None:
    share, shares = map(int, part.split("/"))
    sys.path.insert(0, tests)
    configure(values, locks, memcached)

    import django
    from django.test.runner import DiscoverRunner

    django.setup()
    if wrapper:
        wrap_caches(wrapper)
    outcomes = Outcomes()

    class Runner(DiscoverRunner):
        def build_suite(self, *labels: Any, **options: Any) -> unittest.TestSuite:
            suite = super().build_suite(*labels, **options)
            mine = share_of(tests_in(suite), share, shares)
            return type(suite)(test for test in mine if not words or any(word in test.id() for word in words))

        def run_checks(self, *_: Any, **__: Any) -> None:
            """No system checks: they are tested elsewhere."""

        def run_suite(self, suite: unittest.TestSuite, **_: Any) -> Any:
            return suite.run(outcomes)

    Runner(verbosity=0, interactive=False).run_tests(["cache"])
    Path(report).write_text(json.dumps(outcomes.found))


if __name__ == "__main__":
    main(*sys.argv[1:])

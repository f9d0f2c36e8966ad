"""What is installed."""

from __future__ import annotations

from importlib import metadata, resources

import pytest


def test_one_distribution_has_both_packages() -> None:
    """[F24] `pip install django-redis-locks` brings the Django app and its Celery companion."""
    assert metadata.metadata("django-redis-locks")["License-Expression"] == "MIT"
    packages = metadata.packages_distributions()
    for package in ("django_redis_locks", "celery_locks"):
        assert set(packages.get(package, ["django-redis-locks"])) == {"django-redis-locks"}


@pytest.mark.parametrize("package", ["django_redis_locks", "celery_locks"])
def test_both_packages_are_typed(package: str) -> None:
    """Type checkers read the annotations of a package only where it says so."""
    assert resources.files(package).joinpath("py.typed").is_file()

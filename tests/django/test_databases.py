"""The fixture `database`: what the tests that use it take for granted."""

from __future__ import annotations

import pytest
from django.db import connection, transaction

from tests.databases import elsewhere


@pytest.fixture
def table(database: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE note (id BIGINT PRIMARY KEY)")


def notes() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT COUNT(*) FROM note")
        return cursor.fetchone()[0]


def write() -> None:
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO note VALUES (1)")


def test_two_connections_see_committed_rows_only(table: None) -> None:
    with transaction.atomic():
        write()
        assert elsewhere(notes).result(timeout=10) == 0
        assert notes() == 1
    assert elsewhere(notes).result(timeout=10) == 1


def test_each_test_has_an_empty_database_of_its_kind(table: None, database: str) -> None:
    vendor = {"sqlite": "sqlite", "postgresql": "postgresql", "mariadb": "mysql"}[database]
    assert connection.vendor == vendor
    assert getattr(connection, "mysql_is_mariadb", False) is (database == "mariadb")
    assert notes() == 0
    assert not connection.in_atomic_block


@pytest.mark.django_db
def test_tests_without_the_fixture_have_the_usual_database() -> None:
    assert connection.vendor == "sqlite"
    assert connection.is_in_memory_db()

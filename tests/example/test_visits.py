"""The demo's judgement of the report: it must fail for what it is meant to show."""

from __future__ import annotations

from dataclasses import replace

import pytest

from example_project import buyers
from example_project.report import (
    Visits,
    visits_explanation,
    visits_failures,
    visits_heading,
    visits_line,
)

PLAIN = Visits("get_or_set, expired", made=80, statuses=[200] * 100, seconds=[0.7] * 100)
EXPIRED = Visits("get_or_load, expired", made=1, statuses=[200] * 100, seconds=[0.02] * 100)
NONE = Visits("get_or_load, none yet", made=1, statuses=[200] * 100, seconds=[0.65] * 100)


def test_expected_visits_have_no_failures():
    assert visits_failures(PLAIN, EXPIRED, NONE) == []


def test_report_that_is_not_made_once_fails():
    for made in (0, 2, 100):
        message = f"With get_or_load, expired the report was made {made} times, and not once."
        assert visits_failures(PLAIN, replace(EXPIRED, made=made), NONE) == [message]
        assert len(visits_failures(PLAIN, EXPIRED, replace(NONE, made=made))) == 1


def test_visits_without_a_stampede_fail():
    (found,) = visits_failures(replace(PLAIN, made=1), EXPIRED, NONE)
    assert "its stampede didn't show" in found


def test_visitors_without_a_report_fail():
    (found,) = visits_failures(PLAIN, EXPIRED, replace(NONE, statuses=[200] * 97 + [0, 500, 500]))
    assert found == "With get_or_load, none yet 3 visitors got no report: [0, 500]."


def test_table_has_a_number_below_every_column():
    assert visits_line(PLAIN).split() == ["get_or_set,", "expired", "100", "80", "700", "700"]
    assert len(visits_heading()) == len(visits_line(PLAIN)) == len(visits_line(NONE)) < 80


def test_explanation_is_two_sentences():
    text = visits_explanation(PLAIN, EXPIRED, NONE)
    assert "80 of 100 visitors made a new one" in text
    assert text.count(".") == 2


def test_visitors_return_every_answer(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(buyers, "visit", lambda url: (200, 0.1))
    assert buyers.visitors("http://shop", 5, lambda done: None) == [(200, 0.1)] * 5

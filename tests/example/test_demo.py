"""The demo's judgement: it must fail for what it is meant to show."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest

from example_project import buyers
from example_project.report import (
    Outcome,
    commit_explanation,
    commit_failures,
    explanation,
    failures,
    heading,
    line,
    percentile,
)

NAIVE = Outcome("naive", 40, sold=60, left=31, finals=[200] * 60, statuses=[200] * 60, seconds=[0.1] * 60)
SERVED = [200] * 40 + [410] * 20
LOCKED = Outcome("locked", 40, 40, left=0, finals=SERVED, statuses=SERVED + [409] * 65, seconds=[0.005] * 125)
WAITING = Outcome("waiting", 40, 40, left=0, finals=SERVED, statuses=SERVED, seconds=[0.05] * 60)


def test_expected_outcomes_have_no_failures():
    assert failures(NAIVE, LOCKED, WAITING) == []


def test_wrong_locked_form_fails():
    for changes, message in (
        ({"sold": 41, "finals": [200] * 41 + [410] * 19}, "The locked form sold 41 of 40."),
        ({"sold": 39, "left": 1, "finals": [200] * 39 + [410] * 21}, "The locked form sold 39 of 40."),
        ({"left": 2}, "The locked form left a stock of 2."),
        ({"statuses": [200] * 40 + [410] * 20}, "The locked form refused nobody: no lock was at work."),
        ({"finals": [200] * 40 + [500] * 2 + [0] * 18}, "ended without 200, 409 or 410: 18 x no answer, 2 x 500."),
        ({"finals": [200] * 39 + [410] * 21}, "The locked form told 39 buyers that they have it, and made 40 orders."),
    ):
        assert any(message in found for found in failures(NAIVE, replace(LOCKED, **changes), WAITING)), message


def test_wrong_waiting_form_fails():
    refused = replace(WAITING, statuses=[200] * 40 + [410] * 20 + [409] * 2)
    assert failures(NAIVE, LOCKED, refused) == ["The waiting form refused 2 requests."]
    oversold = replace(WAITING, sold=41, finals=[200] * 41 + [410] * 19)
    assert failures(NAIVE, LOCKED, oversold) == ["The waiting form sold 41 of 40."]


def test_naive_form_without_a_race_fails():
    lucky = replace(NAIVE, sold=40, left=0, finals=[200] * 40 + [410] * 20)
    assert failures(lucky, LOCKED, WAITING) == ["The naive form sold 40 of 40: its race didn't show."]


def test_buyer_refused_until_the_end_is_no_failure():
    assert failures(NAIVE, replace(LOCKED, finals=[200] * 40 + [410] * 19 + [409]), WAITING) == []


def test_table_has_a_number_below_every_column():
    assert " ".join(heading().split()) == "form requests sold stock left oversold p50 ms p99 ms 409s"
    assert line(LOCKED).split() == ["locked", "125", "40", "0", "0", "5", "5", "65"]
    assert line(NAIVE).split() == ["naive", "60", "60", "31", "20", "100", "100", "0"]
    assert line(WAITING).split() == ["waiting", "60", "40", "0", "0", "50", "50", "0"]
    assert len(heading()) == len(line(LOCKED)) == len(line(NAIVE)) == len(line(WAITING)) < 80


def test_forms_compared_at_commit_fail_without_a_race_or_when_oversold():
    by_hand = replace(NAIVE, form="by-hand")
    assert commit_failures(by_hand, WAITING) == []
    lucky = replace(by_hand, sold=40, finals=[200] * 40 + [410] * 20)
    assert commit_failures(lucky, WAITING) == ["The by-hand form sold 40 of 40: its race didn't show."]
    oversold = replace(WAITING, sold=41, finals=[200] * 41 + [410] * 19)
    assert commit_failures(by_hand, oversold) == ["The waiting form sold 41 of 40."]
    text = commit_explanation(by_hand, WAITING)
    assert "60 buyers paid for 40 items" in text
    assert text.count(".") == 2


def test_explanation_is_two_sentences():
    text = explanation(NAIVE, LOCKED, WAITING)
    assert "60 buyers paid for 40 items" in text
    assert "each of the 60 requests waited for its turn" in text
    assert text.count(".") == 2


def test_percentile_of_values_and_of_none():
    values = [value / 1000 for value in range(1, 101)]
    assert (percentile(values, 0.5), percentile(values, 0.99), percentile([], 0.5)) == (0.05, 0.099, 0.0)


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch):
    given: list[tuple[int, float]] = []
    monkeypatch.setattr(buyers, "post", lambda url: given.pop(0))
    monkeypatch.setattr(buyers, "pause", lambda retry_after: 0)
    return given


def test_buyer_comes_back_until_answered(answers):
    answers += [(409, 5.0), (409, 5.0), (200, 1.0), (200, 1.0)]
    buyer = buyers.Buyer()
    buyer.buy("http://shop", threading.Event())
    assert buyer.statuses == [409, 409, 200]
    assert len(buyer.seconds) == 3


def test_buyer_gives_up_after_so_many_retries(answers):
    answers += [(409, 5.0)] * 50
    buyer = buyers.Buyer()
    buyer.buy("http://shop", threading.Event())
    assert buyer.statuses == [409] * 21


def test_post_without_an_answer_returns_status_0(unused_url):
    assert buyers.post(unused_url) == (0, 0.0)


@pytest.fixture
def unused_url() -> Iterator[str]:
    """Of a port that refuses connections, because somebody has it and doesn't listen."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}/"


def test_pause_is_never_shorter_than_asked():
    assert all(5 <= buyers.pause(5) <= 6.25 for _ in range(100))

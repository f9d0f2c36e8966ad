"""The demo's judgement: it must fail for what it is meant to show."""

from __future__ import annotations

import socket
import threading
from dataclasses import replace

import pytest

from example_project import buyers
from example_project.report import (
    Outcome,
    Visits,
    commit_explanation,
    commit_failures,
    explanation,
    failures,
    heading,
    line,
    visits_explanation,
    visits_failures,
    visits_heading,
    visits_line,
)

NAIVE = Outcome("naive", 40, sold=60, left=31, finals=[200] * 60, statuses=[200] * 60, seconds=[0.1] * 60)
SERVED = [200] * 40 + [410] * 20
LOCKED = Outcome("locked", 40, 40, left=0, finals=SERVED, statuses=SERVED + [409] * 65, seconds=[0.005] * 125)
WAITING = Outcome("waiting", 40, 40, left=0, finals=SERVED, statuses=SERVED, seconds=[0.05] * 60)


def test_outcome_that_shows_no_difference_or_oversells_fails():
    """A buyer who is refused until the end is no failure."""
    served = replace(LOCKED, finals=[200] * 40 + [410] * 19 + [409])
    assert failures(NAIVE, LOCKED, WAITING) == failures(NAIVE, served, WAITING) == []
    for form, changes, message in (
        ("locked", {"sold": 41, "finals": [200] * 41 + [410] * 19}, "The locked form sold 41 of 40."),
        ("locked", {"sold": 39, "left": 1, "finals": [200] * 39 + [410] * 21}, "The locked form sold 39 of 40."),
        ("locked", {"left": 2}, "The locked form left a stock of 2."),
        ("locked", {"statuses": SERVED}, "The locked form refused no request: no lock was at work."),
        ("locked", {"finals": [200] * 40 + [500] * 2 + [0] * 18}, "without 200, 409 or 410: 18 x no answer, 2 x 500."),
        ("locked", {"finals": [200] * 39 + [410] * 21}, "confirmed 39 purchases, and made 40 orders."),
        ("waiting", {"statuses": [*SERVED, 409, 409]}, "The waiting form refused 2 requests."),
        ("waiting", {"sold": 41, "finals": [200] * 41 + [410] * 19}, "The waiting form sold 41 of 40."),
        ("naive", {"sold": 40, "left": 0, "finals": SERVED}, "The naive form sold 40 of 40: its race didn't show."),
    ):
        outcomes = {"naive": NAIVE, "locked": LOCKED, "waiting": WAITING}
        outcomes[form] = replace(outcomes[form], **changes)
        assert any(message in found for found in failures(*outcomes.values())), message


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
    text = commit_explanation(by_hand, WAITING, WAITING)
    assert "60 buyers paid for 40 items" in text
    assert text.count(".") == explanation(NAIVE, LOCKED, WAITING).count(".") == 2


PLAIN = Visits("get_or_set, expired", made=80, statuses=[200] * 100, seconds=[0.7] * 100)
EXPIRED = Visits("get_or_load, expired", made=1, statuses=[200] * 100, seconds=[0.02] * 100)
NONE = Visits("get_or_load, none yet", made=1, statuses=[200] * 100, seconds=[0.65] * 100)


def test_visits_fail_unless_the_report_is_made_once_and_seen_by_all():
    assert visits_failures(PLAIN, EXPIRED, NONE) == []
    for made in (0, 2, 100):
        message = f"With get_or_load, expired the report was made {made} times, and not once."
        assert visits_failures(PLAIN, replace(EXPIRED, made=made), NONE) == [message]
        assert len(visits_failures(PLAIN, EXPIRED, replace(NONE, made=made))) == 1
    (found,) = visits_failures(replace(PLAIN, made=1), EXPIRED, NONE)
    assert "its stampede didn't show" in found
    (found,) = visits_failures(PLAIN, EXPIRED, replace(NONE, statuses=[200] * 97 + [0, 500, 500]))
    assert found == "With get_or_load, none yet 3 visitors got no report: [0, 500]."
    assert visits_line(PLAIN).split() == ["get_or_set,", "expired", "100", "80", "700", "700"]
    assert len(visits_heading()) == len(visits_line(PLAIN)) == len(visits_line(NONE)) < 80
    assert "80 of 100 visitors made a new one" in visits_explanation(PLAIN, EXPIRED, NONE)


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch):
    given: list[tuple[int, float]] = []
    monkeypatch.setattr(buyers, "post", lambda url: given.pop(0))
    monkeypatch.setattr(buyers, "pause", lambda retry_after: 0)
    return given


def test_buyer_comes_back_until_answered_or_so_many_retries(answers):
    answers += [(409, 5.0), (409, 5.0), (200, 1.0), *[(409, 5.0)] * 50]
    buyers_now = [buyers.Buyer(), buyers.Buyer()]
    for buyer in buyers_now:
        buyer.buy("http://shop", threading.Event())
    assert [buyer.statuses for buyer in buyers_now] == [[409, 409, 200], [409] * 21]
    assert len(buyers_now[0].seconds) == 3


def test_post_without_an_answer_returns_status_0_and_a_pause_is_long_enough():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and doesn't listen
        assert buyers.post(f"http://127.0.0.1:{taken.getsockname()[1]}/") == (0, 0.0)
    assert all(5 <= buyers.pause(5) <= 6.25 for _ in range(100))

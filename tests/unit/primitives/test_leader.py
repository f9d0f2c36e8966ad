"""A campaign while the store is down, and one that is interrupted."""

from __future__ import annotations

import itertools
import sys
from types import FrameType
from typing import Any

import pytest

from django_redis_locks import Grant, leader
from django_redis_locks.core import events
from tests.unit.primitives.scenario import Scenario


class HandlerFailed(BaseException):
    """The exception of a signal handler."""


class Interruption:
    """Raises before the n-th executed line of a campaign."""

    def __init__(self, number: int) -> None:
        self.lines_left = number
        self.where = ""

    def trace(self, frame: FrameType, kind: str, arg: object) -> Any:
        if frame.f_code.co_filename != leader.__file__:
            return None
        if kind == "line":
            self.lines_left -= 1
            if self.lines_left == -1:
                self.where = f"{frame.f_code.co_qualname}, line {frame.f_lineno}"
                raise HandlerFailed
        return self.trace


def test_campaign_goes_on_while_the_store_is_down(scenario: Scenario, emitted: list[events.Event]) -> None:
    """[E18] Each failure is reported."""
    scenario.process.backend.outcomes["lock/acquire"] = ["refused", "refused", "ok"]
    elected: list[Grant] = []

    def work(grant: Grant) -> None:
        elected.append(grant)
        leader.stop()

    leader = scenario.process.locks.leader("a", work)
    leader.run()
    assert len(elected) == 1
    assert [type(event).__name__ for event in emitted] == ["BackendFailed", "BackendFailed", "Acquired", "Released"]
    assert scenario.leftovers() == []


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="newer Pythons trace lines at which no signal is handled")
def test_exception_at_any_line_of_a_campaign_gives_the_leadership_up(scenario: Scenario) -> None:
    """[L7] A lock that is left would be renewed without end."""
    for number in itertools.count():
        candidate = scenario.process.locks.leader("a", lambda grant: candidate.stop(), lambda grant: None)  # noqa: B023
        interruption = Interruption(number)
        try:
            sys.settrace(interruption.trace)
            candidate.run()
        except HandlerFailed:
            pass
        finally:
            sys.settrace(None)
        assert not scenario.process.locks.lock("a").locked(), interruption.where
        if interruption.lines_left >= 0:
            assert number > 30, "too few lines were executed"
            break
    assert scenario.leftovers() == []

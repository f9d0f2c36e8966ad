"""A campaign while the store is down."""

from __future__ import annotations

from django_redis_locks import Grant
from django_redis_locks.core import events
from tests.unit.primitives.scenario import Scenario


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

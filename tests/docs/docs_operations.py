"""What the examples of howto/operations.md, and of the reference take for granted, and what must hold after them."""

from __future__ import annotations

import dataclasses
import json
import re

import pytest
from django.test import override_settings

from django_redis_locks import LockLost, diagnosis, locks, signals
from tests.docs.examples import Names, after, get, given, hold_elsewhere, problems_of
from tests.docs.pages import rows


@after("reference/api:diagnosis")
def _(names: Names) -> None:
    assert json.loads(names["healthy"](get()).content)["locks"] == "master"
    facts, counter = (
        [field.name for field in dataclasses.fields(value)] for value in (diagnosis.facts(), diagnosis.fences()[0])
    )
    of_facts, of_fences = (cells[1] for cells in rows("reference/api.md", first=r"(facts|fences)\(.*\)").values())
    assert set(facts) - {"database"} <= set(re.findall(r"`([\w-]+)`", of_facts))
    assert f"FenceCounter({', '.join(counter)})" in of_fences
    down = "redis://127.0.0.1:1/0"
    with override_settings(REDIS_LOCKS={"default": {"LOCATION": down}}):
        assert names["healthy"](get()).status_code == 503


@after("howto/operations:signals")
def _(names: Names) -> None:
    with pytest.raises(LockLost), locks.lock("order:42"):
        locks.lock("order:42").force_release()
    signals.lock_lost.disconnect(names["page_somebody"])
    assert names["lost"] == ["order was lost after 0 s: taken"]


@given("howto/operations:stuck")
def _() -> Names:
    return {"somebody": hold_elsewhere("order:42")}


@after("howto/operations:stuck")
def _(names: Names) -> None:
    assert not names["lock"].locked()


@after("howto/testing:settings", "howto/testing:xdist", "reference/settings:settings", "reference/settings:names")
def _(names: Names) -> None:
    for entry in names["REDIS_LOCKS"].values():
        assert problems_of(REDIS_LOCKS={"default": entry}) == []

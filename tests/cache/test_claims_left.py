"""Nothing that fails beside a loader leaves a claim that is renewed for ever."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.core.cache import caches

from django_redis_locks.cache import LoadContext, get_or_load, get_or_load_many
from tests.cache.conftest import HERE, THERE, at, beside, local


@pytest.mark.parametrize("ttl", ["60", float("inf"), True])
def test_a_ttl_that_is_none_is_the_loaders_failure(road: str, ttl: Any) -> None:
    def loader(context: LoadContext) -> str:
        context.ttl = ttl
        return "value"

    with pytest.raises(ValueError, match="ttl is a number of seconds"):
        get_or_load("k", loader, **at(HERE), ttl=60, error_ttl=0)
    found = get_or_load("k", lambda: "other", **at(THERE), ttl=60, wait=20, info=True)
    assert (found.value, found.source) == ("other", "loaded")


def test_a_loader_gives_its_ttl_as_a_timedelta(road: str) -> None:
    def loader(context: LoadContext) -> str:
        context.ttl = timedelta(minutes=1)
        return "value"

    found = get_or_load("k", loader, **at(HERE), jitter=0, info=True)
    assert (found.value, found.fresh_for) == ("value", 60)


@pytest.mark.parametrize("road", [pytest.param(beside, id="beside"), pytest.param(local, id="local")], indirect=True)
def test_a_second_look_that_fails_gives_the_claims_up(road: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kind, looks = type(caches[HERE]), []
    get_many = kind.get_many

    def failing(self: Any, *args: Any, **kwargs: Any) -> Any:
        looks.append(args)
        if len(looks) == 2:
            raise OSError("no such disk")
        return get_many(self, *args, **kwargs)

    monkeypatch.setattr(kind, "get_many", failing)
    with pytest.raises(OSError, match="no such disk"):
        get_or_load_many(["a", "b"], lambda keys: dict.fromkeys(keys, 1), **at(HERE), ttl=60)
    assert get_or_load("a", lambda: 2, **at(THERE), ttl=60, wait=20, info=True).source == "loaded"

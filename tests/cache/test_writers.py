"""Several who write one value at once, and loads between them."""

from __future__ import annotations

from django.core.cache import caches

from django_redis_locks.cache import refresh
from django_redis_locks.cache.fences import writing
from tests.cache.conftest import HERE, THERE, Loader, Stage, at, road_at
from tests.contract.matrix import PATIENCE


def test_a_load_that_began_after_another_writer_is_void(road: str, stage: Stage) -> None:
    """[S12] The first of two writers ends last: what was loaded since the other one ended is older than his value."""
    here, loader = road_at(HERE), Loader("loaded", gate=True)
    key = here.key("k", None)
    with writing(here, [key]):
        with writing(road_at(THERE), [key]):
            caches[HERE].delete("k")
        load = stage.start("k", loader, cache=THERE, ttl=60)
        loader.wait()
        caches[HERE].set("k", "written")
    loader.gate.set()
    load.result(PATIENCE)
    assert caches[HERE].get("k") in ("written", None)


def test_a_refresh_that_begins_while_somebody_writes_is_void(road: str, stage: Stage) -> None:
    here, loader = road_at(HERE), Loader("loaded", gate=True)
    with writing(here, [here.key("k", None)]):
        load = stage.caller().start(refresh, "k", stage.face(loader), **at(THERE), ttl=60)
        loader.wait()
        caches[HERE].set("k", "written")
    loader.gate.set()
    load.result(PATIENCE)
    assert caches[HERE].get("k") in ("written", None)

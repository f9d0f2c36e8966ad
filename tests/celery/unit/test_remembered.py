"""What a run leaves in its record, for messages that come late."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from celery_locks.job import Job
from celery_locks.message import HEADER
from tests.celery.unit.actors import Message, Place
from tests.celery.unit.stepping import World


@pytest.fixture
def world() -> Iterator[World]:
    with World(1, lock_on_duplicate="replace").alive() as world:
        yield world


def message(world: World, id: str, reserved: int) -> Message:
    return Message(id, (), {HEADER: {"v": 1, "key": world.key, "id": id, "reserved": reserved}}, 0, world.now)


def left(world: World) -> Job:
    while world.go_on():
        pass
    assert not world.broken
    job = Place(world, world.key)._found()
    assert job is not None
    return job


def test_a_success_is_the_last_word_on_what_was_sent_before(world: World) -> None:
    """[C30]"""
    world.messages.append(message(world, "a", 7))
    assert left(world).past == 7


def test_a_failure_is_not(world: World) -> None:
    world.plans["a"] = ["fail"]
    world.messages.append(message(world, "a", 7))
    assert left(world).past == 0


def test_what_it_replaced_is_known_after_a_failure(world: World) -> None:
    """A message that was replaced isn't run later with old arguments."""
    world.write(Job("queued", "b", first=5, reserved=9))
    world.plans["b"] = ["fail"]
    world.messages.append(message(world, "b", 9))
    job = left(world)
    assert (job.first, job.reserved, job.outcome) == (5, 9, "failure")
    world.messages.append(message(world, "a", 5))
    assert left(world).id == "b"
    assert world.results.get_state("a") == "REVOKED"


def test_what_it_stands_for_is_known_through_its_retries(world: World) -> None:
    """[C40] The one whose reservation had expired runs; the other one is answered, though it was retried."""
    world.write(Job("queued", "b", reserved=9))
    world.plans["a"] = ["retry", "retry"]
    world.messages.append(message(world, "a", 5))
    job = left(world)
    assert (job.id, job.twin) == ("a", "b")
    world.messages.append(message(world, "b", 9))
    assert left(world).id == "a"
    assert world.results.get_task_meta("b")["result"] == "a"


def test_an_answer_that_is_gone_is_made_again(world: World) -> None:
    """Nobody follows for ever a job whose result isn't there."""
    world.write(Job("done", "b", outcome="success", keep=900.0, ttl=900.0), 900.0)
    world.messages.append(message(world, "a", 9999))
    assert left(world).id == "a"


def test_until_it_is_expired_counts_from_its_submission() -> None:
    """The time in the queue and that of the run are gone."""
    with World(1, unique_until="expired", idempotency_ttl=100).alive() as world:
        world.plans["a"] = ["long"]
        world.messages.append(message(world, "a", int((world.now - 30.0) * 1_000_000)))
        assert left(world).ttl == pytest.approx(60.0, abs=0.1)


@pytest.mark.parametrize("options", [{"lock_on_duplicate": "queue"}, {"unique_until": "start"}], ids=str)
def test_where_each_counts_none_stands_for_another(options: dict[str, str]) -> None:
    """A message that went back, and that another one overtook, has a run of its own."""
    with World(1, **options).alive() as world:
        key = world.key + (":run" if "unique_until" in options else "")
        world.write(Job("queued", "b"))
        world.records[key] = world.records.pop(world.key)
        for id in ("a", "b"):
            world.messages.append(message(world, id, 0))
            while world.go_on():
                pass
        assert [run.id for run in world.runs] == ["a", "b"]

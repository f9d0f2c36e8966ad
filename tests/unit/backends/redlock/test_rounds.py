"""What a majority of servers says, and what happens to the rest."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

import pytest

from django_redis_locks import LockBackendError
from django_redis_locks.core import holder as holders
from tests.unit.backends.redlock.world import START, TIMEOUT, Client, World, play


def silent() -> None:
    """A request or reply that is lost."""
    return


def slow(seconds: float) -> Callable[[], float]:
    return lambda: seconds


def story(test: Any) -> Any:
    """Run an asynchronous test in a world of five servers."""

    def run() -> None:
        play(test)

    run.__doc__ = test.__doc__
    return run


@story
async def test_lock_is_held_by_all_and_released_by_all(world: World) -> None:
    client, token = world.client(), "t"
    assert await client.acquire(token)
    await asyncio.sleep(0.1)
    assert world.holders() == 5
    assert await client.release(token) == 1
    await asyncio.sleep(0.1)
    assert world.holders() == 0


@story
async def test_second_caller_is_refused_and_leaves_nothing(world: World) -> None:
    one, two = world.client(), world.client()
    world.servers[4].down = True
    assert await one.acquire("t1")
    world.servers[4].down = False
    assert await two.acquire("t2") is None
    await asyncio.sleep(2)
    assert await one.release("t1") == 1
    await asyncio.sleep(2)
    assert world.holders() == 0


@story
async def test_late_grant_of_a_failed_attempt_is_freed_when_it_arrives(world: World) -> None:
    """[L16] [L39] The server answers long after the call has returned."""
    one, two = world.client(), world.client()
    world.servers[0].down = world.servers[1].down = True
    assert await one.acquire("t1")
    world.servers[0].down = world.servers[1].down = False
    world.servers[0].request_takes = slow(0.3)
    begin = world.clock.time
    assert await two.acquire("t2") is None
    assert world.clock.time - begin < 0.1, "it didn't wait for the slow server"
    await asyncio.sleep(0.35)
    assert "lock/acquire" in world.servers[0].executed
    await asyncio.sleep(0.65)
    assert [bool(server.executed.count("lock/release")) for server in world.servers[:2]] == [True, True]
    assert await one.release("t1") == 1
    await asyncio.sleep(1)
    assert world.holders() == 0


@story
async def test_release_follows_a_grant_that_hasnt_been_answered(world: World) -> None:
    """[L39] The slow server gets the release after the acquire, though both are sent within milliseconds."""
    client = world.client()
    world.servers[0].request_takes = slow(0.3)
    assert await client.acquire("t")
    world.servers[0].request_takes = slow(0.001)
    assert await client.release("t") == 1
    await asyncio.sleep(0.4)
    assert world.servers[0].executed[:1] == ["lock/acquire"]
    assert world.holders() == 0


@story
async def test_reply_that_is_never_read_delays_a_release_for_some_timeouts_only(world: World) -> None:
    """As if the acquire was sent in an event loop that doesn't run for some time."""
    client = world.client()
    backend = client.quorum.members[0].backend
    send, runs_again = backend.acall, asyncio.Event()

    async def acall(command: Any) -> Any:
        reply = await send(command)
        if command.name == "lock/acquire":
            await runs_again.wait()
        return reply

    backend.acall = acall  # type: ignore[method-assign]
    assert await client.acquire("t")
    await asyncio.sleep(0.1)
    assert world.holders() == 5
    assert await client.release("t") == 1
    await asyncio.sleep(0.1)
    assert world.holders() == 1
    await asyncio.sleep(4 * TIMEOUT)
    left = world.holders()
    runs_again.set()
    assert left == 0
    await asyncio.sleep(0.1)
    assert world.holders() == 0


@story
async def test_late_copy_of_an_unanswered_acquire_is_freed(world: World) -> None:
    """The request arrives after its caller gave up on it and released the lock on the other servers."""
    client = world.client()
    world.servers[0].request_takes = slow(0.9)
    assert await client.acquire("t")
    await asyncio.sleep(0.6)
    world.servers[0].request_takes = slow(0.001)
    assert await client.release("t") == 1
    await asyncio.sleep(2.5)
    assert "lock/acquire" in world.servers[0].executed
    assert world.holders() == 0


@story
async def test_server_that_is_down_isnt_a_lock_that_is_taken(world: World) -> None:
    """[L39]"""
    client = world.client()
    for server in world.servers[:3]:
        server.down = True
    with pytest.raises(LockBackendError) as failed:
        await client.acquire("t")
    error = failed.value
    assert str(error).startswith("2 of the 5 servers of the servers answered, and 3 are needed: refused from server0;")
    assert error.unreachable
    assert error.transient
    for server in world.servers[:3]:
        server.down = False
    await client.release("t")
    await asyncio.sleep(3)
    assert world.holders() == 0


@story
async def test_two_of_five_may_be_down(world: World) -> None:
    client = world.client()
    world.servers[0].down = True
    world.servers[1].request_takes = silent
    fences = []
    for number in range(5):
        granted = await client.acquire(f"t{number}")
        assert granted
        fences.append(granted[0])
        assert (await client.renew(f"t{number}"))[0]
        assert await client.release(f"t{number}") == 1
    assert fences == sorted(set(fences))


@story
async def test_silent_server_is_waited_for_once_and_tried_once_a_second(world: World) -> None:
    client = world.client()
    tried = 0

    def count_tries() -> None:
        nonlocal tried
        tried += 1

    world.servers[0].request_takes = count_tries
    begin = world.clock.time
    while world.clock.time < begin + 3.2:
        before, token = world.clock.time, client.token()
        assert await client.acquire(token)
        assert await client.release(token)
        assert world.clock.time - before < 0.1
        await asyncio.sleep(0.05)
    assert 5 <= tried <= 25


@story
async def test_fences_are_raised_on_a_majority(world: World) -> None:
    """A later majority that shares one server with the former grants a larger fence, whatever the clocks."""
    for ahead, server in zip((50.0, 0.0, -20.0, 3.0, -1.0), world.servers, strict=True):
        server.ahead = ahead
    client, last = world.client(), 0
    for number, down in enumerate([(), (0, 1), (3, 4), (0, 4), (1, 2), (2, 3), (0, 1)]):
        for position, server in enumerate(world.servers):
            server.down = position in down
        client = world.client()
        granted = await client.acquire(f"t{number}")
        assert granted
        assert granted[0] > last
        last = granted[0]
        assert await client.release(f"t{number}") == 1
        await asyncio.sleep(0.01)


@story
async def test_majority_has_the_fence_of_the_grant(world: World) -> None:
    """A server that grants the lock late has a larger one. It is shown with that of the majority, and released by it."""
    client = world.client()
    world.servers[3].request_takes = slow(0.2)
    granted = await client.acquire("t")
    await asyncio.sleep(0.5)
    assert granted
    fences = [server.store._store.records["lock:{0}:k:a"].fence for server in world.servers]
    assert fences.count(granted[0]) == 4
    assert fences[3] > granted[0]
    assert (await client.holder())[2] == granted[0]
    assert await client.force_release(granted[0] + 1) == 0
    assert await client.force_release(granted[0]) == 1
    assert world.holders() == 0


@story
async def test_known_clocks_make_one_round_of_an_acquire(world: World) -> None:
    """All servers give the same fence, slightly ahead of the fastest clock. It runs no further ahead."""
    for ahead, server in zip((50.0, 0.0, -20.0, 3.0, -1.0), world.servers, strict=True):
        server.ahead = ahead
    client, last = world.client(), 0
    for number in range(50):
        for server in world.servers:
            server.executed.clear()
        granted = await client.acquire(f"t{number}")
        await asyncio.sleep(0.01)
        assert granted
        assert granted[0] > last
        last = granted[0]
        if number:
            assert all(server.executed == ["lock/acquire"] for server in world.servers)
            assert {server.store._store.records["lock:{0}:k:a"].fence for server in world.servers} == {last}
        assert await client.release(f"t{number}") == 1
        await asyncio.sleep(0.01)
    assert abs(last / 1e6 - (START + world.clock.time + 50.0)) < 0.05


@story
async def test_contended_fences_dont_run_ahead_of_the_clocks(world: World) -> None:
    """Acquires of several processes overtake each other, so that servers give different fences."""
    clients = [world.client() for _ in range(3)]
    last: dict[str, int] = {}

    async def work(client: Client, key: str) -> None:
        for number in range(40):
            granted = await client.acquire(f"{key}{number}", key=key)
            assert granted
            assert granted[0] > last.get(key, 0)
            last[key] = granted[0]
            await client.release(f"{key}{number}", key=key)

    for number, server in enumerate(world.servers):
        server.request_takes = partial(Random(number).uniform, 0.0, 0.02)
    await asyncio.gather(*(work(client, key) for client, key in zip(clients, "abc", strict=True)))
    assert max(last.values()) / 1e6 - (START + world.clock.time) < 0.05


@story
async def test_fence_that_no_majority_has_is_no_grant(world: World) -> None:
    """Servers fail between the two rounds."""
    client = world.client()
    for server in world.servers:
        server.ahead = world.servers.index(server) * 10.0
    attempt = asyncio.ensure_future(client.acquire("t"))
    await asyncio.sleep(0.0025)
    for server in world.servers[:3]:
        server.down = True
    with pytest.raises(
        LockBackendError, match="no majority of the servers of the servers has stored the fence"
    ) as failed:
        await attempt
    assert failed.value.outcome_unknown


@story
async def test_without_the_fence_an_acquire_is_one_round(world: World) -> None:
    client = world.client(fenced=False)
    begin = world.clock.time
    assert await client.acquire("t")
    assert world.clock.time - begin < 0.003
    assert all(server.executed == ["lock/acquire"] for server in world.servers)


@story
async def test_repeated_acquire_has_the_same_hold(world: World) -> None:
    """[L12] The replies were lost, so the caller sends the same token again."""
    client = world.client()
    for server in world.servers:
        server.reply_takes = silent
    with pytest.raises(LockBackendError) as failed:
        await client.acquire("t")
    assert failed.value.outcome_unknown
    for server in world.servers:
        server.reply_takes = slow(0.001)
    assert await client.acquire("t")
    assert await world.client().acquire("other") is None


@story
async def test_renewal_retakes_a_server_that_restarted_empty(world: World) -> None:
    """[L39]"""
    client = world.client()
    granted = await client.acquire("t", holder='["host",7]')
    await asyncio.sleep(0.1)
    for server in world.servers[:2]:
        server.restart_empty()
    assert world.holders() == 3
    assert (await client.renew("t"))[0] is True
    await asyncio.sleep(0.1)
    assert world.holders() == 5
    records = [server.store._store.records["lock:{0}:k:a"] for server in world.servers]
    assert granted
    assert {(record.token, record.fence) for record in records} == {("t", granted[0])}
    assert len({record.holder for record in records}) == 1


@story
async def test_fence_of_a_hold_stays_when_the_servers_that_have_it_restart(world: World) -> None:
    """Two servers granted it late, with fences of their own; two of the other three restart empty."""
    client = world.client()
    world.servers[0].request_takes, world.servers[1].request_takes = slow(0.2), slow(0.3)
    granted = await client.acquire("t")
    await asyncio.sleep(0.5)
    for server in world.servers:
        server.request_takes = slow(0.001)
    for server in world.servers[2:4]:
        server.restart_empty()
    assert (await client.renew("t"))[0] is True
    assert granted
    assert (await client.holder())[2] == granted[0]


@story
async def test_released_lock_isnt_retaken(world: World) -> None:
    """The release is sent while the renewal is about to acquire the lock again on an empty server."""
    client = world.client()
    assert await client.acquire("t")
    await asyncio.sleep(0.1)
    world.servers[0].restart_empty()
    renewal = asyncio.ensure_future(client.renew("t"))
    await asyncio.sleep(0.0035)
    released = asyncio.ensure_future(client.release("t"))
    await asyncio.gather(renewal, released, return_exceptions=True)
    await asyncio.sleep(1)
    assert world.holders() == 0


@story
async def test_lock_that_a_majority_lost_is_lost(world: World) -> None:
    client = world.client()
    assert await client.acquire("t")
    await asyncio.sleep(0.1)
    for server in world.servers[:3]:
        server.restart_empty()
    assert (await client.renew("t"))[0] is False
    assert await client.release("t") == 0


@story
async def test_minority_that_is_away_is_no_news_to_a_renewal(world: World) -> None:
    client = world.client()
    assert await client.acquire("t")
    world.servers[0].down = world.servers[1].down = True
    assert (await client.renew("t"))[0] is True
    world.servers[2].down = True
    with pytest.raises(LockBackendError):
        await client.renew("t")


@story
async def test_release_is_done_at_a_majority_and_repeated_for_the_rest(world: World) -> None:
    client = world.client()
    assert await client.acquire("t")
    await asyncio.sleep(0.1)
    world.servers[0].down = world.servers[1].down = True
    assert await client.release("t") == 1
    for server in world.servers[:2]:
        server.down = False
    assert world.holders() == 2
    await asyncio.sleep(1.5)
    assert world.holders() == 0


@story
async def test_handed_over_lock_is_taken_over(world: World) -> None:
    client = world.client()
    first = await client.acquire("t1")
    second = await client.acquire("t2", handed="t1")
    assert first
    assert second
    assert second[0] > first[0]
    await asyncio.sleep(0.1)
    assert await client.release("t1") == 0
    assert await client.release("t2") == 1


@story
async def test_holder_is_what_a_majority_names(world: World) -> None:
    client = world.client()
    assert await client.holder() == []
    granted = await client.acquire("t", holder='["host",7]')
    await asyncio.sleep(0.1)
    for server in world.servers[:2]:
        server.restart_empty()
    holder = await client.holder()
    assert granted
    assert (holder[0], holder[2]) == (0, granted[0])
    assert holders.read(holder[4], fence=1, since=1.0, lease_left=1.0).host == "host"
    world.servers[2].restart_empty()
    assert await client.holder() == []


@story
async def test_cancelled_acquire_is_freed_by_a_release(world: World) -> None:
    """[L16] The clean-up of the caller comes while requests are under way."""
    client = world.client()
    for server in world.servers:
        server.request_takes = slow(0.05)
    attempt = asyncio.ensure_future(client.acquire("t"))
    await asyncio.sleep(0.01)
    attempt.cancel()
    await client.release("t")
    await asyncio.sleep(1)
    assert world.holders() == 0

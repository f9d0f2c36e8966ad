"""Who waits for a lock of another process is woken by a message, whatever becomes of those who wait before him.

The cap is a minute here, as is the lease: nothing but a message ends a sleep within the seconds that a test waits.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future

import pytest
import redis

from tests.chaos import jobs
from tests.chaos.jobs import agive, atake, give, take
from tests.chaos.workers import AT_ONCE, CAP, LINE, PATIENCE, Worker, connected, in_line
from tests.waiting import eventually

Start = Callable[..., Worker]

FACES = {"thread": (take, give), "task": (atake, agive)}


@pytest.fixture(params=FACES)
def face(request: pytest.FixtureRequest) -> tuple[Callable[..., object], Callable[..., object]]:
    """What the waiter does: to take the lock, and to give it back."""
    return FACES[request.param]


@pytest.mark.chaos
def test_each_release_wakes_a_waiter_of_another_process(
    workers: Start, face: tuple[Callable[..., object], ...], direct: redis.Redis
) -> None:
    """[M5] [H8] [L18] 200 times. Not one wake-up is lost, and they take milliseconds: 19 of 20 less than 50, plus what the
    machine needs for as many switches between processes, which each round measures as well. What others do to the
    machine now and then isn't there in all of five runs."""
    holder, waiter = workers("holder", max_poll_interval=CAP), workers("waiter", max_poll_interval=CAP)
    assert any(in_milliseconds(holder, waiter, face, direct) for _ in range(5))


def in_milliseconds(
    holder: Worker, waiter: Worker, face: tuple[Callable[..., object], ...], direct: redis.Redis
) -> bool:
    take_, give_ = face
    delays, switches = [], []
    for _ in range(200):
        holder.call(take, "a")
        waiting = waiter.start(take_, "a")
        in_line(direct, 1)
        released = holder.call(give, "a")
        delays.append(waiting.result(AT_ONCE).got - released)
        waiter.call(give_, "a")
        begin = jobs.ping()
        waiter.call(jobs.ping)
        holder.call(jobs.ping)
        switches.append(jobs.ping() - begin)
    assert max(delays) < AT_ONCE
    return sorted(delays)[190] < 0.05 + sorted(switches)[190]


@pytest.fixture
def monitored(direct: redis.Redis) -> Iterator[list[dict[str, object]]]:
    """Every command that the server is given."""
    commands: list[dict[str, object]] = []
    begun = threading.Event()

    def listen() -> None:
        with direct.monitor() as monitor:
            begun.set()
            for command in monitor.listen():
                commands.append(command)
                if "that is all" in command["command"]:
                    return

    thread = threading.Thread(target=listen)
    thread.start()
    assert begun.wait(20)
    yield commands
    direct.echo("that is all")
    thread.join(PATIENCE)


@pytest.mark.chaos
def test_a_waiter_is_silent(
    workers: Start,
    face: tuple[Callable[..., object], ...],
    holder: Worker,
    direct: redis.Redis,
    monitored: list[dict[str, object]],
) -> None:
    """[L27] Not one command from any connection of its process, between the one that lines it up and its wake-up."""
    waiter = workers("waiter", max_poll_interval=CAP)
    waiting = waiter.start(face[0], "a")
    in_line(direct, 1)
    direct.echo("it is in line")
    addresses = {client["addr"] for client in direct.client_list() if client["name"] == "waiter"}
    with pytest.raises(TimeoutError):
        waiting.result(0.7)
    direct.echo("it will be woken")
    holder.call(give, "a")
    assert waiting.result(AT_ONCE)
    direct.echo("it has the lock")
    eventually(lambda: any("it has the lock" in command["command"] for command in monitored))

    def between(first: str, last: str) -> list[str]:
        said = [str(command["command"]) for command in monitored]
        begin, end = (next(n for n, text in enumerate(said) if mark in text) for mark in (first, last))
        return [
            str(command["command"]).split()[0]
            for command in monitored[begin:end]
            if f"{command['client_address']}:{command['client_port']}" in addresses
        ]

    assert len(addresses) == 2, "one that asks, and the inbox"
    assert between("it is in line", "it will be woken") == []
    assert between("it will be woken", "it has the lock") == ["EVALSHA"]


def test_a_dead_waiter_is_passed_over(workers: Start, holder: Worker, direct: redis.Redis) -> None:
    """[H10] [L29] Killed while it stands first in line: nobody hears the message, so the release wakes the next."""
    dead, alive = workers("dead", max_poll_interval=CAP), workers("alive", max_poll_interval=CAP)
    dead.start(take, "a")
    in_line(direct, 1)
    waiting = alive.start(take, "a")
    in_line(direct, 2)
    dead.kill()
    eventually(lambda: not connected(direct, "dead"))  # the server has noticed
    assert direct.zcard(LINE) == 2
    holder.call(give, "a")
    assert waiting.result(AT_ONCE)


def test_a_stopped_waiter_costs_no_more_than_the_cap(workers: Start, holder: Worker, direct: redis.Redis) -> None:
    """[H8] SIGSTOP: its connection takes the message, and nobody goes on. The next one asks when the cap is over, and
    who was stopped gets the lock later."""
    stopped, other = (
        workers("stopped", max_poll_interval=CAP),
        workers("other", max_poll_interval=0.5),
    )  # its place is kept for two caps
    first = stopped.start(take, "a")
    in_line(direct, 1)
    stopped.signal(signal.SIGSTOP)
    second = other.start(take, "a")
    in_line(direct, 2)
    released = holder.call(give, "a")
    assert second.result(PATIENCE).got - released < 0.5 + AT_ONCE
    other.call(give, "a")
    stopped.signal(signal.SIGCONT)
    assert first.result(AT_ONCE)


@pytest.mark.parametrize("company", [0, 2], ids=["alone", "in company"])
def test_waiter_that_gives_up_is_unregistered(
    workers: Start, face: tuple[Callable[..., object], ...], holder: Worker, direct: redis.Redis, company: int
) -> None:
    """[H9] [L33] His process is taken out of the line, so that the next release wakes somebody who waits."""
    hasty, patient = workers("hasty", max_poll_interval=CAP), workers("patient", max_poll_interval=CAP)
    given_up: list[Future[object]] = []
    while not (place := direct.zrange(LINE, 0, -1)):
        if all(future.done() for future in given_up):  # not yet, or a busy machine was too slow
            given_up = [hasty.start(face[0], "a", timeout=1 + 0.01 * number) for number in range(1 + company)]
    waiting = patient.start(take, "a")
    assert [future.result(PATIENCE) for future in given_up] == [None] * (1 + company)
    eventually(lambda: direct.zcard(LINE) == 1 and direct.zrange(LINE, 0, -1) != place)
    holder.call(give, "a")
    assert waiting.result(AT_ONCE)
    patient.call(give, "a")
    assert not direct.exists(LINE)


def test_waiter_that_gives_up_leaves_its_place_to_its_process(
    workers: Start, face: tuple[Callable[..., object], ...], holder: Worker, direct: redis.Redis
) -> None:
    """[H9] A place belongs to the process: while others wait there it isn't given up, and is kept."""
    process = workers("process", max_poll_interval=CAP)
    hasty = process.start(face[0], "a", timeout=0.5)
    while not direct.zcard(LINE):
        if hasty.done():  # a busy machine was too slow
            hasty = process.start(face[0], "a", timeout=0.5)
    waiting = process.start(face[0], "a")
    eventually(lambda: process.call(jobs.queued, "a") == 2 - hasty.done())
    in_line(direct, 1)
    later = workers("later", max_poll_interval=CAP).start(take, "a")
    in_line(direct, 2)
    first, second = direct.zrange(LINE, 0, -1)
    assert hasty.result(PATIENCE) is None
    holder.call(give, "a")
    assert waiting.result(AT_ONCE)
    assert direct.zrange(LINE, 0, -1) == [second] != [first]
    process.call(face[1], "a")
    assert later.result(AT_ONCE)

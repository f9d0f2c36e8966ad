"""A cell: an app in this process and two workers, on a Redis of their own. All tests of a process share one; a test that
kills a worker starts its own."""

from __future__ import annotations

import gc
import json
import os
import signal
import uuid
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from celery import Celery
from celery.app.task import Task
from celery.result import AsyncResult

from tests.celery.app import Config, make_app
from tests.celery.journal import Entry, Journal
from tests.celery.nodes import Node, celery_version
from tests.servers import unavailable
from tools.processes import ServerNotFound
from tools.rabbitmq_server import RabbitMQ
from tools.redis_server import RedisServer


class Cell:
    """An app in this process and its workers."""

    def __init__(self, config: Config, folder: Path) -> None:
        self.config = config
        self.folder = folder
        self.app: Celery = make_app(config, redis_locks=False)  # the settings of this process say it
        self.journal: Journal = self.app.journal
        self.nodes: list[Node] = []

    def task(self, name: str) -> Task:
        return self.app.tasks[name]

    def begin(self, name: str, who: str, **options: Any) -> tuple[Task, AsyncResult, Entry]:
        """Submit a job, and wait for its body."""
        task = self.task(name)
        result = task.apply_async((who,), **options)
        return task, result, self.journal.wait(who, "begin", id=result.id)[-1]

    def start(self, count: int = 1, *, config: Config | None = None, **options: Any) -> list[Node]:
        started = [Node({**self.config, **(config or {})}, self.folder, **options) for _ in range(count)]
        self.nodes += started
        return [node.ready(self.journal) for node in started]

    def help(self, queue: str, *nodes: Node) -> None:
        """The shared workers, or these, look into this queue too, from now on."""
        hosts = [node.host for node in nodes or self.nodes]
        answers = self.app.control.add_consumer(queue, destination=hosts, reply=True, timeout=10)
        assert len(answers) == len(hosts), answers

    def kill(self, body: Entry) -> None:
        """SIGKILL for the process in which this body runs, as the out-of-memory killer would."""
        self.journal.write("killed", body.who, pids=[body.pid])  # first: the next body may begin at once
        os.kill(body.pid, signal.SIGKILL)

    def kill_node(self, body: Entry) -> None:
        """A power cut for the worker in which this body runs."""
        self.journal.write("killed", body.who, pids=[body.pid])  # first, as above
        (dying,) = [node for node in self.nodes if node.host == body.node]
        dying.kill()

    @contextmanager
    def channel(self) -> Iterator[Any]:
        """Of the broker."""
        with self.app.connection_for_write() as connection:
            yield connection.default_channel

    def redeliver(self, task_id: str) -> None:
        """Deliver a message now that isn't acknowledged, as the Redis transport does after the visibility timeout."""
        with self.channel() as channel:
            for tag, message in channel.client.hgetall(channel.unacked_key).items():
                if task_id.encode() in message:
                    channel.qos.restore_by_tag(tag.decode())
                    return
        raise AssertionError(f"No message of {task_id} waits for its acknowledgement.")

    def copies(self, task_id: str, queue: str) -> int:
        """Messages of this task in the queue, and those that workers haven't acknowledged."""
        with self.channel() as channel:
            there = [*channel.client.lrange(queue, 0, -1), *channel.client.hvals(channel.unacked_key)]
        return sum(f'"id": "{task_id}"'.encode() in message.replace(b"\\", b"") for message in there)

    def unacked(self, task_id: str) -> bytes | None:
        """A copy of a message that a worker has, and hasn't acknowledged."""
        with self.channel() as channel:
            messages = channel.client.hvals(channel.unacked_key)
        return next((message for message in messages if task_id.encode() in message), None)

    def deliver(self, message: bytes) -> None:
        """Deliver a copy after its body has run, as after an acknowledgement that was lost."""
        payload, exchange, routing_key = json.loads(message)
        with self.channel() as channel, channel.client.pipeline() as pipe:
            channel._do_restore_message(payload, exchange, routing_key, pipe)
            pipe.execute()

    def revoke(self, task_id: str, **how: Any) -> None:
        """Every worker has heard it."""
        hosts = [node.host for node in self.nodes]
        answers = self.app.control.revoke(task_id, destination=hosts, reply=True, timeout=10, **how)
        assert len(answers) == len(hosts), answers

    def occupy(self, who: str, ack: str = "late") -> None:
        """Every child of every worker is busy, until the gate `<who>-busy` opens. ``late``: and so no worker fetches more
        than it can run; ``early``: it fetches what is to wait."""
        for node in self.nodes:  # none takes more than it can run while another one has nothing to do
            self.help(node.host, node)
            for _ in range(2):
                self.task(f"plain.{ack}.hold").apply_async((f"{who}-busy",), queue=node.host)
        self.journal.wait(f"{who}-busy", "begin", count=2 * len(self.nodes))

    def queued(self, queue: str = "celery") -> int:
        with self.channel() as channel:
            return channel.client.llen(queue)

    def close(self) -> None:
        for node in self.nodes:
            node.kill()
        self.app.close()
        self.journal.close()


def new_job(
    cell: Cell, task: Task, who: str, first: AsyncResult, seconds: float = 10, arguments: tuple[Any, ...] = ()
) -> AsyncResult:
    """Submit until it isn't the first job any more."""
    results = [first]

    def submitted() -> bool:
        results.append(task.delay(who, *arguments))
        return results[-1].id != first.id

    cell.journal.until(submitted, who, "a new job", seconds)
    return results[-1]


@pytest.fixture(scope="session")
def celery_server(redis_executable: None) -> Iterator[RedisServer]:
    """It is never flushed: the mark `who` separates the tests."""
    with RedisServer() as server:
        yield server


@pytest.fixture(scope="session")
def rabbitmq() -> Iterator[RabbitMQ]:
    try:
        broker = RabbitMQ().start()
    except ServerNotFound as error:
        unavailable(str(error))
    with broker:
        yield broker


@pytest.fixture(scope="session")
def celery_config(celery_server: RedisServer) -> Config:
    return {
        "broker": celery_server.url(0),
        "results": celery_server.url(1),
        "locks": {"LOCATION": celery_server.url(2)},
        "journal": celery_server.url(3),
    }


@pytest.fixture(scope="session")
def shared_cell(celery_config: Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cell]:
    cell = Cell(celery_config, tmp_path_factory.mktemp("workers"))
    try:
        cell.start(2)
        yield cell
    finally:
        cell.close()


@pytest.fixture
def who() -> str:
    """The mark of a test: its tasks' first argument, hence a part of every key."""
    return f"w{uuid.uuid4().hex[:10]}"


def tell(cell: Cell, request: pytest.FixtureRequest, who: str) -> None:
    """After a failure: what happened, and what the workers said."""
    report = getattr(request.node, "report", None)
    if report is not None and report.failed:
        print(cell.journal.story(who))  # noqa: T201
        for node in cell.nodes:
            print(f"--- {node.name}\n{node.tail()}")  # noqa: T201


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[Any]:
    report = yield
    if report.when == "call":
        item.report = report
    return report


LEFT = "ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning"
"""Celery's clients leave sockets to the collector."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings(LEFT))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """What is left is collected here: in another test it would be that test's mistake."""
    yield
    if {"cell", "make_cell"} & set(getattr(item, "fixturenames", ())):
        with warnings.catch_warnings(action="ignore", category=ResourceWarning):
            gc.collect()


@pytest.fixture
def cell(shared_cell: Cell, settings: Any, who: str, request: pytest.FixtureRequest) -> Iterator[Cell]:
    """The shared workers: two, with two children each."""
    settings.REDIS_LOCKS = {"default": shared_cell.config["locks"]}
    yield shared_cell
    tell(shared_cell, request, who)
    shared_cell.journal.open_gate(who)
    shared_cell.journal.open_gate(f"{who}-busy")


@pytest.fixture
def make_cell(
    celery_server: RedisServer,
    celery_config: Config,
    settings: Any,
    who: str,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> Iterator[Callable[..., Cell]]:
    """`cell = make_cell(EXPIRE=2)`: a cell with workers of its own, on a queue of its own; the rest is for the lock's alias."""
    with ExitStack() as stack:

        def make(config: Config | None = None, **alias: Any) -> Cell:
            more = dict(config or {})
            more["locks"] = locks = {**celery_config["locks"], **alias}
            more["conf"] = {"task_default_queue": f"q-{who}", **more.get("conf", {})}
            if "db" in more:  # all workers that share a database have the shortest of their visibility timeouts
                more["broker"] = celery_server.url(more.pop("db"))
            cell = Cell({**celery_config, **more}, tmp_path)
            settings.REDIS_LOCKS = {"default": locks}
            stack.callback(cell.close)
            stack.callback(tell, cell, request, who)
            return cell

        yield make


@pytest.fixture
def help_comes(shared_cell: Cell, who: str) -> Iterator[Callable[[], list[str]]]:
    """`help_comes()`: the shared workers, whose hosts it returns, have a look at the queue of a cell that was made."""
    hosts = [node.host for node in shared_cell.nodes]

    def come() -> list[str]:
        shared_cell.help(f"q-{who}")
        return hosts

    yield come
    shared_cell.journal.open_gate(who)
    shared_cell.app.control.cancel_consumer(f"q-{who}", destination=hosts)


@pytest.fixture
def needs_celery() -> Callable[..., None]:
    """`needs_celery(5, 6)`: what older ones can't do isn't asked of them."""

    def needs(*version: int) -> None:
        if celery_version() < version:
            pytest.skip(f"needs Celery {'.'.join(map(str, version))}")

    return needs

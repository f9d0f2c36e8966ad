"""A cluster: an app in this process and two workers, with a Redis of its own. Tests share one cluster per test process;
tests that stop a worker make their own."""

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
from tests.celery.worker_process import WorkerProcess, celery_version
from tests.servers import unavailable
from tools.processes import ServerNotFound
from tools.rabbitmq_server import RabbitMQ
from tools.redis_server import RedisServer


class Cluster:
    """An app in this process and its workers."""

    def __init__(self, config: Config, folder: Path) -> None:
        self.config = config
        self.folder = folder
        self.app: Celery = make_app(config, redis_locks=False)  # this process has them in Django's settings
        self.journal: Journal = self.app.journal
        self.workers: list[WorkerProcess] = []

    def task(self, name: str) -> Task:
        return self.app.tasks[name]

    def begin_job(self, name: str, tag: str, **options: Any) -> tuple[Task, AsyncResult, Entry]:
        """Submit a job and wait until its body runs."""
        task = self.task(name)
        result = task.apply_async((tag,), **options)
        return task, result, self.journal.wait(tag, "begin", id=result.id)[-1]

    def start_workers(self, count: int = 1, *, config: Config | None = None, **options: Any) -> list[WorkerProcess]:
        started = [WorkerProcess({**self.config, **(config or {})}, self.folder, **options) for _ in range(count)]
        self.workers += started
        return [worker.ready(self.journal) for worker in started]

    def consume(self, queue: str, *workers: WorkerProcess) -> None:
        """Let these workers, or all of them, consume this queue as well."""
        hosts = [worker.host for worker in workers or self.workers]
        answers = self.app.control.add_consumer(queue, destination=hosts, reply=True, timeout=10)
        assert len(answers) == len(hosts), answers

    def kill_child(self, body: Entry) -> None:
        """Send SIGKILL to the pool process that runs this body, as the out-of-memory killer does."""
        self.journal.write("killed", body.tag, pids=[body.pid])  # first: the next body may begin at once
        os.kill(body.pid, signal.SIGKILL)

    def kill_worker(self, body: Entry) -> None:
        """Kill the worker that runs this body, with its children, as a power cut does."""
        self.journal.write("killed", body.tag, pids=[body.pid])  # first, as above
        (dying,) = [worker for worker in self.workers if worker.host == body.worker]
        dying.kill()

    @contextmanager
    def channel(self) -> Iterator[Any]:
        """A channel of the broker."""
        with self.app.connection_for_write() as connection:
            yield connection.default_channel

    def redeliver(self, task_id: str) -> None:
        """Deliver an unacknowledged message again, as the Redis transport does after the visibility timeout."""
        with self.channel() as channel:
            for delivery_tag, message in channel.client.hgetall(channel.unacked_key).items():
                if task_id.encode() in message:
                    channel.qos.restore_by_tag(delivery_tag.decode())
                    return
        raise AssertionError(f"{task_id} has no unacknowledged message.")

    def count_copies(self, task_id: str, queue: str) -> int:
        """The number of messages of this task, queued or unacknowledged."""
        with self.channel() as channel:
            messages = [*channel.client.lrange(queue, 0, -1), *channel.client.hvals(channel.unacked_key)]
        return sum(f'"id": "{task_id}"'.encode() in message.replace(b"\\", b"") for message in messages)

    def unacknowledged_message(self, task_id: str) -> bytes | None:
        """A copy of this task's message, if a worker has fetched and not yet acknowledged it."""
        with self.channel() as channel:
            messages = channel.client.hvals(channel.unacked_key)
        return next((message for message in messages if task_id.encode() in message), None)

    def deliver_again(self, message: bytes) -> None:
        """Deliver a copy after the body has run, as if the acknowledgement was lost."""
        payload, exchange, routing_key = json.loads(message)
        with self.channel() as channel, channel.client.pipeline() as pipe:
            channel._do_restore_message(payload, exchange, routing_key, pipe)
            pipe.execute()

    def revoke(self, task_id: str, **how: Any) -> None:
        """Revoke a task, and wait for the reply of every worker."""
        hosts = [worker.host for worker in self.workers]
        answers = self.app.control.revoke(task_id, destination=hosts, reply=True, timeout=10, **how)
        assert len(answers) == len(hosts), answers

    def occupy_workers(self, tag: str, ack: str = "late") -> None:
        """Keep every child of every worker busy until the gate `<tag>-busy` opens. With ``late``, workers fetch no
        further messages; with ``early``, they prefetch them."""
        for worker in self.workers:  # by a queue per worker, so that each gets just as many jobs as it has children
            self.consume(worker.host, worker)
            for _ in range(2):
                self.task(f"plain.{ack}.wait_for_gate").apply_async((f"{tag}-busy",), queue=worker.host)
        self.journal.wait(f"{tag}-busy", "begin", count=2 * len(self.workers))

    def queue_length(self, queue: str = "celery") -> int:
        with self.channel() as channel:
            return channel.client.llen(queue)

    def close(self) -> None:
        for worker in self.workers:
            worker.kill()
        self.app.close()
        self.journal.close()


def submit_until_new_job(
    cluster: Cluster, task: Task, tag: str, first: AsyncResult, seconds: float = 10, arguments: tuple[Any, ...] = ()
) -> AsyncResult:
    """Submit repeatedly until the submission makes a new job instead of a duplicate of the first one."""
    results = [first]

    def submitted() -> bool:
        results.append(task.delay(tag, *arguments))
        return results[-1].id != first.id

    cluster.journal.until(submitted, tag, "a new job", seconds)
    return results[-1]


@pytest.fixture(scope="session")
def celery_server(redis_executable: None) -> Iterator[RedisServer]:
    """Redis of the shared cluster. It is never flushed: `tag` separates the tests."""
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
def shared_cluster(celery_config: Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(celery_config, tmp_path_factory.mktemp("workers"))
    try:
        cluster.start_workers(2)
        yield cluster
    finally:
        cluster.close()


@pytest.fixture
def tag() -> str:
    """A string unique to the test: the first argument of its tasks, and so a part of every key."""
    return f"w{uuid.uuid4().hex[:10]}"


def print_report_on_failure(cluster: Cluster, request: pytest.FixtureRequest, tag: str) -> None:
    """After a failure, print the journal of the test and the logs of its workers."""
    report = getattr(request.node, "report", None)
    if report is not None and report.failed:
        print(cluster.journal.transcript(tag))  # noqa: T201
        for worker in cluster.workers:
            print(f"--- {worker.name}\n{worker.tail()}")  # noqa: T201


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[Any]:
    report = yield
    if report.when == "call":
        item.report = report
    return report


IGNORE_UNCLOSED_SOCKETS = "ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning"
"""Celery's clients leave open sockets to the garbage collector."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings(IGNORE_UNCLOSED_SOCKETS))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """Collect garbage after each test, so that warnings about its sockets aren't attributed to another test."""
    yield
    if {"cluster", "make_cluster"} & set(getattr(item, "fixturenames", ())):
        with warnings.catch_warnings(action="ignore", category=ResourceWarning):
            gc.collect()


@pytest.fixture
def cluster(shared_cluster: Cluster, settings: Any, tag: str, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """The shared workers: two, with two children each."""
    settings.REDIS_LOCKS = {"default": shared_cluster.config["locks"]}
    yield shared_cluster
    print_report_on_failure(shared_cluster, request, tag)
    shared_cluster.journal.open_gate(tag)
    shared_cluster.journal.open_gate(f"{tag}-busy")


@pytest.fixture
def make_cluster(
    celery_server: RedisServer,
    celery_config: Config,
    settings: Any,
    tag: str,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> Iterator[Callable[..., Cluster]]:
    """`cluster = make_cluster(EXPIRE=2)`: a cluster with its own workers and queue; keyword arguments are lock
    settings."""
    with ExitStack() as stack:

        def make(config: Config | None = None, **alias: Any) -> Cluster:
            more = dict(config or {})
            more["locks"] = locks = {**celery_config["locks"], **alias}
            more["conf"] = {"task_default_queue": f"q-{tag}", **more.get("conf", {})}
            if "db" in more:  # workers that share a database all use the shortest visibility timeout
                more["broker"] = celery_server.url(more.pop("db"))
            cluster = Cluster({**celery_config, **more}, tmp_path)
            settings.REDIS_LOCKS = {"default": locks}
            stack.callback(cluster.close)
            stack.callback(print_report_on_failure, cluster, request, tag)
            return cluster

        yield make


@pytest.fixture
def add_shared_workers(shared_cluster: Cluster, tag: str) -> Iterator[Callable[[], list[str]]]:
    """`add_shared_workers()`: the shared workers consume the queue of this test's own cluster, too. Returns their
    hostnames."""
    hosts = [worker.host for worker in shared_cluster.workers]

    def add() -> list[str]:
        shared_cluster.consume(f"q-{tag}")
        return hosts

    yield add
    shared_cluster.journal.open_gate(tag)
    shared_cluster.app.control.cancel_consumer(f"q-{tag}", destination=hosts)


@pytest.fixture
def needs_celery() -> Callable[..., None]:
    """`needs_celery(5, 6)`: skip the test with an older version."""

    def needs(*version: int) -> None:
        if celery_version() < version:
            pytest.skip(f"needs Celery {'.'.join(map(str, version))}")

    return needs

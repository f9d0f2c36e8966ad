"""The simulated server and network: requests and replies may be delayed, lost or late."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from django_redis_locks import LockBackendError
from django_redis_locks.backends.base import Backend, Subscriber
from django_redis_locks.backends.memory import MemoryBackend
from django_redis_locks.backends.memory import backend as memory
from django_redis_locks.core.commands import Command
from django_redis_locks.core.owners import running_loop
from django_redis_locks.core.prepared import PreparedCommand
from django_redis_locks.core.steps.loads import GetValue
from django_redis_locks.core.tuning import DEFAULT
from tests.simulation.scheduler import Died, current

if TYPE_CHECKING:
    from django_redis_locks.backends.base import MessageHandler
    from tests.simulation.faults import Faults
    from tests.simulation.process import Process
    from tests.simulation.scheduler import Scheduler

LOCATION = "simulation"


class Server:
    """One Redis: the memory backend's commands, a clock, and connections to it.

    Attributes:
        observers: are called with each executed command and its reply.
        sender: the process that sent that command.
    """

    def __init__(self, scheduler: Scheduler, faults: Faults) -> None:
        self.scheduler = scheduler
        self.faults = faults
        self.memory = MemoryBackend(LOCATION)
        self.store = self.memory._store
        self.clock_offset = 0.0
        self.down_until = 0.0
        self.in_flight: list[Request] = []
        self.inboxes: list[SimulatedSubscriber] = []
        self.observers: list[Callable[[Command[Any], Any], object]] = []
        self.sender: Process | None = None
        self.effects = 0

    def forget(self) -> None:
        memory._stores.pop(LOCATION, None)

    @property
    def down(self) -> bool:
        return self.scheduler.now < self.down_until

    def wall(self) -> float:
        """The server's clock, which fences are made from."""
        return EPOCH + self.scheduler.now + self.clock_offset

    def carry_out(self, command: Command[Any]) -> Any:
        reply = self.memory.call(command)
        self.scheduler.log("    the server: %s %s -> %s", command.name, command.args, reply)
        for observe in self.observers:
            observe(command, reply)
        return reply

    def cut(self, process: Process | None = None) -> None:
        """Reset the connections of one process, or all: requests in flight get no reply."""
        for request in self.in_flight[:]:
            if process is None or request.process is process:
                request.reset()
        for inbox in self.inboxes[:]:
            if process is None or inbox.process is process:
                inbox.reset()


EPOCH = 1_700_000_000.0

PING: Command[Any] = Command("load/get", ("probe",), GetValue(), bool)


class Request:
    """Commands on one connection, and their replies if they arrive."""

    def __init__(
        self, server: Server, process: Process, commands: Sequence[Command[Any]], answered: Callable[[], object]
    ) -> None:
        self.server = server
        self.process = process
        self.commands = commands
        self.replies: list[Any] | None = None
        self.failure: LockBackendError | None = None
        self.answered = answered
        self.over = False
        """Whether the client has its result and ignores a later reply."""
        self.carried_out = False
        self.awaited = True
        scheduler, faults = server.scheduler, server.faults
        process.requests += 1
        server.effects += len(commands)
        server.in_flight.append(self)
        trip = faults.trip()
        fault = faults.of_request(self)
        if fault == "request lost":
            return
        if fault == "late":
            trip += faults.lateness()
        self.reply_lost = fault == "reply lost"
        self.trip_back = faults.trip_back(self)
        scheduler.at(scheduler.now + trip, self._arrive)

    def _arrive(self) -> None:
        """Arrive at the server. An abandoned request is still executed."""
        if self.carried_out:
            return
        self.carried_out = True
        server = self.server
        if server.down:
            if not self.over:
                self._end(LockBackendError("connection refused", transient=True, unreachable=True))
                self._tell()
            return
        server.sender = self.process
        replies = [server.carry_out(command) for command in self.commands]
        if not self.over and not self.reply_lost:
            scheduler = server.scheduler
            scheduler.at(scheduler.now + self.trip_back, partial(self._answer, replies), self.process)

    def _answer(self, replies: list[Any]) -> None:
        if not self.over:
            self.replies = replies
            self._end(None)
            self.answered()

    def reset(self) -> None:
        """Close the connection; a request in flight may be lost, or may arrive."""
        if not self.over:
            self.server.faults.note_reset(self)
            self._end(outcome_unknown("connection reset"))
            self._tell()

    def give_up(self) -> None:
        """The caller stops waiting and closes the connection."""
        self.awaited = False
        if not self.over:
            self._end(outcome_unknown("timeout"))

    def lose(self) -> None:
        """Let the request never arrive."""
        self.carried_out = True

    def _end(self, failure: LockBackendError | None) -> None:
        self.over = True
        self.failure = failure
        self.server.in_flight.remove(self)

    def _tell(self) -> None:
        scheduler = self.server.scheduler
        scheduler.at(scheduler.now, self._ring, self.process)

    def _ring(self) -> None:
        if self.awaited:
            self.answered()


def outcome_unknown(why: str) -> LockBackendError:
    return LockBackendError(why, outcome_unknown=True, transient=True, unreachable=True)


class SimulatedBackend(Backend):
    """One process's connections to the server."""

    supports = MemoryBackend.supports

    def __init__(self, server: Server, process: Process) -> None:
        self.server = server
        self.process = process
        self.identity = f"simulation {process.name}"
        """Different for each process, since queues and grants are looked up by it."""
        self.buckets = 1

    def call(self, command: Command[Any]) -> Any:
        (reply,) = self.call_many([command], DEFAULT.socket_timeout)
        if isinstance(reply, LockBackendError):
            try:
                raise reply
            finally:
                del reply  # a reference cycle of frame and error would keep grants reachable
        return reply

    def call_many(self, commands: Sequence[Command[Any]], timeout: float) -> list[Any]:
        actor = current()
        if self.process.dead:
            raise Died
        actor.doing = commands[0].name
        request = Request(self.server, self.process, commands, actor.run_now)
        try:
            actor.wait_for_wake(timeout)
        finally:
            request.give_up()
        if request.replies is not None:
            return request.replies
        assert request.failure is not None
        return [_copy(request.failure) for _ in commands]

    def probe(self) -> None:
        self.call(PING)

    async def acall(self, command: Command[Any]) -> Any:
        loop = running_loop()
        assert loop is not None
        if self.process.dead:
            raise Died
        answered = loop.create_future()

        def set_answered() -> None:
            if not answered.done():
                answered.set_result(None)

        def ring() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(set_answered)

        request = Request(self.server, self.process, [command], ring)
        timer = loop.call_later(DEFAULT.socket_timeout, set_answered)
        try:
            await answered
        finally:
            timer.cancel()
            request.give_up()
        if request.replies is None:
            assert request.failure is not None
            try:
                raise request.failure
            finally:
                del request  # see call
        return request.replies[0]

    def prepare(self, name: str, keys: tuple[str, ...]) -> PreparedCommand:
        return SimulatedCommand(self, name, keys)

    def subscriber(self, handler: MessageHandler) -> SimulatedSubscriber:
        return SimulatedSubscriber(self.server, self.process, handler)


class SimulatedCommand(PreparedCommand):
    """A command whose posted request is on its way while its caller continues."""

    __slots__ = ()

    _backend: SimulatedBackend

    def post(self, first: str, rest: Any, on_reply: Callable[[Any], object]) -> None:
        server, process = self._backend.server, self._backend.process
        if process.dead:
            raise Died
        reported: list[bool] = []

        def report() -> None:
            if not reported:
                reported.append(True)
                on_reply(None if request.replies is None else request.replies[0])
                request.give_up()

        request = Request(server, process, [self._as_command(first, rest)], report)
        server.scheduler.at(server.scheduler.now + DEFAULT.socket_timeout, report, process)


def _copy(failure: LockBackendError) -> LockBackendError:
    return LockBackendError(
        str(failure.args[0]), outcome_unknown=failure.outcome_unknown, transient=True, unreachable=True
    )


class SimulatedSubscriber(Subscriber):
    """A process's subscription: it delivers messages with delay, and none while it is disconnected."""

    def __init__(self, server: Server, process: Process, handler: MessageHandler) -> None:
        self.server = server
        self.process = process
        self.handler = handler
        self.generation = 0
        self.channels: set[str] = set()
        self.wanted: set[str] = set()
        self._renew()
        server.inboxes.append(self)

    def _renew(self) -> None:
        self.id = f"{self.process.name}.{self.process.next_number()}"

    def channel_name(self, channel: str) -> str:
        return channel + self.id if channel in self.channels else ""

    def open(self, channel: str, callback: Callable[[], object]) -> None:
        self.wanted.add(channel)
        if channel in self.channels:
            callback()
        else:
            self._subscribe(channel, callback)

    def _subscribe(self, channel: str, callback: Callable[[], object]) -> None:
        scheduler, generation = self.server.scheduler, self.generation

        def confirmed() -> None:
            if self.generation == generation and not self.server.down:
                self.channels.add(channel)
                self.server.store.inboxes[channel + self.id] = partial(self._told, generation)
            callback()

        if self.server.faults.loses_subscription():
            return
        scheduler.at(scheduler.now + self.server.faults.trip(), confirmed, self.process)

    def _told(self, generation: int, number: str, lock: str) -> None:
        """Receive a message that the server has published."""

        def deliver() -> None:
            if generation == self.generation:
                self.handler.on_message(number, lock)

        if not self.server.faults.loses_message(self):
            scheduler = self.server.scheduler
            scheduler.at(scheduler.now + self.server.faults.trip(), deliver, self.process)

    def silence(self) -> None:
        """End the subscription in the server."""
        for channel in sorted(self.channels):
            self.server.store.inboxes.pop(channel + self.id, None)
        self.channels.clear()
        self.generation += 1

    def reset(self) -> None:
        """Close the connection. The process subscribes again later; messages in between are lost."""
        if self.channels or self.wanted:
            self.silence()
            scheduler, generation = self.server.scheduler, self.generation
            scheduler.at(scheduler.now + self.server.faults.reconnect(), lambda: self._again(generation), self.process)

    def _again(self, generation: int) -> None:
        if generation != self.generation:
            return
        if self.server.down:
            self.reset()
            return
        for channel in sorted(self.wanted):
            self.channels.add(channel)
            self.server.store.inboxes[channel + self.id] = partial(self._told, generation)
        self.handler.on_reconnect()

    def after_fork_in_child(self) -> None:
        """Forget the parent's subscription, which continues."""
        self.channels, self.wanted = set(), set()
        self.generation += 1
        self._renew()

"""The broker and the result backend of the job world."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.process import Process
    from tests.simulation.scheduler import Scheduler


@dataclass
class Message:
    id: str
    args: tuple[Any, ...]
    headers: dict[str, Any]
    tries: int
    due: float
    redelivered: bool = False
    counted: bool = False
    """Whether a chord needs its result."""
    expires: float | None = None


class Broker:
    """Delivers due messages to idle workers."""

    def __init__(self, scheduler: Scheduler, deliver: Callable[[Process, Message], object]) -> None:
        self.scheduler = scheduler
        self.messages: list[Message] = []
        self.past: list[Message] = []
        self.sent: set[str] = set()
        self.workers: list[Process] = []
        self._deliver = deliver

    def send(self, message: Message) -> None:
        self.messages.append(message)
        self.sent.add(message.id)
        self.scheduler.at(max(message.due, self.scheduler.now), self.dispatch)

    def send_again(self, message: Message, after: float = 0.0) -> None:
        """Redeliver a message that wasn't acknowledged, was rejected with requeue, or is duplicated."""
        self.send(replace(message, redelivered=True, due=self.scheduler.now + after))

    def dispatch(self) -> None:
        random = self.scheduler.random
        while True:
            idle = [worker for worker in self.workers if not worker.dead and not worker.busy]
            due = [message for message in self.messages if message.due <= self.scheduler.now]
            if not idle or not due:
                return
            message = random.choice(due)
            self.messages.remove(message)
            self.past.append(message)
            self._deliver(random.choice(idle), message)


@dataclass
class Results:
    """A result backend."""

    metas: dict[str, dict[str, Any]] = field(default_factory=dict)

    def get_task_meta(self, id: str) -> dict[str, Any]:
        return self.metas.get(id, {"status": "PENDING", "result": None})

    def get_state(self, id: str) -> str:
        return str(self.get_task_meta(id)["status"])

    def mark_as_revoked(self, id: str, reason: str, **_: Any) -> None:
        self.store(id, "REVOKED", reason)

    def store(self, id: str, status: str, result: Any) -> None:
        self.metas[id] = {"status": status, "result": result}

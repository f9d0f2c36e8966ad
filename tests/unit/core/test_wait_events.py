"""The events that waiters wait for."""

from __future__ import annotations

import asyncio

import pytest

from django_redis_locks.core import clock
from django_redis_locks.core.wait_events import TaskEvent, ThreadEvent
from django_redis_locks.testing import ManualClock
from tests.unit.engine.queue_fixtures import SOON


def test_thread_event_set_twice_ends_one_wait(virtual_time: ManualClock) -> None:
    event = ThreadEvent()
    event.set()
    event.set()
    begin = clock.now()
    event.wait(60)
    assert clock.now() == begin
    event.wait(SOON)
    assert clock.now() == pytest.approx(begin + SOON)


def test_task_event_set_before_a_wait_ends_it() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        event = TaskEvent(loop, lambda at, callback: loop.call_later(at - clock.now(), callback).cancel)
        event.set()
        await asyncio.sleep(0)
        await asyncio.wait_for(event.wait(60), 20)
        begin = clock.now()
        await asyncio.wait_for(event.wait(SOON), 20)
        assert clock.now() - begin >= SOON * 0.9

    asyncio.run(main())

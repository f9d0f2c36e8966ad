"""A task with its own ``__call__`` runs under its lock."""

from __future__ import annotations

from typing import Any

import pytest
from celery import Celery, Task

from celery_locks import SingletonTask
from tests.unit.celery_locks.conftest import MEMORY


class CallsRun(Task):
    """As in Flask's documentation."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return "context", self.run(*args, **kwargs)


class CallsSuper(Task):
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return "context", super().__call__(*args, **kwargs)


class Before(CallsRun, SingletonTask):
    pass


class Behind(SingletonTask, CallsRun):
    pass


class Around(CallsSuper, SingletonTask):
    pass


@pytest.mark.parametrize("base", [Before, Behind, Around])
def test_task_with_its_own_call_method_runs_under_its_lock(base: type, settings: Any) -> None:
    """[K1] In any order of the base classes; it is called once."""
    settings.REDIS_LOCKS = MEMORY
    app = Celery("calls", broker="memory://", set_as_current=False)

    @app.task(base=base, bind=True, lock_eager=True, shared=False)
    def fence(self: Any) -> Any:
        return self.lock.fence

    first, second = (fence.apply(throw=True).get() for _ in range(2))
    assert first[0] == "context"
    assert second[1] > first[1]

"""Types of the base classes of tasks, checked by `make types` with mypy and pyright. This file isn't run.

A line with `type: ignore` and `pyright: ignore` must be an error for both; otherwise the comment is reported as unused.
"""

from __future__ import annotations

from typing import assert_type

from celery import shared_task
from celery.result import AsyncResult

from celery_locks import IdempotentTask, SingletonTask

# A class keeps its arguments and its result


class Nightly(SingletonTask[[int], str]):
    name = "nightly"
    lock_on_duplicate = "raise"
    unique_until = "forever"  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]

    def run(self, size: int) -> str:
        return "x" * size


assert_type(Nightly().delay(1), AsyncResult[str])
assert_type(Nightly()(1), str)
Nightly().delay("1")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


# A function keeps them if the type parameters are given: Celery's stubs don't infer them from the function


@shared_task(base=IdempotentTask[[int, int], int], idempotency_ttl=60)
def add(a: int, b: int) -> int:
    return a + b


@shared_task(base=SingletonTask, lock_key="{a}")
def unchecked(a: int) -> int:
    return a


assert_type(add.delay(1, 2), AsyncResult[int])
add.delay(1)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
unchecked.delay("1")


async def submit() -> None:
    assert_type(await add.adelay(1, 2), AsyncResult[int])

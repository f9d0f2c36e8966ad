"""Runs one script in threads or in tasks: with the synchronous methods, or the asynchronous ones."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from tests.simulation.scheduler import current


class ThreadFace:
    """The synchronous methods. They never suspend, so a thread runs a script to its end."""

    @staticmethod
    async def call(thing: Any, method: str, *arguments: Any, **options: Any) -> Any:
        return getattr(thing, method)(*arguments, **options)

    @staticmethod
    async def enter(thing: Any) -> Any:
        return thing.__enter__()

    @staticmethod
    async def leave(thing: Any, error: BaseException | None = None) -> None:
        thing.__exit__(type(error) if error else None, error, None)

    @staticmethod
    async def sleep(seconds: float) -> None:
        current().sleep(seconds)


class TaskFace:
    @staticmethod
    async def call(thing: Any, method: str, *arguments: Any, **options: Any) -> Any:
        return await getattr(thing, f"a{method}")(*arguments, **options)

    @staticmethod
    async def enter(thing: Any) -> Any:
        return await thing.__aenter__()

    @staticmethod
    async def leave(thing: Any, error: BaseException | None = None) -> None:
        await thing.__aexit__(type(error) if error else None, error, None)

    @staticmethod
    async def sleep(seconds: float) -> None:
        await asyncio.sleep(seconds)


Face = ThreadFace | TaskFace


def run_in_thread(script: Coroutine[Any, Any, object]) -> None:
    try:
        script.send(None)
    except StopIteration:
        return
    raise AssertionError("a thread awaits")

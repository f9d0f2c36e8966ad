"""A counter without atomics: a process that doesn't hold the lock alone loses an update.

    python -m tests.contract.shared_counter URL FILE CONTENDERS ROUNDS sync|async

is one of the contending processes; it prints "ready", and begins after a line of input.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from pathlib import Path

from django_redis_locks import Lock, locks


class Counter:
    """A number in a file, which is read, and written one higher. Beside it the fences of all writes, in order."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def reset(self) -> None:
        self._path.write_text("0")

    @property
    def value(self) -> int:
        return int(self._path.read_text().split()[0])

    @property
    def fences(self) -> list[int]:
        return [int(fence) for fence in self._path.read_text().split()[1:]]

    def read(self) -> tuple[int, list[int]]:
        return self.value, self.fences

    def write(self, value: int, fences: list[int]) -> None:
        self._path.write_text(" ".join(map(str, [value, *fences])))


def work(lock: Lock, counter: Counter, rounds: int) -> None:
    for _ in range(rounds):
        with lock as grant:
            value, fences = counter.read()
            counter.write(value + 1, [*fences, grant.fence or 0])


async def awork(lock: Lock, counter: Counter, rounds: int) -> None:
    for _ in range(rounds):
        async with lock as grant:
            value, fences = counter.read()
            await asyncio.sleep(0)
            counter.write(value + 1, [*fences, grant.fence or 0])


def main(url: str, file: str, contenders: str, rounds: str, face: str) -> None:
    locks.configure({"default": {"LOCATION": url}})
    lock, counter = locks.lock("fuzz", wait=60), Counter(Path(file))

    async def tasks() -> None:
        await asyncio.gather(*(awork(lock, counter, int(rounds)) for _ in range(int(contenders))))

    print("ready", flush=True)  # noqa: T201
    input()
    if face == "async":
        asyncio.run(tasks())
    else:
        threads = [threading.Thread(target=work, args=(lock, counter, int(rounds))) for _ in range(int(contenders))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


if __name__ == "__main__":
    main(*sys.argv[1:])

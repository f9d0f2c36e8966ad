"""The memory backend is the specification of every command, so Redis must give its answers.

A random sequence of commands, with replays as late copies of a request would make them, drives both; the parsed answers
are compared, and so are the messages to the inboxes. ``DIFFERENTIAL_SEED=…`` repeats a run.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import redis

from tests.contract.matrix import PATIENCE
from tests.probes.commands import (
    BROADCAST,
    INBOXES,
    KINDS,
    NOT_COMPARED,
    STEP_NAMES,
    RandomCommands,
    Side,
    alike,
    kind_of,
)
from tests.probes.permit_commands import KINDS_OF_REPLIES, PermitSide, RandomPermitCommands, kind_of_reply

STEPS = 20_000


@contextmanager
def subscribed(direct: redis.Redis) -> Iterator[Callable[[], list[str]]]:
    """Subscribe to the channels in Redis. Yields a function that returns the messages since its last call."""
    with direct.pubsub(ignore_subscribe_messages=True) as inbox:
        inbox.subscribe(*INBOXES[:-1], BROADCAST, "the end")
        for _ in range(len(INBOXES) + 1):
            inbox.get_message(timeout=PATIENCE)

        def received() -> list[str]:
            direct.publish("the end", "")
            messages = []
            while (message := inbox.get_message(timeout=PATIENCE)) is not None and message["channel"] != b"the end":
                channel = message["channel"].decode()
                receivers = INBOXES[:-1] if channel == BROADCAST else [channel]
                messages += [comparable(inbox, *message["data"].decode().split(" ", 1)) for inbox in receivers]
            return messages

        yield received


def comparable(inbox: str, word: str, lock: str) -> str:
    """A message without the fence of a grant."""
    return f"{inbox} {word.split(',')[:2]} {lock}"


def test_redis_backend_replies_like_the_memory_backend(redis_url: str, settings: Any) -> None:
    """[H2] [H3] [H9] [H19] [L12] Twenty thousand random commands, with repetitions and ends of leases, give the same
    replies, messages and indexes."""
    seed = int(os.environ.get("DIFFERENTIAL_SEED") or random.SystemRandom().randrange(2**32))
    settings.REDIS_LOCKS = {
        "memory": {"BACKEND": "django_redis_locks.backends.memory.MemoryBackend", "LOCATION": f"differential {seed}"},
        "redis": {"LOCATION": redis_url},
    }
    ours, theirs = Side("memory"), Side("redis")
    received: list[str] = []
    for inbox in INBOXES[:-1]:
        ours.subscribe(inbox, lambda *message, inbox=inbox: received.append(comparable(inbox, *message)))
    commands = RandomCommands(random.Random(seed), ours, theirs)
    seen: set[Any] = set()
    messages = 0
    indexes = commands.indexes
    with redis.Redis.from_url(redis_url) as direct, subscribed(direct) as received_there:
        for step in range(STEPS):
            if commands.chance.random() < 0.05:  # the end of a lease
                key = commands.chance.choice(commands.locks).keys.lock
                ours.end_lease(key)
                direct.pexpire(key, 0)
                continue
            mine, other = commands.next()
            answers = ours.execute(mine), theirs.execute(other)
            about = f"step {step}, {mine}: {answers}; repeat it with DIFFERENTIAL_SEED={seed}"
            assert alike(*answers), about
            commands.learn(mine.keys[0], answers[0])
            commands.learn_members(mine, direct.get)
            if answers[0] == 2:  # perhaps granted to a waiter
                commands.learn_fence(mine.keys[0], direct.get(mine.keys[0]))
            seen.add(kind_of(mine.name, answers[0]))
            if step % 100 == 0 or step == STEPS - 1:
                assert received == received_there(), about
                messages += len(received)
                received.clear()
                for index in indexes:
                    listed = {lock.decode() for lock in direct.zrange(index, 0, -1)}
                    assert ours.listed(index) == listed, about
    assert seen == KINDS, f"not seen: {KINDS - seen}, new: {seen - KINDS}; DIFFERENTIAL_SEED={seed}"
    assert messages > 100


def test_redis_backend_grants_permits_like_the_memory_backend(redis_url: str, settings: Any) -> None:
    """[H2] [H3] [H9] [L37] Twenty thousand random commands of semaphores and read-write locks, with repetitions and ends of
    leases, give the same replies, messages, holds and indexes."""
    seed = int(os.environ.get("DIFFERENTIAL_SEED") or random.SystemRandom().randrange(2**32))
    settings.REDIS_LOCKS = {
        "memory": {"BACKEND": "django_redis_locks.backends.memory.MemoryBackend", "LOCATION": f"permits {seed}"},
        "redis": {"LOCATION": redis_url},
    }
    ours, theirs = PermitSide("memory"), PermitSide("redis")
    received: list[str] = []
    for inbox in INBOXES[:-1]:
        ours.subscribe(inbox, lambda *message, inbox=inbox: received.append(comparable(inbox, *message)))
    commands = RandomPermitCommands(random.Random(seed), ours, theirs)
    seen: set[Any] = set()
    messages = 0
    with redis.Redis.from_url(redis_url) as direct, subscribed(direct) as received_there:
        for step in range(STEPS):
            if commands.chance.random() < 0.05:  # the end of a lease
                lock, ends, token = commands.hold()
                ours.end_hold(lock, token)
                if direct.zadd(ends, {token: 1}, xx=True, ch=True):
                    *state, _, last = direct.hget(lock, "permits").split()
                    direct.hset(lock, "permits", b" ".join([*state, b"1", last]))
                continue
            mine, other = commands.next()
            replies = ours.raw(mine), theirs.raw(other)
            states = ours.state(mine.keys[0]), theirs.state(mine.keys[0])
            answers = ours.parsed(mine, replies[0]), theirs.parsed(other, replies[1])
            about = f"step {step}, {mine}: {answers}, {states}; repeat it with DIFFERENTIAL_SEED={seed}"
            assert alike(*answers), about
            assert alike(*states), about
            seen.add(kind_of_reply(mine.name, answers[0]))
            if step % 100 == 0 or step == STEPS - 1:
                assert received == received_there(), about
                messages += len(received)
                received.clear()
                for index in commands.indexes:
                    listed = {lock.decode() for lock in direct.zrange(index, 0, -1)}
                    assert ours.listed(index) == listed, about
    assert seen == KINDS_OF_REPLIES, f"not seen: {KINDS_OF_REPLIES - seen}, new: {seen - KINDS_OF_REPLIES}; {seed}"
    assert messages > 100


def test_every_step_is_among_the_random_commands_or_left_to_the_contract_tests() -> None:
    """A new step is added to one of them."""
    assert {name for name, *_ in KINDS | KINDS_OF_REPLIES} | NOT_COMPARED == STEP_NAMES

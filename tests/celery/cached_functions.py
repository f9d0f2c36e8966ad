"""Cached functions that workers refresh. The first argument of each is the tag of its test."""

from __future__ import annotations

import functools
import os
import uuid
from typing import Any

from django.conf import settings

from django_redis_locks.cache import cached
from tests.celery.journal import Journal
from tests.celery.tasks import SHORT_LEASE


@functools.cache
def journal_of(url: str, pid: int) -> Journal:
    return Journal(url)


def record_load(tag: str, *, wait: bool) -> str:
    journal = journal_of(settings.LOADS_JOURNAL, os.getpid())
    run = uuid.uuid4().hex[:8]
    journal.write("begin", tag, run=run)
    if wait:
        journal.pass_gate(tag)
    journal.write("end", tag, run=run)
    return run


@cached("gated:{tag}", ttl=60, stale=600, refresh="celery", start_within=SHORT_LEASE)
def gated(tag: str) -> str:
    """Loads until the test opens the gate."""
    return record_load(tag, wait=True)


@cached("quick:{tag}:{number}", ttl=60, stale=600, refresh="celery")
def quick(tag: str, number: int = 1) -> str:
    return record_load(tag, wait=False)


@cached("async_quick:{tag}", ttl=60, stale=600, refresh="celery")
async def async_quick(tag: str) -> str:
    return record_load(tag, wait=False)


class Shop:
    """A class with a cached class method."""

    @cached("best:{cls.__name__}:{tag}", ttl=60, stale=600, refresh="celery")
    @classmethod
    def best(cls, tag: str) -> str:
        return record_load(tag, wait=False)


def functions() -> list[Any]:
    return [quick, async_quick, Shop.best]

"""Cached functions that workers refresh. The first argument of each is the mark of its test."""

from __future__ import annotations

import functools
import os
import uuid
from typing import Any

from django.conf import settings

from django_redis_locks.cache import cached
from tests.celery.journal import Journal
from tests.celery.tasks import BRIEF


@functools.cache
def journal_of(url: str, pid: int) -> Journal:
    return Journal(url)


def write_down(who: str, *, wait: bool) -> str:
    journal = journal_of(settings.LOADS_JOURNAL, os.getpid())
    run = uuid.uuid4().hex[:8]
    journal.write("begin", who, run=run)
    if wait:
        journal.pass_gate(who)
    journal.write("end", who, run=run)
    return run


@cached("held:{who}", ttl=60, stale=600, refresh="celery", start_within=BRIEF)
def held(who: str) -> str:
    """Loads until the test opens the gate."""
    return write_down(who, wait=True)


@cached("quick:{who}:{number}", ttl=60, stale=600, refresh="celery")
def quick(who: str, number: int = 1) -> str:
    return write_down(who, wait=False)


@cached("aquick:{who}", ttl=60, stale=600, refresh="celery")
async def aquick(who: str) -> str:
    return write_down(who, wait=False)


class Shop:
    """Its class's method is found by its class."""

    @cached("best:{cls.__name__}:{who}", ttl=60, stale=600, refresh="celery")
    @classmethod
    def best(cls, who: str) -> str:
        return write_down(who, wait=False)


def functions() -> list[Any]:
    return [quick, aquick, Shop.best]

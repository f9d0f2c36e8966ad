"""Visits to several locks at once, in the lock world. The rules see a visit to each of them, which begin and end together."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from django_redis_locks import LockBackendError, LockLost, LockNotAcquired
from tests.simulation.scheduler import Interrupted

if TYPE_CHECKING:
    from collections.abc import Callable

    from django_redis_locks import MultiGrant, MultiLock
    from tests.simulation.faces import Face
    from tests.simulation.lock_plans import Visit
    from tests.simulation.lock_rules import LockRules
    from tests.simulation.process import Process
    from tests.simulation.visit_rules import Section


async def visit_several(rules: Any, process: Process, face: type[Face], visit: Visit) -> None:
    """Acquire all locks of a visit, hold them, and release them."""
    sections = [rules.begins(process, replace(visit, key=key), several=True) for key in visit.keys]
    try:
        await _visit(rules, process, face, visit, sections)
    except (Interrupted, asyncio.CancelledError):
        for section in sections:
            rules.interrupted(section)
    finally:
        for section in sections:
            rules.ends(section)


async def _visit(rules: LockRules, process: Process, face: type[Face], visit: Visit, sections: list[Section]) -> None:
    lock = process.locks.multi_lock(*visit.keys, expire=visit.expire, wait=visit.wait)
    try:
        grant = await _acquire(face, lock, visit)
    except LockBackendError as error:
        _failed(rules, sections, error)
        return
    rules.several_waited(sections)
    if grant is None:
        for section in sections:
            rules.refused(section, None)
        return
    for section in sections:
        rules.entered(section, grant.grants[section.visit.key])
    error: BaseException | None = None
    try:
        for step in visit.steps:
            await _step(rules, face, sections, grant, *step)
            for section in sections:
                rules.inside(section)
    except LockLost as failure:
        _lost(rules, sections, failure)
    except BaseException as failure:
        error = failure
        raise
    finally:
        release = partial(face.leave, lock, error) if visit.block else partial(face.call, grant, "release")
        try:
            await _release(rules, sections, release, error is not None)
        finally:
            del error  # a reference cycle of exception and frame would keep the grant


async def _acquire(face: type[Face], lock: MultiLock, visit: Visit) -> MultiGrant | None:
    grant: MultiGrant | None
    try:
        grant = await (face.enter(lock) if visit.block else face.call(lock, "acquire", timeout=visit.wait))
    except LockNotAcquired:
        grant = None
    return grant


async def _release(rules: LockRules, sections: list[Section], release: Callable[[], Any], fails: bool) -> None:
    for section in sections:
        rules.leaving(section)
    try:
        await release()
    except LockLost as error:
        _lost(rules, sections, error)
    except LockBackendError as error:
        _failed(rules, sections, error)
    else:
        for section in sections:
            if not fails:
                rules.released(section)


def _failed(rules: LockRules, sections: list[Section], error: LockBackendError) -> None:
    for section in sections:
        rules.failed(section, error)


def _lost(rules: LockRules, sections: list[Section], error: LockLost) -> None:
    """At least one of the locks is lost."""
    lost = [section for section in sections if section.grant is not None and section.grant.lost]
    assert lost, "no lock is lost"
    for section in lost:
        rules.lost(section, error)


async def _step(
    rules: LockRules, face: type[Face], sections: list[Section], grant: MultiGrant, kind: str, amount: float
) -> None:
    try:
        if kind == "stay":
            await face.sleep(amount)
        elif kind == "extend":
            await face.call(grant, "extend", amount)
        elif kind == "confirm":
            await face.call(grant, "ensure_held", confirm=True)
    except LockBackendError as error:
        _failed(rules, sections, error)

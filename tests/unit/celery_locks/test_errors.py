"""The public errors."""

from __future__ import annotations

import pickle

import celery_locks
from celery_locks import DuplicateTask, IdempotencyKeyReused

ERRORS = {
    DuplicateTask: DuplicateTask("text", task_id="id", state="queued", key="k", name="n", alias="default"),
    IdempotencyKeyReused: IdempotencyKeyReused("text", key="k", name="n", alias="default"),
}


def test_every_public_error_pickles() -> None:
    """[C4] An error that doesn't pickle ends a whole worker."""
    public = [getattr(celery_locks, name) for name in celery_locks.__all__]
    assert {item for item in public if isinstance(item, type) and issubclass(item, Exception)} == {*ERRORS}
    for error in ERRORS.values():
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))

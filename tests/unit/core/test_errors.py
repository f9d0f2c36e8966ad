"""The tree of errors: bases, attributes, pickling."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

from django_redis_locks.core import errors
from django_redis_locks.core.errors import LockBackendError, LockError, LockNotAcquired, StaleGrant
from django_redis_locks.core.holder import Holder

TREE = {
    LockNotAcquired: (LockError,),
    errors.LockAlreadyHeld: (LockError,),
    errors.LockNotOwned: (LockError, RuntimeError),
    errors.LockLost: (LockError,),
    StaleGrant: (LockError,),
    errors.LockKeyError: (LockError, ValueError),
    LockBackendError: (LockError,),
}
DETAILS_OF_LOCK = {"key": "order:42", "name": "order", "alias": "payments"}
HOLDER = Holder(fence=7, since=1.5, lease_left=3.0, host="web-1", pid=12, thread="MainThread", name="order")
DETAILS: dict[type[LockError], dict[str, Any]] = {
    LockNotAcquired: {"waited": 0.5, "retry_after": 12.25, "holder": HOLDER},
    StaleGrant: {"fence": 7, "stored": 8},
    LockBackendError: {"outcome_unknown": True, "transient": True, "on_reused_connection": True},
}


def make(kind: type[LockError]) -> LockError:
    return kind("it went wrong", **DETAILS_OF_LOCK, **DETAILS.get(kind, {}))


def test_every_error_is_documented() -> None:
    """Every error of the module is in the table of these tests, and in the tree in the module's docstring."""
    found = {kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, LockError)}
    assert found == {LockError, *TREE}
    assert all(kind.__name__ in (errors.__doc__ or "") for kind in found)


@pytest.mark.parametrize("kind", TREE)
class TestEvery:
    def test_error_has_its_documented_bases_and_no_others(self, kind: type[LockError]) -> None:
        assert all(issubclass(kind, base) for base in TREE[kind])
        assert not any(issubclass(kind, other) for other in TREE if other is not kind)

    def test_error_keeps_its_attributes_and_does_not_show_the_key(self, kind: type[LockError]) -> None:
        """A key may contain personal data. All attributes are optional."""
        error = make(kind)
        expected = {**DETAILS_OF_LOCK, **DETAILS.get(kind, {})}
        assert {name: getattr(error, name) for name in expected} == expected
        assert "42" not in f"{error} {error!r}"
        bare = kind("it went wrong")
        assert (bare.key, bare.name, bare.alias) == (None, None, None)
        assert str(bare) == "it went wrong"
        assert str(kind()) == ""

    def test_error_survives_pickle_and_copy(self, kind: type[LockError]) -> None:
        """Celery and multiprocessing send it to another process with all its attributes."""
        error = make(kind)
        error.add_note("a note")
        pickled = [pickle.loads(pickle.dumps(error, protocol)) for protocol in range(pickle.HIGHEST_PROTOCOL + 1)]
        for twin in (*pickled, copy.copy(error), copy.deepcopy(error)):
            assert type(twin) is kind
            assert twin.args == error.args
            assert vars(twin) == vars(error)
            assert str(twin) == str(error)


class OutOfStock(LockNotAcquired):
    """A project's own error, with an argument of its own."""

    def __init__(self, article: str) -> None:
        super().__init__(f"{article} is being sold", key="article:1")
        self.article = article


def test_subclass_with_other_arguments_pickles() -> None:
    """Pickling doesn't depend on the arguments of `__init__`."""
    twin = pickle.loads(pickle.dumps(OutOfStock("bicycle")))
    assert (str(twin), twin.article, twin.key, twin.waited) == ("bicycle is being sold", "bicycle", "article:1", 0.0)


def test_backend_error_names_lock_and_alias_once_known() -> None:
    """The message names the lock and the alias once both are known."""
    error = LockBackendError("can't reach it")
    assert str(error) == "can't reach it"
    error.key, error.name, error.alias = DETAILS_OF_LOCK["key"], DETAILS_OF_LOCK["name"], DETAILS_OF_LOCK["alias"]
    assert str(error) == "lock 'order', alias 'payments': can't reach it"


def test_error_without_details_has_defaults() -> None:
    error = LockNotAcquired("busy")
    assert (error.waited, error.retry_after, error.holder) == (0.0, 0.0, None)
    failure = LockBackendError("down")
    assert (failure.outcome_unknown, failure.transient, failure.on_reused_connection) == (False, False, False)

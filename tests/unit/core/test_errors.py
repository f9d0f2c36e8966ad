"""The tree of errors: what each is, what it carries, and that it survives a trip to another process."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

from django_redis_locks.core import errors
from django_redis_locks.core.errors import (
    LockAlreadyHeld,
    LockBackendError,
    LockError,
    LockKeyError,
    LockLost,
    LockNotAcquired,
    LockNotOwned,
    StaleGrant,
)
from django_redis_locks.core.holder import Holder

TREE = {
    LockNotAcquired: (LockError,),
    LockAlreadyHeld: (LockError,),
    LockNotOwned: (LockError, RuntimeError),
    LockLost: (LockError,),
    StaleGrant: (LockError,),
    LockKeyError: (LockError, ValueError),
    LockBackendError: (LockError,),
}
ABOUT = {"key": "order:42", "name": "order", "alias": "payments"}
HOLDER = Holder(fence=7, since=1.5, lease_left=3.0, host="web-1", pid=12, thread="MainThread", name="order")
DETAILS: dict[type[LockError], dict[str, Any]] = {
    LockNotAcquired: {"waited": 0.5, "retry_after": 12.25, "holder": HOLDER},
    StaleGrant: {"fence": 7, "stored": 8},
    LockBackendError: {"unanswered": True, "passing": True, "stale": True},
}


def make(kind: type[LockError]) -> LockError:
    return kind("it went wrong", **ABOUT, **DETAILS.get(kind, {}))


def test_the_tree_is_complete() -> None:
    """Every error of the module is in the table of these tests, and in the tree that its docstring draws."""
    found = {kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, LockError)}
    assert found == {LockError, *TREE}
    assert all(kind.__name__ in (errors.__doc__ or "") for kind in found)


@pytest.mark.parametrize("kind", TREE)
class TestEvery:
    def test_bases(self, kind: type[LockError]) -> None:
        """It is what its docstring says, so that `except LockError` catches it, and not another error's kind."""
        assert all(issubclass(kind, base) for base in TREE[kind])
        assert not any(issubclass(kind, other) for other in TREE if other is not kind)

    def test_attributes(self, kind: type[LockError]) -> None:
        """It keeps key, name and alias, and its own details."""
        error = make(kind)
        assert {name: getattr(error, name) for name in ABOUT} == ABOUT
        for name, value in DETAILS.get(kind, {}).items():
            assert getattr(error, name) == value

    def test_without_attributes(self, kind: type[LockError]) -> None:
        """All of them are optional."""
        error = kind("it went wrong")
        assert (error.key, error.name, error.alias) == (None, None, None)
        assert str(error) == "it went wrong"
        assert str(kind()) == ""

    @pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
    def test_pickles(self, kind: type[LockError], protocol: int) -> None:
        """Celery and multiprocessing carry it to another process with everything it says."""
        error = make(kind)
        error.add_note("a note")
        twin = pickle.loads(pickle.dumps(error, protocol))
        assert type(twin) is kind
        assert twin.args == error.args
        assert vars(twin) == vars(error)
        assert str(twin) == str(error)

    def test_copies(self, kind: type[LockError]) -> None:
        """So does `copy`."""
        error = make(kind)
        for twin in (copy.copy(error), copy.deepcopy(error)):
            assert vars(twin) == vars(error)
            assert str(twin) == str(error)

    def test_the_key_is_not_in_the_message(self, kind: type[LockError]) -> None:
        """A filled key is personal data: neither str nor repr shows it."""
        error = make(kind)
        assert "42" not in f"{error} {error!r}"


class OutOfStock(LockNotAcquired):
    """A project's own error, with an argument of its own."""

    def __init__(self, article: str) -> None:
        super().__init__(f"{article} is being sold", key="article:1")
        self.article = article


def test_a_subclass_with_other_arguments_pickles() -> None:
    """Pickling doesn't depend on what `__init__` takes."""
    twin = pickle.loads(pickle.dumps(OutOfStock("bicycle")))
    assert (str(twin), twin.article, twin.key, twin.waited) == ("bicycle is being sold", "bicycle", "article:1", 0.0)


def test_a_backend_error_names_lock_and_alias() -> None:
    """Which lock of which alias met a store that is down is in the message, once both are known."""
    error = LockBackendError("can't reach it")
    assert str(error) == "can't reach it"
    error.key, error.name, error.alias = ABOUT["key"], ABOUT["name"], ABOUT["alias"]
    assert str(error) == "lock 'order', alias 'payments': can't reach it"


def test_defaults_of_a_refusal() -> None:
    """A refusal without details waited for nothing and knows no holder."""
    error = LockNotAcquired("busy")
    assert (error.waited, error.retry_after, error.holder) == (0.0, 0.0, None)
    failure = LockBackendError("down")
    assert (failure.unanswered, failure.passing, failure.stale) == (False, False, False)

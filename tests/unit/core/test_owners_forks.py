"""A forked child shares neither the token secrets nor the grants of its parent."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Any
from unittest.mock import Mock

import pytest

from django_redis_locks import Lock, LockLost, locks
from django_redis_locks.core import forks
from django_redis_locks.core.tokens import Tokens, mint_token
from tests.forks import in_child

_numbers = count()


@pytest.fixture
def lock() -> Lock:
    return locks.lock(f"forks:{next(_numbers)}", expire=30, wait=0)


# Tokens


def test_tokens_of_many_threads_differ() -> None:
    """Tokens of one process differ by their count, those of two processes by their prefix."""
    assert len({mint_token() for _ in range(1000)}) == 1000
    assert Tokens().mint() != Tokens().mint()


# Forks


def _lock() -> None:
    locks.lock(f"unseen:{next(_numbers)}").acquire().release()


def _put() -> None:
    locks.record(f"unseen:{next(_numbers)}").put(None, {})


def test_forked_child_holds_no_lock_of_its_parent(lock: Lock) -> None:
    """[H18] [F16] [L47] The grant is lost, not owned, and released without a request, with one warning. The child's
    tokens have another prefix."""
    ours = mint_token()

    def look() -> None:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert [grant.lost, grant.remaining(), lock.owned(), repr(grant)[-5:-1]] == [True, 0.0, False, "lost"]
            with pytest.raises(LockLost), grant:
                pytest.fail("the parent's grant is entered")
            grant.release()
            lock.__exit__(None, None, None)
        assert [(warning.category, "forked" in str(warning.message)) for warning in caught] == [(RuntimeWarning, True)]
        assert mint_token()[:12] != ours[:12]

    with lock as grant:
        in_child(look)
        grant.ensure_held(confirm=True)
        assert lock.owned()


@pytest.fixture
def tokens(monkeypatch: pytest.MonkeyPatch) -> Tokens:
    """The only object that is reset in a child."""
    tokens = Tokens()
    monkeypatch.setattr(forks, "_aware", {tokens})
    monkeypatch.setattr(forks, "known_pid", os.getpid())
    return tokens


def test_fork_without_hooks_changes_the_tokens(tokens: Tokens, monkeypatch: pytest.MonkeyPatch) -> None:
    """[H18] A C extension forks without Python's hooks: the fork is detected by the process id."""
    before = tokens.mint()
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert forks.pid() == forks.known_pid == -1
    after = tokens.mint(), tokens.mint()
    assert forks.pid() == -1
    after = *after, tokens.mint()
    assert len({token[:12] for token in after}) == 1
    assert after[0][:12] != before[:12]


@pytest.mark.parametrize("begin", [_lock, _put], ids=["lock", "record"])
def test_fork_without_hooks_is_detected_by_the_next_command(
    begin: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """[H18] Before its token is created."""
    aware = Mock()
    monkeypatch.setattr(forks, "_aware", {aware})
    monkeypatch.setattr(forks, "known_pid", -1)
    begin()
    aware.after_fork_in_child.assert_called_once_with()
    assert forks.known_pid == os.getpid()


def test_threads_of_a_child_forked_without_hooks_use_no_token_of_the_parent(
    tokens: Tokens, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[H18] One thread changes the secrets while another one creates a token: with a token in common, parent and child
    would each take the other's lock for its own."""
    theirs = tokens.mint()
    changing, minted = threading.Event(), threading.Event()
    urandom = os.urandom

    def slowly(size: int) -> bytes:
        if not changing.is_set():
            changing.set()
            minted.wait(0.5)  # times out if the other thread waits for this one
        return urandom(size)

    def begin() -> list[str]:
        forks.pid()
        return [tokens.mint() for _ in range(3)]

    monkeypatch.setattr(os, "urandom", slowly)
    monkeypatch.setattr(os, "getpid", lambda: -1)
    with ThreadPoolExecutor(1) as first:
        ours = first.submit(begin)
        assert changing.wait(20)
        mine = begin()
        minted.set()
        both = [*mine, *ours.result(20), *begin()]
    assert theirs[:12] not in {token[:12] for token in both}
    assert len(set(both)) == 9

"""The lock outlives the transaction: every shape of a view under ATOMIC_REQUESTS of two databases, and what isn't a view.
The transactions begin in the order in which Django begins them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connections
from django.http import HttpRequest
from django.test import Client, RequestFactory

from django_redis_locks import locks
from tests.django.helpers import in_thread
from tests.django.transaction_log import get, recorded
from tests.django.transaction_views import ASYNC, BODY, helper, log, plain, service, urlpatterns

__all__ = ["urlpatterns"]

pytestmark = pytest.mark.databases("sqlite")

BEGIN = ["BEGIN other", "BEGIN default"]
COMMIT = ["COMMIT default", "COMMIT other"]
ROLLBACK = ["ROLLBACK default", "ROLLBACK other"]
INSIDE = [*BEGIN, BODY, *COMMIT]
UNDONE = [*BEGIN, BODY, *ROLLBACK]


@pytest.fixture(autouse=True)
def atomic_requests(two_databases: object) -> Iterator[None]:
    for alias in ("default", "other"):
        connections.settings[alias]["ATOMIC_REQUESTS"] = True
    with recorded("default", "other", log=log):
        yield


SHAPES = {
    # [D1] acquired before BEGIN, released after COMMIT
    "plain": ["acquire plain", *INSIDE, "release plain"],
    "dispatch": ["acquire dispatch", *INSIDE, "release dispatch"],
    "dispatch-direct": ["acquire dispatch", *INSIDE, "release dispatch"],
    "as-view": ["acquire as view", *INSIDE, "release as view"],
    # [D8] one transaction inside of both locks, which end in the other order
    "stacked": ["acquire outer", "acquire inner", *INSIDE, "release inner", "release outer"],
    "dispatch-twice": ["acquire first", "acquire second", *INSIDE, "release second", "release first"],
    "as-view-of-dispatch": ["acquire as view", "acquire dispatch", *INSIDE, "release dispatch", "release as view"],
    "dispatch-and-get": [
        *["acquire dispatch", *BEGIN, "acquire get", BODY, *COMMIT, "release get", "release dispatch"]
    ],
    # [D7] a view that opted out gets no transaction, above the lock or below; each alias counts for itself
    "opted-out-above": ["acquire optout", "body", "release optout"],
    "opted-out-below": ["acquire optout", "body", "release optout"],
    "opted-out-of-one-above": ["acquire optout", "BEGIN other", "body other", "COMMIT other", "release optout"],
    "opted-out-of-one-below": ["acquire optout", "BEGIN other", "body other", "COMMIT other", "release optout"],
    "dispatch-opted-out-above": ["acquire dispatch", "BEGIN other", "body other", "COMMIT other", "release dispatch"],
    # `method_decorator` puts the user's own set before ours: Django begins the other alias, around the lock
    "dispatch-opted-out-below": ["BEGIN other", "acquire dispatch", "body other", "COMMIT other", "release dispatch"],
    # [D3] a transaction that began before the lock ends before it
    "get": [*BEGIN, "acquire get", BODY, *COMMIT, "release get"],
    "get-direct": [*BEGIN, "acquire get", BODY, *COMMIT, "release get"],
    # [D2] a function that a view calls holds its lock until COMMIT, though it returned long ago
    "calls-service": [*BEGIN, "acquire service", BODY, "back in the view", *COMMIT, "release service"],
    "calls-helper": [*BEGIN, "acquire helper", BODY, *COMMIT, "release helper"],
    "calls-helper-opted-out": ["acquire helper", "body", "release helper"],
    # [D8] the view's transaction is the helper's too, and [D7] a helper begins none for a view that opted out
    "locked-calls-helper": [
        *["acquire view", *BEGIN, "acquire helper", BODY, *COMMIT, "release helper", "release view"]
    ],
    "locked-calls-helper-opted-out": [*["acquire view", "acquire helper", "body", "release helper", "release view"]],
    "method-calls-helper": [
        *["acquire dispatch", *BEGIN, "acquire helper", BODY, *COMMIT, "release helper", "release dispatch"]
    ],
    # [D1] a view that is called again, by a decorator that tries twice, has a transaction again
    "twice": ["acquire retried", *UNDONE, "release retried", "acquire retried", *INSIDE, "release retried"],
}
FAILURES = {
    # [D4] an exception rolls back, and then the lock is released
    "function-fails": (500, ["acquire fails", *UNDONE, "release fails"]),
    # the same of a lock inside Django's transaction, though Django calls nothing back
    "get-fails": (500, [*BEGIN, "acquire get", BODY, *ROLLBACK, "release get"]),
    # an exception that REST framework answers: its `set_rollback` finds the transactions that the lock began
    "rest-get-fails": (404, [*BEGIN, "acquire rest", BODY, *ROLLBACK, "release rest"]),
    "rest-dispatch-fails": (404, ["acquire rest", *UNDONE, "release rest"]),
}


def is_done(name: str) -> None:
    response = get(f"/{name}/")
    assert (response.status_code, response.content) == (200, b"done")


@pytest.mark.parametrize("name", SHAPES)
def test_lock_of_a_view_outlives_its_transactions(name: str) -> None:
    """[D1] [D2] [D3] [D7] [D8]"""
    is_done(name)
    log.equals(*SHAPES[name])


@pytest.mark.parametrize("name", FAILURES)
def test_lock_of_a_view_that_fails_outlives_the_rollback(name: str) -> None:
    """[D1] [D4]"""
    status, expected = FAILURES[name]
    assert get(f"/{name}/").status_code == status
    log.equals(*expected)


@pytest.mark.databases("postgresql", "mariadb")
def test_lock_outlives_transactions_on_a_server() -> None:
    """[D1] [D2] [D3] [D4]"""
    for name in ("plain", "get", "calls-service"):
        is_done(name)
        log.equals(*SHAPES[name])
        log.clear()
    for name in ("function-fails", "get-fails"):
        assert get(f"/{name}/").status_code == 500
        log.equals(*FAILURES[name][1])
        log.clear()


def test_refused_request_begins_no_transaction() -> None:
    """[D1] A request that waits for the lock, or is refused, occupies none."""
    grant = in_thread(locks.lock("plain").acquire)
    assert get("/plain/").status_code == 409
    grant.release()
    log.equals("acquire plain", "release plain")


def test_method_decorator_of_the_bare_decorator_begins_one_transaction() -> None:
    """[D45] `method_decorator(redis_lock)` has neither the same function nor the same plan for each request."""
    is_done("dispatch-bare")
    assert log[0].startswith("acquire ")
    assert log[1:-1] == INSIDE
    assert log[-1].startswith("release ")


class AsksHelper:
    """A middleware that calls a helper when the view is found already."""

    def __init__(self, get_response: Any) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> Any:
        return self.get_response(request)

    def process_view(self, request: HttpRequest, *_: object) -> None:
        helper(request)


def test_helper_of_a_middleware_leaves_the_views_transaction_alone(settings: Any) -> None:
    """[D2] It neither begins nor takes it."""
    settings.MIDDLEWARE = [f"{__name__}.AsksHelper"]
    is_done("plain")
    log.equals("acquire helper", "body", "release helper", *SHAPES["plain"])


def test_asynchronous_view_is_refused_by_django() -> None:
    """[D9] Django raises that they can't be atomic, and the lock doesn't hide it."""
    for name in ASYNC:
        with pytest.raises(RuntimeError, match="You cannot use ATOMIC_REQUESTS with async views"):
            Client().get(f"/{name}/")
        assert log == []


# Elsewhere


def test_call_outside_of_a_request_begins_no_transaction() -> None:
    """[D2] [D11] Of a view that no URL found, or a function; the look at open transactions opens no connection."""
    plain(RequestFactory().get("/"))
    log.equals("acquire plain", "body", "release plain")
    log.clear()
    service()
    log.equals("acquire service", "body", "release service")
    connections.close_all()
    service()
    assert connections["default"].connection is None
    assert connections["other"].connection is None

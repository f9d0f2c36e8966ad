"""Django REST framework: where its handler of exceptions sees a refusal, that answers; elsewhere the lock does."""

from __future__ import annotations

import json
import logging
import pickle
import subprocess
import sys
from typing import Any

import pytest
from django.db import connection
from django.test import Client, override_settings
from rest_framework.exceptions import APIException
from rest_framework.test import APIRequestFactory

from django_redis_locks import LockBackendError, LockKeyError, LockNotAcquired
from django_redis_locks.contrib.drf import Locked, LocksUnavailable
from tests import databases
from tests.django.helpers import Events, held_elsewhere
from tests.django.rest_views import INSIDE, OUTSIDE, OfActions, OfMethod, below, teapot, urlpatterns
from tests.probes.django import events

__all__ = ["urlpatterns"]

DETAIL = "This is being worked on by another request. Try again in a moment."
DOWN = "This is not available for the moment. Try again later."


@pytest.fixture
def handled() -> Any:
    """With `contrib.drf.exception_handler`, for services."""
    with override_settings(REST_FRAMEWORK={"EXCEPTION_HANDLER": "django_redis_locks.contrib.drf.exception_handler"}):
        yield


def refused(url: str, method: str = "get", key: str = "order", **headers: str) -> Any:
    with held_elsewhere(key, name="order", expire=900):
        return getattr(Client(), method)(url, headers={"accept": "application/json", **headers})


def is_the_frameworks(response: Any, status: int = 409, retry_after: str | None = "60", detail: str = DETAIL) -> None:
    assert (response.status_code, response["Content-Type"]) == (status, "application/json")
    assert json.loads(response.content) == {"detail": detail}
    assert response.get("Retry-After") == retry_after


class TestInside:
    """[D 2.4] An APIException, so that the project's own handler, renderers and error format apply."""

    @pytest.mark.parametrize("name", INSIDE)
    def test_framework_answers_409_in_its_own_format(self, name: str) -> None:
        """[D21] With `Retry-After`; then the lock is free."""
        response = refused(f"/{name}/")
        is_the_frameworks(response)
        assert Client().get(f"/{name}/").status_code == 200

    def test_request_without_permission_asks_for_no_lock(self, seen: Events) -> None:
        """[D21] Authentication and permissions come first."""
        assert Client().get("/guarded/").status_code == 403
        assert seen == []
        assert refused("/guarded/").status_code == 403

    def test_answer_is_not_stored(self) -> None:
        """[D 2.4]"""
        for name in ("method", "below", "above-and-below"):
            assert refused(f"/{name}/")["Cache-Control"] == "no-store"
            assert "Cache-Control" not in Client().get(f"/{name}/")

    @pytest.mark.parametrize(
        ("url", "method", "key"),
        [
            ("/actions/", "get", "order"),
            ("/actions/5/pay/", "post", "order:5"),
            ("/generic/", "post", "order"),
            ("/hooked/", "post", "order"),
            ("/hooked-by-name/", "post", "order"),
        ],
    )
    def test_action_of_a_view_set_is_answered_by_the_framework(self, url: str, method: str, key: str) -> None:
        """[D21] And a method that it calls without handing it the request."""
        is_the_frameworks(refused(url, method, key))
        assert getattr(Client(), method)(url).status_code == 200

    def test_status_and_retry_after_of_the_call_site_are_answered(self) -> None:
        for method, status, retry_after in (("post", 423, "7"), ("delete", 409, None)):
            is_the_frameworks(refused("/method/", method), status, retry_after)

    def test_handler_answers_and_is_given_djangos_request(self) -> None:
        for url, method in (("/method/", "put"), ("/below-with-handler/", "get")):
            assert refused(url, method).content == b"teapot"

    def test_raise_is_the_plain_LockNotAcquired(self) -> None:
        with pytest.raises(LockNotAcquired) as raised:
            refused("/method/", "patch")
        assert type(raised.value) is LockNotAcquired

    def test_skip_below_api_view_raises_TypeError(self) -> None:
        """[D52] It is a view, which has to answer."""
        with pytest.raises(TypeError, match="is a view"):
            Client().get("/below-skipping/")

    def test_store_that_is_down_is_503_and_one_signal(self, store_down: str, seen: Events) -> None:
        for name in ("method", "below"):
            is_the_frameworks(Client().get(f"/{name}/"), 503, "5", DOWN)
        assert [event.doing for event in seen.of(events.BackendFailed)] == ["acquire, answered with 503"] * 2

    def test_conflict_is_no_warning(self, caplog: pytest.LogCaptureFixture) -> None:
        """[D26] One line of ours, and no WARNING of Django's."""
        for url in ("/method/", "/below/", "/actions/", "/answers-itself/"):
            caplog.clear()
            with caplog.at_level(logging.INFO):
                refused(url)
            assert [record.name for record in caplog.records] == ["django_redis_locks.acquire"], url

    def test_view_called_with_the_frameworks_request_factory_answers(self) -> None:
        with held_elsewhere("order"):
            for view in (OfMethod.as_view(), below, OfActions.as_view({"get": "list"})):
                assert view(APIRequestFactory().get("/")).status_code == 409

    def test_helper_that_is_given_the_request_raises(self) -> None:
        """Its handler isn't called."""
        response = refused("/calls-helper/")
        assert (response.status_code, json.loads(response.content)) == (404, "caught order")


class TestOutside:
    @pytest.mark.parametrize("name", OUTSIDE)
    def test_lock_outside_of_the_framework_answers_with_problem_details(self, name: str) -> None:
        """[D21] On `dispatch` and above `@api_view` no handler of the framework would see an exception."""
        response = refused(f"/{name}/")
        assert (response.status_code, response["Content-Type"]) == (409, "application/problem+json")
        assert (response["Retry-After"], response["Cache-Control"]) == ("60", "no-store")
        assert Client().get(f"/{name}/").status_code == 200


class TestServices:
    def test_service_without_the_exception_handler_raises(self) -> None:
        with pytest.raises(LockNotAcquired):
            refused("/calls-service/")

    def test_service_is_answered_by_the_exception_handler(
        self, handled: None, caplog: pytest.LogCaptureFixture
    ) -> None:
        """[D 2.4]"""
        with caplog.at_level(logging.INFO):
            response = refused("/calls-service/")
        is_the_frameworks(response)
        assert response["Cache-Control"] == "no-store"
        assert [record.name for record in caplog.records] == ["django_redis_locks.acquire"]
        assert Client().get("/calls-service/").content == b'"served"'

    def test_store_that_is_down_is_answered_by_the_exception_handler(
        self, handled: None, store_down: str, seen: Events
    ) -> None:
        """[D 2.4] And sent as a signal."""
        is_the_frameworks(Client().get("/calls-service/"), 503, "5", DOWN)
        (event,) = seen.of(events.BackendFailed)
        assert (event.name, event.doing) == ("order", "acquire, answered with 503")

    def test_handler_of_the_project_answers_for_services(self, handled: None, memory_locks: Any) -> None:
        memory_locks(ON_CONFLICT=teapot)
        assert refused("/calls-service/").content == b"teapot"

    def test_APIException_is_answered_as_without_the_handler(self, handled: None) -> None:
        for url in ("/method/", "/below/"):
            is_the_frameworks(refused(url))
        assert Client().post("/below/").status_code == 405


class TestKeys:
    def test_user_of_a_key_is_the_frameworks(self) -> None:
        """[D22] The one that the framework's authentication found."""
        for url, method in (("/per-user/", "get"), ("/per-user/", "post"), ("/function-per-user/", "get")):
            response = getattr(Client(), method)(url, headers={"x-user": "8"})
            assert json.loads(response.content) == "basket:8"

    def test_key_without_a_user_raises_LockKeyError(self) -> None:
        """[D22] It isn't one lock for all."""
        for url in ("/per-user/", "/function-per-user/", "/per-user-outside/"):
            with pytest.raises(LockKeyError, match=r"names nothing|can't be found"):
                Client().get(url)

    def test_key_of_a_body_that_cannot_be_parsed_is_the_clients_mistake(self) -> None:
        """[D24] 400, answered by the framework."""
        for body, kind, status in (
            ('{"pk": 7}', "application/json", 200),
            ("{pk: 7}", "application/json", 400),
            ("<x/>", "text/xml", 415),
        ):
            response = Client().post("/data/", body, content_type=kind)
            assert response.status_code == status
            assert b"order:7" in response.content if status == 200 else "detail" in json.loads(response.content)


class TestTransactions:
    @pytest.fixture
    def attempts(self, tmp_path: Any, django_db_blocker: Any) -> Any:
        """A table, under ATOMIC_REQUESTS: how many rows it has."""
        entry = {**databases.sqlite(tmp_path / "db.sqlite3"), "ATOMIC_REQUESTS": True}
        with django_db_blocker.unblock(), databases.as_default(entry):
            with connection.cursor() as cursor:
                cursor.execute("CREATE TABLE attempt (n int)")

            def count() -> int:
                with connection.cursor() as cursor:
                    cursor.execute("SELECT count(*) FROM attempt")
                    return int(cursor.fetchone()[0])

            yield count

    def test_refusal_rolls_back_what_was_written_before(self, attempts: Any) -> None:
        """[D 2.4] As with any exception that the framework answers."""
        is_the_frameworks(refused("/writing/"))
        assert attempts() == 0
        assert Client().get("/writing/").status_code == 200
        assert attempts() == 1

    def test_refusal_of_a_service_rolls_back(self, attempts: Any, handled: None, memory_locks: Any) -> None:
        """[D 2.4] Whatever answers it."""
        assert refused("/writing/", "post").status_code == 409
        memory_locks(ON_CONFLICT=teapot)
        assert refused("/writing/", "post").status_code == 418
        assert attempts() == 0


class TestExceptions:
    def test_exceptions_are_those_of_the_lock_and_of_the_framework(self) -> None:
        """They pickle; the log sees the lock's name, the client doesn't."""
        plain = LockNotAcquired("lock 'order' is busy", waited=0.5, retry_after=3.2, key="order:5", name="order")
        locked: Any = pickle.loads(pickle.dumps(Locked(plain)))
        assert isinstance(locked, LockNotAcquired)
        assert isinstance(locked, APIException)
        assert (locked.status_code, locked.wait, locked.get_codes(), str(locked.detail)) == (409, 4, "locked", DETAIL)
        assert (locked.key, locked.waited, locked.retry_after) == ("order:5", 0.5, 3.2)
        assert str(locked) == "lock 'order' is busy"
        down: Any = LocksUnavailable(LockBackendError("refused", name="order", alias="default"))
        assert isinstance(down, LockBackendError)
        assert (down.status_code, down.wait, down.get_codes()) == (503, 5, "locks_unavailable")


def test_framework_is_imported_by_contrib_drf_only() -> None:
    script = """
import sys
import django
from django.conf import settings
memory = "django_redis_locks.backends.memory.MemoryBackend"
settings.configure(REDIS_LOCKS={"default": {"BACKEND": memory}}, INSTALLED_APPS=["django_redis_locks"])
django.setup()
from django.http import HttpResponse
from django.test import RequestFactory
from django_redis_locks import middleware, redis_lock, locks
view = redis_lock("order")(lambda request: HttpResponse())
view(RequestFactory().get("/"))
import threading
holder = threading.Thread(target=lambda: locks.lock("order").acquire())
holder.start(); holder.join()
assert view(RequestFactory().get("/")).status_code == 409
assert not [name for name in sys.modules if "rest" in name.split(".")[-1] and "redis_locks" in name]
assert "rest_framework" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)

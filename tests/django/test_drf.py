"""Django REST framework: its exception handler responds where it can see the refusal, otherwise the decorator does."""

from __future__ import annotations

import json
import logging
import pickle
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.http import HttpRequest, HttpResponse
from django.test import Client, override_settings
from django.urls import include, path
from django.utils.decorators import method_decorator
from rest_framework import viewsets
from rest_framework.authentication import BaseAuthentication
from rest_framework.decorators import action, api_view, authentication_classes
from rest_framework.exceptions import APIException
from rest_framework.permissions import BasePermission, IsAuthenticated
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.routers import SimpleRouter
from rest_framework.test import APIRequestFactory
from rest_framework.views import APIView

from django_redis_locks import LockBackendError, LockNotAcquired, current_grant, redis_lock
from django_redis_locks.contrib.drf import Locked, LocksUnavailable
from tests import databases
from tests.django import helpers
from tests.django.helpers import Events, held_elsewhere
from tests.probes.django import events

DETAIL = "This is being worked on by another request. Try again in a moment."
DOWN = "This is not available for the moment. Try again later."


def teapot(request: HttpRequest, refused: LockNotAcquired) -> HttpResponse:
    assert type(request).__module__.startswith("django.")
    return HttpResponse("teapot", status=418)


def of_function(request: Request) -> Response:
    return Response("done")


def done(self: Any, request: Request) -> Response:
    return Response("done")


def key_of(self: Any, request: Request) -> Response:
    grant: Any = current_grant()
    return Response(grant.key)


def locked(name: str, key: str = "order", does: Any = done, **options: Any) -> Any:
    """A locked method of this name."""

    def method(self: Any, request: Request) -> Response:
        return does(self, request)

    method.__name__ = name
    return redis_lock(key, **options)(method)


class OfMethod(APIView):
    get = locked("get")
    post = locked("post", status=423, retry_after=7)
    put = locked("put", on_conflict=teapot)
    patch = locked("patch", on_conflict="raise")
    delete = locked("delete", retry_after=False)


@method_decorator(redis_lock("order"), name="dispatch")
class OfDispatch(APIView):
    get = done


class OfActions(viewsets.ViewSet):
    list = locked("list")

    @action(detail=True, methods=["post"])
    @redis_lock("order:{pk}")
    def pay(self, request: Request, pk: str) -> Response:
        return Response(f"paid {pk}")


class Hooked(viewsets.ViewSet):
    """Like `perform_create` of the generic views."""

    def create(self, request: Request) -> Response:
        return Response(self.perform_create(request.data))

    @redis_lock("order")
    def perform_create(self, data: object) -> str:
        return "done"


@redis_lock("order", on_conflict=teapot)
def helper(request: Request) -> str:
    return "served"


@redis_lock("order")
def service() -> str:
    return "served"


@api_view(["GET"])
def calls_helper(request: Request) -> Response:
    try:
        return Response(helper(request))
    except LockNotAcquired as refused:
        return Response(f"caught {refused.name}", status=404)


@api_view(["GET"])
def lets_helper_raise(request: Request) -> Response:
    return Response(helper(request))


@api_view(["GET"])
def calls_service(request: Request) -> Response:
    return Response(service())


class TokenUser(BaseAuthentication):
    """Authenticates users by token, unknown to Django's own request."""

    def authenticate(self, request: Request) -> tuple[User, None] | None:
        pk = request.headers.get("X-User")
        return (User(pk=int(pk)), None) if pk else None


class PerUser(APIView):
    authentication_classes = (TokenUser,)
    get = locked("get", "basket:{request.user.pk}", key_of)
    post = locked("post", "basket:{self.request.user.pk}", key_of)


@api_view(["GET"])
@authentication_classes([TokenUser])
@redis_lock("basket:{request.user.pk}")
def function_per_user(request: Request) -> Response:
    return key_of(None, request)


@method_decorator(redis_lock("basket:{request.user.pk}"), name="dispatch")
class PerUserOutside(APIView):
    get = done


class Guarded(APIView):
    permission_classes = (IsAuthenticated,)
    get = locked("get")


class OfData(APIView):
    post = locked("post", "order:{request.data[pk]}", key_of)


class Writes(BasePermission):
    """Writes a row before the lock is requested."""

    def has_permission(self, request: Request, view: Any) -> bool:
        with connection.cursor() as cursor:
            cursor.execute("INSERT INTO attempt VALUES (1)")
        return True


class Writing(APIView):
    permission_classes = (Writes,)
    get = locked("get")

    def post(self, request: Request) -> Response:
        return Response(service())


router = SimpleRouter()
for name, views in (("actions", OfActions), ("hooked", Hooked)):
    router.register(name, views, basename=name)

get_view = api_view(["GET"])
below = get_view(redis_lock("order")(of_function))
VIEWS = {
    "method": OfMethod.as_view(),
    "below": below,
    "above-and-below": redis_lock("outer")(get_view(redis_lock("order")(of_function))),
    "lets-helper-raise": lets_helper_raise,
    "dispatch": OfDispatch.as_view(),
    "above": redis_lock("order")(get_view(of_function)),
    "below-with-handler": get_view(redis_lock("order", on_conflict=teapot)(of_function)),
    "below-skipping": get_view(redis_lock("order", on_conflict="skip")(of_function)),
    "calls-helper": calls_helper,
    "calls-service": calls_service,
    "per-user": PerUser.as_view(),
    "function-per-user": function_per_user,
    "per-user-outside": PerUserOutside.as_view(),
    "data": OfData.as_view(),
    "guarded": Guarded.as_view(),
    "writing": Writing.as_view(),
}
urlpatterns = [path("", include(router.urls)), *(path(f"{name}/", view) for name, view in VIEWS.items())]


@pytest.fixture
def handled() -> Any:
    """With `contrib.drf.exception_handler`, which responds for services."""
    with override_settings(REST_FRAMEWORK={"EXCEPTION_HANDLER": "django_redis_locks.contrib.drf.exception_handler"}):
        yield


def refused(url: str, method: str = "get", key: str = "order") -> Any:
    return helpers.send_refused_request(url, method, key=key, accept="application/json")


def assert_framework_response(
    response: Any, status: int = 409, retry_after: str | None = "60", detail: str = DETAIL
) -> None:
    assert (response.status_code, response["Content-Type"]) == (status, "application/json")
    assert json.loads(response.content) == {"detail": detail}
    assert response.get("Retry-After") == retry_after


class TestInside:
    """The refusal is an APIException, so that the project's handler, renderers and error format apply."""

    def test_busy_lock_is_409_in_the_format_of_the_framework(self) -> None:
        """[D21] With `Retry-After`; then the lock is free. Also for an action of a view set, and a method that it calls
        without the request."""
        for name in ("method", "below", "above-and-below", "lets-helper-raise"):
            response = refused(f"/{name}/")
            assert_framework_response(response)
            assert response.get("Cache-Control") == (None if name == "lets-helper-raise" else "no-store")
            response = Client().get(f"/{name}/")
            assert (response.status_code, "Cache-Control" in response) == (200, False), name
        assert_framework_response(refused("/actions/"))
        for url in ("/actions/5/pay/", "/hooked/"):
            assert_framework_response(refused(url, "post", "order:5" if "5" in url else "order"))
            assert Client().post(url).status_code == 200, url

    def test_request_without_permission_acquires_no_lock(self, received: Events) -> None:
        """[D21] Authentication and permissions come first."""
        assert Client().get("/guarded/").status_code == 403
        assert received == []
        assert refused("/guarded/").status_code == 403

    def test_on_conflict_of_the_call_site_works_in_the_framework(self) -> None:
        """[D52] A handler gets Django's request; `raise` raises the plain LockNotAcquired; `skip` below `@api_view`
        raises, since a view must return a response."""
        for method, status, retry_after in (("post", 423, "7"), ("delete", 409, None)):
            assert_framework_response(refused("/method/", method), status, retry_after)
        for url, method in (("/method/", "put"), ("/below-with-handler/", "get")):
            assert refused(url, method).content == b"teapot"
        with pytest.raises(LockNotAcquired) as raised:
            refused("/method/", "patch")
        assert type(raised.value) is LockNotAcquired
        with pytest.raises(TypeError, match="is a view"):
            Client().get("/below-skipping/")

    def test_unreachable_store_is_503_and_sends_one_signal(
        self, handled: None, store_down: str, received: Events
    ) -> None:
        """Also if a service raises."""
        for name in ("method", "below", "calls-service"):
            assert_framework_response(Client().get(f"/{name}/"), 503, "5", DOWN)
        failed = [(event.name, event.doing) for event in received.of(events.BackendFailed)]
        assert failed == [("order", "acquire, answered with 503")] * 3

    def test_helper_called_with_the_request_raises(self) -> None:
        """Its handler isn't called."""
        with held_elsewhere("order"):
            assert below(APIRequestFactory().get("/")).status_code == 409
        response = refused("/calls-helper/")
        assert (response.status_code, json.loads(response.content)) == (404, "caught order")


def test_lock_outside_of_the_framework_responds_with_problem_details() -> None:
    """[D21] On `dispatch` and above `@api_view` the exception handler of the framework wouldn't see an exception."""
    for name in ("dispatch", "above"):
        response = refused(f"/{name}/")
        assert (response.status_code, response["Content-Type"]) == (409, "application/problem+json")
        assert (response["Retry-After"], response["Cache-Control"]) == ("60", "no-store")
        assert Client().get(f"/{name}/").status_code == 200


def test_service_raises_or_is_answered_by_the_exception_handler(
    request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture, memory_locks: Any
) -> None:
    """It doesn't change an APIException. A handler of the project may respond for services."""
    with pytest.raises(LockNotAcquired):
        refused("/calls-service/")
    request.getfixturevalue("handled")
    for url in ("/calls-service/", "/method/", "/below/"):
        caplog.clear()
        with caplog.at_level(logging.INFO):
            response = refused(url)
        assert_framework_response(response)
        assert response["Cache-Control"] == "no-store"
        assert [record.name for record in caplog.records] == ["django_redis_locks.acquire"]
    assert Client().get("/calls-service/").content == b'"served"'
    assert Client().post("/below/").status_code == 405
    memory_locks(ON_CONFLICT=teapot)
    assert refused("/calls-service/").content == b"teapot"


class TestKeys:
    def test_user_in_a_key_is_the_one_that_the_framework_authenticated(self) -> None:
        """[D22] Without a user there is an error instead of one lock for all."""
        for url, method in (("/per-user/", "get"), ("/per-user/", "post"), ("/function-per-user/", "get")):
            response = getattr(Client(), method)(url, headers={"x-user": "8"})
            assert json.loads(response.content) == "basket:8"
        for url in ("/per-user/", "/function-per-user/", "/per-user-outside/"):
            assert Client().get(url).status_code == 400, url

    def test_key_of_a_request_body_that_cannot_be_parsed_is_400(self) -> None:
        """[D24] With the response of the framework."""
        for body, kind, status in (
            ('{"pk": 7}', "application/json", 200),
            ("{pk: 7}", "application/json", 400),
            ("<x/>", "text/xml", 415),
        ):
            response = Client().post("/data/", body, content_type=kind)
            assert response.status_code == status
            assert b"order:7" in response.content if status == 200 else "detail" in json.loads(response.content)


def test_refusal_rolls_back_what_was_written_before(
    tmp_path: Any, django_db_blocker: Any, handled: None, memory_locks: Any
) -> None:
    """Under ATOMIC_REQUESTS, as with any exception that the framework handles; also if the decorator responds."""
    entry = {**databases.sqlite(tmp_path / "db.sqlite3"), "ATOMIC_REQUESTS": True}
    with django_db_blocker.unblock(), databases.as_default(entry), connection.cursor() as cursor:
        cursor.execute("CREATE TABLE attempt (n int)")
        assert_framework_response(refused("/writing/"))
        assert refused("/writing/", "post").status_code == 409
        memory_locks(ON_CONFLICT=teapot)
        assert refused("/writing/", "post").status_code == 418
        assert cursor.execute("SELECT count(*) FROM attempt").fetchone() == (0,)
        assert Client().get("/writing/").status_code == 200
        assert cursor.execute("SELECT count(*) FROM attempt").fetchone() == (1,)


def test_exceptions_are_both_of_the_lock_and_of_the_framework() -> None:
    """They can be pickled. Their text for logs has the name of the lock, the response doesn't."""
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

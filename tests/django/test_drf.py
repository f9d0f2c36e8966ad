"""Django REST framework: where its handler of exceptions sees a refusal, that answers; elsewhere we do."""

from __future__ import annotations

import json
import logging
import pickle
import subprocess
import sys
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.http import HttpRequest, HttpResponse
from django.test import Client, override_settings
from django.urls import include, path
from django.utils.decorators import method_decorator
from rest_framework import mixins, viewsets
from rest_framework.authentication import BaseAuthentication
from rest_framework.decorators import action, api_view, authentication_classes
from rest_framework.exceptions import APIException
from rest_framework.permissions import BasePermission, IsAuthenticated
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.routers import SimpleRouter
from rest_framework.test import APIRequestFactory
from rest_framework.views import APIView

from django_redis_locks import LockBackendError, LockKeyError, LockNotAcquired, answers, current_grant, redis_lock
from django_redis_locks.contrib.drf import Locked, LocksUnavailable
from tests import databases
from tests.django.helpers import Events, held_elsewhere
from tests.probes.django import events

DETAIL = "This is being worked on by another request. Try again in a moment."
DOWN = "This is not available for the moment. Try again later."


class TokenUser(BaseAuthentication):
    """Knows users that Django's own request doesn't."""

    def authenticate(self, request: Request) -> tuple[User, None] | None:
        pk = request.headers.get("X-User")
        return (User(pk=int(pk)), None) if pk else None


def teapot(request: HttpRequest, refused: LockNotAcquired) -> HttpResponse:
    assert type(request).__module__.startswith("django.")
    return HttpResponse("teapot", status=418)


class OfMethod(APIView):
    @redis_lock("order")
    def get(self, request: Request) -> Response:
        return Response("done")

    @redis_lock("order", status=423, retry_after=7)
    def post(self, request: Request) -> Response:
        return Response("done")

    @redis_lock("order", on_conflict=teapot)
    def put(self, request: Request) -> Response:
        return Response("done")

    @redis_lock("order", on_conflict="raise")
    def patch(self, request: Request) -> Response:
        return Response("done")

    @redis_lock("order", retry_after=False)
    def delete(self, request: Request) -> Response:
        return Response("done")


@method_decorator(redis_lock("order"), name="dispatch")
class OfDispatch(APIView):
    def get(self, request: Request) -> Response:
        return Response("done")


class OfActions(viewsets.ViewSet):
    @redis_lock("order")
    def list(self, request: Request) -> Response:
        return Response("done")

    @action(detail=True, methods=["post"])
    @redis_lock("order:{pk}")
    def pay(self, request: Request, pk: str) -> Response:
        return Response(f"paid {pk}")


@method_decorator(redis_lock("order"), name="create")
class Generic(mixins.CreateModelMixin, viewsets.GenericViewSet):
    def create(self, request: Request) -> Response:
        return Response("done")


class Hooked(viewsets.ViewSet):
    """As with `perform_create` of the generic views."""

    def create(self, request: Request) -> Response:
        return Response(self.perform_create(request.data))

    @redis_lock("order")
    def perform_create(self, data: object) -> str:
        return "done"


@method_decorator(redis_lock("order"), name="perform_create")
class HookedByName(Hooked):
    def perform_create(self, data: object) -> str:
        return "done"


@redis_lock("order")
@api_view(["GET"])
def above(request: Request) -> Response:
    return Response("done")


@api_view(["GET"])
@redis_lock("order")
def below(request: Request) -> Response:
    return Response("done")


@api_view(["GET"])
@redis_lock("order", on_conflict=teapot)
def below_with_handler(request: Request) -> Response:
    return Response("done")


@api_view(["GET"])
@redis_lock("order", on_conflict="skip")
def below_skipping(request: Request) -> Response:
    return Response("done")


@redis_lock("outer")
@api_view(["GET"])
@redis_lock("order")
def above_and_below(request: Request) -> Response:
    return Response("done")


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
def answers_itself(request: Request) -> HttpResponse:
    try:
        return Response(service())
    except LockNotAcquired as refused:
        return answers.answer(request, refused)  # type: ignore[arg-type]


@api_view(["GET"])
def lets_helper_raise(request: Request) -> Response:
    return Response(helper(request))


@api_view(["GET"])
def calls_service(request: Request) -> Response:
    return Response(service())


class PerUser(APIView):
    authentication_classes = (TokenUser,)

    @redis_lock("basket:{request.user.pk}")
    def get(self, request: Request) -> Response:
        return Response(current_grant().key)  # type: ignore[union-attr]

    @redis_lock("basket:{self.request.user.pk}")
    def post(self, request: Request) -> Response:
        return Response(current_grant().key)  # type: ignore[union-attr]


@api_view(["GET"])
@authentication_classes([TokenUser])
@redis_lock("basket:{request.user.pk}")
def function_per_user(request: Request) -> Response:
    return Response(current_grant().key)  # type: ignore[union-attr]


@method_decorator(redis_lock("basket:{request.user.pk}"), name="dispatch")
class PerUserOutside(APIView):
    authentication_classes = (TokenUser,)

    def get(self, request: Request) -> Response:
        return Response("done")


class Guarded(APIView):
    permission_classes = (IsAuthenticated,)

    @redis_lock("order")
    def get(self, request: Request) -> Response:
        return Response("done")


class OfData(APIView):
    @redis_lock("order:{request.data[pk]}")
    def post(self, request: Request) -> Response:
        return Response(current_grant().key)  # type: ignore[union-attr]


class Writes(BasePermission):
    """Writes before the view is refused."""

    def has_permission(self, request: Request, view: Any) -> bool:
        with connection.cursor() as cursor:
            cursor.execute("INSERT INTO attempt VALUES (1)")
        return True


class Writing(APIView):
    permission_classes = (Writes,)

    @redis_lock("order")
    def get(self, request: Request) -> Response:
        return Response("done")

    def post(self, request: Request) -> Response:
        return Response(service())


router = SimpleRouter()
router.register("actions", OfActions, basename="action")
router.register("generic", Generic, basename="generic")
router.register("hooked", Hooked, basename="hooked")
router.register("hooked-by-name", HookedByName, basename="hooked-by-name")

INSIDE = {
    "method": OfMethod.as_view(),
    "below": below,
    "above-and-below": above_and_below,
    "lets-helper-raise": lets_helper_raise,
}
OUTSIDE = {"dispatch": OfDispatch.as_view(), "above": above}
urlpatterns = [
    path("", include(router.urls)),
    path("below-with-handler/", below_with_handler),
    path("below-skipping/", below_skipping),
    path("calls-helper/", calls_helper),
    path("answers-itself/", answers_itself),
    path("calls-service/", calls_service),
    path("per-user/", PerUser.as_view()),
    path("function-per-user/", function_per_user),
    path("per-user-outside/", PerUserOutside.as_view()),
    path("data/", OfData.as_view()),
    path("guarded/", Guarded.as_view()),
    path("writing/", Writing.as_view()),
    *(path(f"{name}/", view) for name, view in {**INSIDE, **OUTSIDE}.items()),
]


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
    def test_answered_by_the_framework(self, name: str) -> None:
        """[D21] Below the framework it answers 409, with `Retry-After`, in its own format; then the lock is free."""
        response = refused(f"/{name}/")
        is_the_frameworks(response)
        assert Client().get(f"/{name}/").status_code == 200

    def test_who_may_not_enter(self, seen: Events) -> None:
        """[D21] Authentication and permissions come first: a stranger never asks for the lock, so he holds up nobody."""
        assert Client().get("/guarded/").status_code == 403
        assert seen == []
        assert refused("/guarded/").status_code == 403

    @pytest.mark.parametrize("name", ["method", "below", "above-and-below"])
    def test_no_store(self, name: str) -> None:
        """[D 2.4] Nobody stores it."""
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
    def test_actions(self, url: str, method: str, key: str) -> None:
        """[D21] So is an action of a view set, and a method that it calls without handing it the request."""
        is_the_frameworks(refused(url, method, key))
        assert getattr(Client(), method)(url).status_code == 200

    @pytest.mark.parametrize(("method", "status", "retry_after"), [("post", 423, "7"), ("delete", 409, None)])
    def test_what_the_call_site_says(self, method: str, status: int, retry_after: str | None) -> None:
        """`status` and `retry_after` hold here, too."""
        is_the_frameworks(refused("/method/", method), status, retry_after)

    @pytest.mark.parametrize(("url", "method"), [("/method/", "put"), ("/below-with-handler/", "get")])
    def test_a_handler(self, url: str, method: str) -> None:
        """A handler answers here as in any view, and is given Django's own request."""
        assert refused(url, method).content == b"teapot"

    def test_raise(self) -> None:
        """`"raise"` is the plain exception, for who knows it."""
        with pytest.raises(LockNotAcquired) as raised:
            refused("/method/", "patch")
        assert type(raised.value) is LockNotAcquired

    def test_skip(self) -> None:
        """[D52] A function below `@api_view` is a view, which has to answer."""
        with pytest.raises(TypeError, match="is a view"):
            Client().get("/below-skipping/")

    def test_the_store_is_down(self, store_down: str, seen: Events) -> None:
        """503, told once."""
        for name in ("method", "below"):
            is_the_frameworks(Client().get(f"/{name}/"), 503, "5", DOWN)
        assert [event.doing for event in seen.of(events.BackendFailed)] == ["acquire, answered with 503"] * 2

    @pytest.mark.parametrize("url", ["/method/", "/below/", "/actions/", "/answers-itself/"])
    def test_the_log(self, url: str, caplog: pytest.LogCaptureFixture) -> None:
        """[D26] One line of ours, and no WARNING of Django's."""
        with caplog.at_level(logging.INFO):
            refused(url)
        assert [record.name for record in caplog.records] == ["django_redis_locks.acquire"]

    def test_a_factorys_request(self) -> None:
        """A view that a test calls by hand, with the framework's factory."""
        with held_elsewhere("order"):
            for view in (OfMethod.as_view(), below, OfActions.as_view({"get": "list"})):
                assert view(APIRequestFactory().get("/")).status_code == 409

    def test_a_helper(self) -> None:
        """A helper that is given the framework's request raises what its caller can catch; its handler isn't asked."""
        response = refused("/calls-helper/")
        assert (response.status_code, json.loads(response.content)) == (404, "caught order")


class TestOutside:
    @pytest.mark.parametrize("name", OUTSIDE)
    def test_answered_by_us(self, name: str) -> None:
        """[D21] On `dispatch` and above `@api_view` no handler of the framework would see an exception: problem details."""
        response = refused(f"/{name}/")
        assert (response.status_code, response["Content-Type"]) == (409, "application/problem+json")
        assert (response["Retry-After"], response["Cache-Control"]) == ("60", "no-store")
        assert Client().get(f"/{name}/").status_code == 200


class TestServices:
    def test_without_the_handler(self) -> None:
        """The framework doesn't know LockNotAcquired."""
        with pytest.raises(LockNotAcquired):
            refused("/calls-service/")

    def test_refused(self, handled: None, caplog: pytest.LogCaptureFixture) -> None:
        """[D 2.4] `exception_handler` answers for services that raise it."""
        with caplog.at_level(logging.INFO):
            response = refused("/calls-service/")
        is_the_frameworks(response)
        assert response["Cache-Control"] == "no-store"
        assert [record.name for record in caplog.records] == ["django_redis_locks.acquire"]
        assert Client().get("/calls-service/").content == b'"served"'

    def test_the_store_is_down(self, handled: None, store_down: str, seen: Events) -> None:
        """[D 2.4] And for a store that is down, which it tells."""
        is_the_frameworks(Client().get("/calls-service/"), 503, "5", DOWN)
        (event,) = seen.of(events.BackendFailed)
        assert (event.name, event.doing) == ("order", "acquire, answered with 503")

    def test_a_projects_handler(self, handled: None, memory_locks: Any) -> None:
        """One handler for all."""
        memory_locks(ON_CONFLICT=teapot)
        assert refused("/calls-service/").content == b"teapot"

    @pytest.mark.parametrize("url", ["/method/", "/below/"])
    def test_what_it_knew_before(self, handled: None, url: str) -> None:
        """What is an APIException already is as without it."""
        is_the_frameworks(refused(url))
        assert Client().post("/below/").status_code == 405


class TestKeys:
    @pytest.mark.parametrize(
        ("url", "method"), [("/per-user/", "get"), ("/per-user/", "post"), ("/function-per-user/", "get")]
    )
    def test_the_frameworks_user(self, url: str, method: str) -> None:
        """[D22] The user of a key is the one that the framework's authentication found."""
        response = getattr(Client(), method)(url, headers={"x-user": "8"})
        assert json.loads(response.content) == "basket:8"

    @pytest.mark.parametrize("url", ["/per-user/", "/function-per-user/", "/per-user-outside/"])
    def test_no_user(self, url: str) -> None:
        """[D22] Without one it is an error, not one lock for all."""
        with pytest.raises(LockKeyError, match=r"names nothing|can't be found"):
            Client().get(url)

    @pytest.mark.parametrize(
        ("body", "kind", "status"),
        [('{"pk": 7}', "application/json", 200), ("{pk: 7}", "application/json", 400), ("<x/>", "text/xml", 415)],
    )
    def test_of_the_body(self, body: str, kind: str, status: int) -> None:
        """[D24] A body that can't be parsed is the client's mistake: 400, answered by the framework."""
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

    def test_a_refused_attempt_rolls_back(self, attempts: Any) -> None:
        """[D 2.4] What was written before the refusal is undone, as with any exception that the framework answers."""
        is_the_frameworks(refused("/writing/"))
        assert attempts() == 0
        assert Client().get("/writing/").status_code == 200
        assert attempts() == 1

    def test_of_a_service(self, attempts: Any, handled: None, memory_locks: Any) -> None:
        """[D 2.4] So it is for a service, whoever answers."""
        assert refused("/writing/", "post").status_code == 409
        memory_locks(ON_CONFLICT=teapot)
        assert refused("/writing/", "post").status_code == 418
        assert attempts() == 0


class TestExceptions:
    def test_they_are_both(self) -> None:
        """Who catches either catches them; they pickle; the log sees the lock's name, the client doesn't."""
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


def test_it_is_imported_by_nobody_else() -> None:
    """Without the framework nothing of it is asked for; with it, nothing of it is imported before it is used."""
    story = """
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
    subprocess.run([sys.executable, "-c", story], check=True, timeout=60)

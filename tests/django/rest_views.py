"""Views of Django REST framework with locks at every place."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import User
from django.db import connection
from django.http import HttpRequest, HttpResponse
from django.urls import include, path
from django.utils.decorators import method_decorator
from rest_framework import mixins, viewsets
from rest_framework.authentication import BaseAuthentication
from rest_framework.decorators import action, api_view, authentication_classes
from rest_framework.permissions import BasePermission, IsAuthenticated
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.routers import SimpleRouter
from rest_framework.views import APIView

from django_redis_locks import LockNotAcquired, answers, current_grant, redis_lock


class TokenUser(BaseAuthentication):
    """Knows users that Django's own request doesn't."""

    def authenticate(self, request: Request) -> tuple[User, None] | None:
        pk = request.headers.get("X-User")
        return (User(pk=int(pk)), None) if pk else None


def teapot(request: HttpRequest, refused: LockNotAcquired) -> HttpResponse:
    assert type(request).__module__.startswith("django.")
    return HttpResponse("teapot", status=418)


def of_function(request: Request) -> Response:
    return Response("done")


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


above = redis_lock("order")(api_view(["GET"])(of_function))
below = api_view(["GET"])(redis_lock("order")(of_function))
below_with_handler = api_view(["GET"])(redis_lock("order", on_conflict=teapot)(of_function))
below_skipping = api_view(["GET"])(redis_lock("order", on_conflict="skip")(of_function))
above_and_below = redis_lock("outer")(api_view(["GET"])(redis_lock("order")(of_function)))


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

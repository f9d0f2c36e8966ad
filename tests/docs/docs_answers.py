"""What the examples of howto/answers.md and howto/rest-framework.md take for granted, and what must hold after them."""

from __future__ import annotations

import json
import re
import sys
from typing import Any

from django.http import HttpResponse
from django.test import Client, RequestFactory
from django.urls import path
from django.utils.module_loading import import_string
from rest_framework.exceptions import ErrorDetail

from django_redis_locks import LockNotAcquired, locks, redis_lock
from django_redis_locks.answers import answer
from django_redis_locks.contrib import drf
from tests.docs.examples import MEMORY, Names, User, after, get, given, hold_elsewhere, post, problems_of
from tests.docs.pages import BLOCKS


@given("howto/answers:handler")
def _() -> Names:
    return {"fixtures": ["settings"]}


@after("howto/answers:handler")
def _(names: Names) -> None:
    templates = {"shop/please_wait.html": "Wait {{ seconds }} s.", "redis_locks/409.html": THE_PAGE, "base.html": BASE}
    loaders = [("django.template.loaders.locmem.Loader", templates)]
    engine = "django.template.backends.django.DjangoTemplates"
    names["settings"].TEMPLATES = [{"BACKEND": engine, "OPTIONS": {"loaders": loaders}}]
    with hold_elsewhere("checkout:1"):
        response = names["checkout"](get(), product_id=1)
        page: Any = redis_lock("checkout:1")(lambda request: HttpResponse())(get(accept="text/html"))
    assert response.status_code == 409
    assert re.fullmatch(r"Wait (29|30) s\.", response.text)
    assert re.search(r"<p>This is being worked on.+</p>\s*<p>Try again in (29|30) seconds", page.render().text)


THE_PAGE = next(block.code for block in BLOCKS if block.language == "django")
BASE = "{% block content %}{% endblock %}"


@given("howto/answers:shop")
def _() -> Names:
    return {"fixtures": ["settings"]}


@after("howto/answers:shop")
def _(names: Names) -> None:
    assert problems_of(REDIS_LOCKS=names["REDIS_LOCKS"]) == []
    names["settings"].REDIS_LOCKS = {
        "default": {**names["REDIS_LOCKS"]["default"], "BACKEND": MEMORY, "LOCATION": None}
    }
    view = redis_lock("order")(lambda request: HttpResponse())
    report = redis_lock("report:{year}")(lambda request, year: HttpResponse())
    with hold_elsewhere("order"), hold_elsewhere("report:2031"):
        assert view(RequestFactory().get("/shop/")).status_code == 302
        assert view(get()).status_code == 409
        assert report(RequestFactory().get("/shop/"), 2031).status_code == 409


@after("howto/answers:skip")
def _(names: Names) -> None:
    assert names["done"] == 42
    with hold_elsewhere("nightly"):
        assert names["nightly"]() is None


@given("howto/answers:middleware")
def _() -> Names:
    return {"fixtures": ["settings"]}


@after("howto/answers:middleware")
def _(names: Names) -> None:
    names["settings"].MIDDLEWARE = names["MIDDLEWARE"]

    def service(request: Any) -> HttpResponse:
        with locks.lock("order", wait=0):
            return HttpResponse()

    sys.modules["mysite.urls"].urlpatterns = [path("service/", service)]
    with hold_elsewhere("order"):
        assert Client().get("/service/").status_code == 409
    assert Client().get("/service/").status_code == 200


@after("howto/answers:own-answer")
def _(names: Names) -> None:
    assert names["checkout"](None, 1).url == "/paid/"
    with hold_elsewhere("checkout:1"):
        assert names["checkout"](None, 1).url == "/please-wait/"


@after("howto/rest-framework:views")
def _(names: Names) -> None:
    detail = json.loads(answer(get(accept="application/json"), LockNotAcquired()).content)["detail"]
    order, pay = names["OrderView"].as_view(), names["OrderViewSet"].as_view({"post": "pay"})

    def request() -> Any:
        found = post(User(8))
        found.user.is_active = found._dont_enforce_csrf_checks = True
        return found

    for view in (order, pay):
        assert view(request(), pk=5).status_code == 200
        with hold_elsewhere("order:5"):
            assert view(request(), pk=5).data == {"detail": ErrorDetail(detail, "locked")}
    with hold_elsewhere("basket:8"):
        assert names["basket"](request()).status_code == 409


@after("howto/rest-framework:settings")
def _(names: Names) -> None:
    assert import_string(names["REST_FRAMEWORK"]["EXCEPTION_HANDLER"]) is drf.exception_handler


@after("howto/rest-framework:own-handler")
def _(names: Names) -> None:
    response = names["exception_handler"](LockNotAcquired(retry_after=5), {})
    assert (response.data["status"], response["Retry-After"]) == (409, "5")
    assert names["exception_handler"](LookupError(), {}) is None

"""Five ways to buy, which differ in one line: the lock. Two ways to show a report. And a job that a request submits."""

from __future__ import annotations

from math import ceil

from django.db import transaction
from django.db.models import Count
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.template.response import TemplateResponse
from django.urls import reverse
from django.views.decorators.http import require_GET, require_POST
from django.views.decorators.vary import vary_on_headers

from celery_locks import DuplicateTask
from django_redis_locks import locks, redis_lock
from django_redis_locks.cache import invalidate

from . import reports
from .by_hand import locked_by_hand
from .checkout import sell
from .models import Order, Product
from .tasks import confirm_order

STOCK = 40
KINDS = {200: "sold", 409: "busy", 410: "gone"}


@require_POST
@transaction.non_atomic_requests  # on SQLite, with one writer at a time, a transaction would lock the whole shop
def buy_naive(request: HttpRequest, product_id: int) -> HttpResponse:
    """Two requests that read the same stock both sell, and both write back that stock less one."""
    return answer(request, *sell(product_id))


@require_POST
@redis_lock(key="shop:checkout:{product_id}", expire=5)
def buy_locked(request: HttpRequest, product_id: int) -> HttpResponse:
    """One checkout per product at a time, in all processes. The lock is released after the COMMIT, which follows when
    the view has returned."""
    return answer(request, *sell(product_id))


@require_POST
@redis_lock(key="shop:checkout:{product_id}", expire=5, wait=10)
def buy_waiting(request: HttpRequest, product_id: int) -> HttpResponse:
    """The same lock; a request waits if it is busy."""
    return answer(request, *sell(product_id))


@require_POST
@locked_by_hand
def buy_by_hand(request: HttpRequest, product_id: int) -> HttpResponse:
    """A lock that waits, too, but is released when the view returns, before the COMMIT."""
    return answer(request, *sell(product_id))


@require_POST
def buy_in_block(request: HttpRequest, product_id: int) -> HttpResponse:
    """A lock object inside of the view's transaction: `hold` keeps it until COMMIT."""
    with locks.lock(f"shop:block:{product_id}", hold="transaction"):
        return answer(request, *sell(product_id))


@require_GET
@vary_on_headers("Accept")
def index(request: HttpRequest) -> HttpResponse:
    if wants_json(request):
        return JsonResponse({"products": list(products().values("id", "name", "stock", "sold"))})
    return page(request)


@require_GET
@transaction.non_atomic_requests  # a read needs no transaction, and SQLite allows one writer at a time
def sales(request: HttpRequest) -> HttpResponse:
    return TemplateResponse(request, "shop/sales.html", {"report": reports.sales()})


@require_GET
@transaction.non_atomic_requests
def sales_unguarded(request: HttpRequest) -> HttpResponse:
    return TemplateResponse(request, "shop/sales.html", {"report": reports.sales_unguarded()})


@require_POST
def confirm(request: HttpRequest, order_id: int) -> HttpResponse:
    """Mail the confirmation of an order, at most once a minute. Both options are for this call: the task's own ones
    return the first confirmation, for an hour."""
    try:
        confirm_order.apply_async((order_id,), lock_on_duplicate="raise", idempotency_ttl=60)
    except DuplicateTask as duplicate:
        response = JsonResponse({"detail": f"The confirmation is {duplicate.state}."}, status=409)
        if duplicate.retry_after is not None:  # it is known once the job runs or is done
            response["Retry-After"] = str(ceil(duplicate.retry_after))
        return response
    return JsonResponse({"detail": "The confirmation will be sent."}, status=202)


@require_POST
def restock(request: HttpRequest) -> HttpResponse:
    """Reset stock and orders."""
    with transaction.atomic():
        Order.objects.all().delete()
        Product.objects.update(stock=STOCK)
        invalidate(reports.SALES)
    return HttpResponseRedirect(reverse("index"))


def answer(request: HttpRequest, product: Product, order: Order | None) -> HttpResponse:
    """200 with the receipt, or 410 if it is sold out. (409 is the response of `conflicts.py`.)"""
    if order is None:
        status, message = 410, f"{product.name}: sold out."
    else:
        status, message = 200, f"{product.name}: sold. {product.stock} left."
    if wants_json(request):
        return JsonResponse({"detail": message, "receipt": order.receipt if order else None}, status=status)
    return page(request, message, status)


def page(request: HttpRequest, message: str = "", status: int = 200) -> TemplateResponse:
    """Rendered after the view has returned, hence not under the lock."""
    context = {"products": products(), "message": message, "kind": KINDS[status] if message else ""}
    return TemplateResponse(request, "shop/index.html", context, status=status)


def products():
    return Product.objects.annotate(sold=Count("orders")).order_by("pk")


def wants_json(request: HttpRequest) -> bool:
    return request.get_preferred_type(["text/html", "application/json"]) == "application/json"

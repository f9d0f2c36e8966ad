"""The site on a fresh database, a crowd on one of its products, and one on its report. Django is set up before this is
imported."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from functools import wraps

from buyers import crowd, visit, visitors
from django.core.cache import cache
from django.core.management import call_command
from django.db import connections, transaction
from project.wsgi import application
from report import Outcome, Visits
from shop import reports
from shop.models import Order, Product
from workers import Workers

from django_redis_locks.cache import invalidate

BUYERS = 60
SUPPLY = 40
VISITORS = 100

loads = multiprocessing.Value("i")  # shared with the site's processes, which are forked


def count_reports() -> None:
    """From now on, and in all processes that are forked from now on."""
    make = reports.make_sales

    @wraps(make)
    def counted() -> object:
        with loads.get_lock():
            loads.value += 1
        return make()

    reports.make_sales = counted


def open_site(port: int) -> Workers:
    """With three products; yet to be entered."""
    call_command("migrate", verbosity=0)
    connections.close_all()  # SQLite's aren't to be carried over a fork
    return Workers(application, port=port)


def rush(form: str, url: str, tell: Callable[[str], None]) -> Outcome:
    """One crowd, one product, a fresh stock."""
    with transaction.atomic():
        Order.objects.all().delete()
        Product.objects.update(stock=SUPPLY)
    product = Product.objects.earliest("pk")
    buyers = crowd(f"{url}/{form}/{product.pk}/buy", BUYERS, lambda done: tell(f"{form}: {done} of {BUYERS} done"))
    tell("")
    product.refresh_from_db()
    return Outcome(
        form,
        supply=SUPPLY,
        sold=product.orders.count(),
        left=product.stock,
        finals=[buyer.last for buyer in buyers],
        statuses=[status for buyer in buyers for status in buyer.statuses],
        seconds=[seconds for buyer in buyers for seconds in buyer.seconds],
    )


def visit_expired(form: str, url: str, tell: Callable[[str], None]) -> Visits:
    """A crowd that comes when the report has just expired."""
    visitors(url, VISITORS, lambda done: None)  # the first ones of a process don't count
    visit(url)
    cache.delete(reports.UNGUARDED)  # as if a minute were over
    invalidate(reports.SALES, stale=reports.STALE)
    return _visit(form, url, tell)


def visit_none(form: str, url: str, tell: Callable[[str], None]) -> Visits:
    """A crowd that comes when there is no report."""
    invalidate(reports.SALES)
    return _visit(form, url, tell)


def _visit(form: str, url: str, tell: Callable[[str], None]) -> Visits:
    before = loads.value
    visits = visitors(url, VISITORS, lambda done: tell(f"{form}: {done} of {VISITORS} done"))
    tell("")
    time.sleep(reports.COUNTING)  # a refresh in the background has begun by now
    statuses, seconds = zip(*visits, strict=True)
    return Visits(form, loads.value - before, statuses, seconds)

"""The site on a fresh database, with concurrent buyers of a product, and concurrent visitors of its report. Import it
after setting up Django."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from functools import wraps

from buyers import run_buyers, run_visitors, visit
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
    """Count the reports made in this process, and in processes forked later."""
    make = reports.make_sales

    @wraps(make)
    def counted() -> object:
        with loads.get_lock():
            loads.value += 1
        return make()

    reports.make_sales = counted


def open_site(port: int) -> Workers:
    """Create the database with three products, and return the site, which isn't started."""
    call_command("migrate", verbosity=0)
    connections.close_all()  # connections of SQLite can't be used after a fork
    return Workers(application, port=port)


def run_sale(form: str, url: str, show_progress: Callable[[str], None]) -> Outcome:
    """Concurrent buyers of one product, with a fresh stock."""
    with transaction.atomic():
        Order.objects.all().delete()
        Product.objects.update(stock=SUPPLY)
    product = Product.objects.earliest("pk")
    buyers = run_buyers(
        f"{url}/{form}/{product.pk}/buy", BUYERS, lambda done: show_progress(f"{form}: {done} of {BUYERS} done")
    )
    show_progress("")
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


def visit_expired(form: str, url: str, show_progress: Callable[[str], None]) -> Visits:
    """Concurrent visitors just after the report has expired."""
    run_visitors(url, VISITORS, lambda done: None)  # warm-up: the first requests of a process don't count
    visit(url)
    cache.delete(reports.UNGUARDED)  # as if it had expired
    invalidate(reports.SALES, stale=reports.STALE)
    return _visit(form, url, show_progress)


def visit_none(form: str, url: str, show_progress: Callable[[str], None]) -> Visits:
    """Concurrent visitors when there is no report."""
    invalidate(reports.SALES)
    return _visit(form, url, show_progress)


def _visit(form: str, url: str, show_progress: Callable[[str], None]) -> Visits:
    before = loads.value
    visits = run_visitors(url, VISITORS, lambda done: show_progress(f"{form}: {done} of {VISITORS} done"))
    show_progress("")
    time.sleep(reports.COUNTING)  # by then a refresh in the background has begun
    statuses, seconds = zip(*visits, strict=True)
    return Visits(form, loads.value - before, statuses, seconds)

"""The site on a fresh database, and a crowd on one of its products. Django is set up before this is imported."""

from __future__ import annotations

from collections.abc import Callable

from buyers import crowd
from django.core.management import call_command
from django.db import connections, transaction
from project.wsgi import application
from report import Outcome
from shop.models import Order, Product
from workers import Workers

BUYERS = 60
SUPPLY = 40


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

"""The sale of one item. It is correct only while no other request sells the same product."""

from __future__ import annotations

from decimal import Decimal
from uuid import uuid4

from django.core.signing import Signer
from django.db import transaction
from django.shortcuts import get_object_or_404
from django.template.loader import render_to_string

from django_redis_locks.cache import invalidate

from .models import Order, Product
from .reports import SALES, STALE

VAT = Decimal("0.20")
CENT = Decimal("0.01")


def sell(product_id: int) -> tuple[Product, Order | None]:
    """Read the stock, compute, write it back. No order if nothing is left.

    The transaction makes both writes atomic. It doesn't prevent that the stock changes after it was read."""
    product = get_object_or_404(Product, pk=product_id)
    if product.stock == 0:
        return product, None
    text = receipt(product)
    product.stock -= 1
    with transaction.atomic():
        order = Order.objects.create(product=product, price=product.price, receipt=text)
        product.save(update_fields=["stock"])
        invalidate(SALES, stale=STALE)  # after COMMIT; not after a rollback
    return product, order


def receipt(product: Product) -> str:
    """The receipt for the buyer, signed."""
    net = (product.price / (1 + VAT)).quantize(CENT)
    context = {"number": uuid4(), "product": product, "net": net, "vat": product.price - net}
    return Signer(salt="shop.receipt").sign(render_to_string("shop/receipt.txt", context))

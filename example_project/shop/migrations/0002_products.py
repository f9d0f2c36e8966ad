from __future__ import annotations

from typing import Any, ClassVar

from django.db import migrations

PRODUCTS = [("Coffee grinder", "49.00"), ("Enamel mug", "14.50"), ("Reading lamp", "89.00")]


def fill(apps: Any, schema_editor: Any) -> None:
    product = apps.get_model("shop", "Product")
    product.objects.bulk_create(product(name=name, price=price, stock=40) for name, price in PRODUCTS)


class Migration(migrations.Migration):
    dependencies: ClassVar = [("shop", "0001_initial")]
    operations: ClassVar = [migrations.RunPython(fill, migrations.RunPython.noop)]

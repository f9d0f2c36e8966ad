from __future__ import annotations

from django.urls import path

from . import views

urlpatterns = [
    path("", views.index, name="index"),
    path("naive/<int:product_id>/buy", views.buy_naive, name="naive"),
    path("locked/<int:product_id>/buy", views.buy_locked, name="locked"),
    path("waiting/<int:product_id>/buy", views.buy_waiting, name="waiting"),
    path("by-hand/<int:product_id>/buy", views.buy_by_hand, name="by-hand"),
    path("in-block/<int:product_id>/buy", views.buy_in_block, name="in-block"),
    path("reports/sales/", views.sales, name="sales"),
    path("reports/sales/unguarded/", views.sales_unguarded, name="sales-unguarded"),
    path("orders/<int:order_id>/confirm", views.confirm, name="confirm"),
    path("restock", views.restock, name="restock"),
]

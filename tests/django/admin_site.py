"""Two admin sites with the page of held locks, and clients with permissions."""

from __future__ import annotations

from itertools import count
from typing import Any

from django.contrib import admin
from django.contrib.admin.utils import quote
from django.contrib.auth.models import Permission, User
from django.http import HttpResponse
from django.test import Client
from django.urls import path

from django_redis_locks.admin import HeldLockAdmin
from django_redis_locks.models import HeldLock
from tests.probes.django import admin_id

other = admin.AdminSite("other")
other.register(HeldLock, HeldLockAdmin)

urlpatterns = [path("admin/", admin.site.urls), path("other/", other.urls)]

LIST = "/admin/django_redis_locks/heldlock/"
FORCE = f"{LIST}force-release/"
VIEW, RELEASE = "view_heldlock", "force_release_heldlock"

_numbers = count(1)


def client_with_permissions(*permissions: str, staff: bool = True, **options: Any) -> Client:
    """A client, logged in as a new user with these permissions."""
    user = User.objects.create_user(f"visitor-{next(_numbers)}", is_staff=staff)
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    client = Client(**options)
    client.force_login(user)
    return client


def lock_url(key: str, alias: str = "default") -> str:
    """The URL of the page of a lock."""
    return f"{LIST}{quote(admin_id(alias, key))}/change/"


def listed_keys(response: Any) -> list[str]:
    """The keys in the list of locks."""
    assert response.status_code == 200
    return [lock.key for lock in response.context["cl"].result_list]


def visible_text(response: HttpResponse) -> str:
    return response.content.decode()


def page_messages(response: Any) -> list[str]:
    """The messages at the top of the page after the redirect."""
    return [str(message) for message in response.context["messages"]]

"""The admin: permissions, pages while Redis is down, and the model without a table."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.contrib.auth.models import Permission, User
from django.contrib.contenttypes.models import ContentType
from django.core.management import call_command
from django.test import Client

from django_redis_locks import clock, inspection, locks
from tests.django.admin_site import (
    FORCE,
    LIST,
    RELEASE,
    VIEW,
    client_with_permissions,
    listed_keys,
    lock_url,
    page_messages,
    urlpatterns,
    visible_text,
)
from tests.probes.django import admin_id

__all__ = ["urlpatterns"]

pytestmark = pytest.mark.django_db

ADD = f"{LIST}add/"
PLACES = (LIST, ADD, FORCE, *(lock_url("a").replace("change", page) for page in ("change", "delete", "history")))
ACTION = {"action": "force_release", "_selected_action": ["default:a"]}


@pytest.fixture
def held(redis_locks: str) -> Iterator[None]:
    with locks.lock("a", expire=60):
        yield


@pytest.fixture
def silent_store(settings: Any) -> Iterator[None]:
    """A server that accepts connections and doesn't reply, like a stopped one."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"redis://127.0.0.1:{server.getsockname()[1]}/0"
        settings.REDIS_LOCKS = {"default": {"LOCATION": url, "OPTIONS": {"socket_timeout": 0.3}}}
        yield


def release(client: Client, fence: int) -> Any:
    return client.post(FORCE, {"lock": [admin_id("default", "a")], "fence": [fence], "reason": "r"})


@pytest.mark.parametrize("permissions", [(), (RELEASE,)], ids=["nothing", "releasing only"])
def test_staff_without_the_view_permission_gets_403(held: None, permissions: tuple[str, ...]) -> None:
    """On every page, and the sidebar has no entry. The permission to release isn't enough."""
    client = client_with_permissions(*permissions)
    answers = [client.get(url) for url in PLACES]
    answers += [release(client, inspection.find("a").fence), client.post(LIST, ACTION)]
    assert [response.status_code for response in answers] == [403] * 8
    index = client.get("/admin/")
    assert index.status_code == 200
    assert "heldlock/" not in visible_text(index)
    assert inspection.find("a").state == "held"


@pytest.mark.parametrize("staff", [False, None], ids=["a customer", "anonymous"])
def test_visitor_without_staff_rights_is_sent_to_the_login(held: None, staff: bool | None) -> None:
    client = Client() if staff is None else client_with_permissions(VIEW, RELEASE, staff=staff)
    for response in (*map(client.get, PLACES), release(client, inspection.find("a").fence)):
        assert (response.status_code, "/login/" in response["Location"]) == (302, True)
    assert inspection.find("a").state == "held"


def test_view_permission_alone_offers_and_accepts_no_release(held: None) -> None:
    client = client_with_permissions(VIEW)
    page = client.get(LIST)
    assert listed_keys(page) == ["a"]
    assert not any(word in visible_text(page) for word in ('name="_selected_action"', "force_release"))
    assert "redis-lock-force" not in visible_text(client.get(lock_url("a")))
    assert client.get(FORCE, {"lock": "default:a"}).status_code == 403
    assert release(client, inspection.find("a").fence).status_code == 403
    client.post(LIST, ACTION)
    assert inspection.find("a").state == "held"


def test_superuser_can_not_add_change_or_delete(held: None) -> None:
    client = Client()
    client.force_login(User.objects.create_superuser("root"))
    for url in (ADD, lock_url("a").replace("change", "delete")):
        assert client.get(url).status_code == 403
        assert client.post(url, {"post": "yes"}).status_code == 403
    assert client.post(lock_url("a"), {"key": "b"}).status_code == 403
    client.post(LIST, {"action": "delete_selected", "_selected_action": ["default:a"], "post": "yes"})
    page = visible_text(client.get(LIST))
    assert 'name="_selected_action"' in page
    assert "delete_selected" not in page
    assert inspection.find("a").state == "held"


def test_pages_of_a_second_site_stay_on_it(held: None) -> None:
    client = client_with_permissions(VIEW, RELEASE)
    there, page, force = (url.replace("/admin/", "/other/") for url in (LIST, lock_url("a"), FORCE))
    for url in (there, page, f"{force}?lock=default:a"):
        response = client.get(url)
        assert response.status_code == 200
        links = re.findall(r'(?:href|action|src)="([^"]*)"', visible_text(response))
        assert not [link for link in links if link.startswith("/admin/")]
    assert client.post(force, {"lock": ["default:a"], "fence": [1], "reason": "r"})["Location"] == there


def test_pages_have_no_inline_scripts_or_styles_and_are_not_cached(held: None) -> None:
    """As a strict content security policy requires."""
    client = client_with_permissions(VIEW, RELEASE)
    for url in (LIST, f"{LIST}?q=nobody", lock_url("a"), lock_url("free"), f"{FORCE}?lock=default:a"):
        response = client.get(url)
        html = visible_text(response)
        assert "redis_locks/admin.css" in html, url
        assert not re.findall(r"<script(?![^>]*\bsrc=)[^>]*>|<style|\sstyle=|\son\w+=|javascript:", html), url
        assert "no-store" in response["Cache-Control"]


# The store is down


def test_pages_show_that_redis_is_down(store_down: str) -> None:
    """Each page has status 200, the admin's layout, and the error."""
    client = client_with_permissions(VIEW, RELEASE)
    for url in (LIST, f"{LIST}?q=a&o=1", f"{LIST}?state=all", lock_url("a"), f"{FORCE}?lock=default:a"):
        page = client.get(url)
        assert page.status_code == 200, url
        assert all(word in visible_text(page) for word in ("redis-lock-problem", 'id="user-tools"')), url
        assert not any(word in visible_text(page) for word in ("hunter2", 'name="fence"')), url
    assert "redis-lock-problem" in visible_text(client.post(LIST, ACTION))
    (message,) = page_messages(client.get(release(client, 1)["Location"]))
    assert message.startswith("Locks can't be reached, and it isn't known whether a was released: ")
    assert client.get(lock_url("a").replace("change", "history")).status_code == 200


def test_silent_server_takes_one_timeout_per_page(silent_store: None) -> None:
    """For any number of selected locks: fifty timeouts would take fifteen seconds."""
    client = client_with_permissions(VIEW, RELEASE)
    chosen = [f"default:{number}" for number in range(50)]
    for ask in (
        lambda: client.get(LIST),
        lambda: client.post(LIST, {**ACTION, "_selected_action": chosen}),
        lambda: client.post(FORCE, {"lock": chosen, "fence": ["1"] * 50, "reason": "r"}),
    ):
        begin = clock.now()
        assert ask().status_code in (200, 302)
        assert clock.now() - begin < 8


def test_admin_index_sends_no_request_to_the_store(silent_store: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """[D60] A slow or unreachable store must not slow down the index or the sidebars of other pages."""

    def refuse(*args: Any, **options: Any) -> Any:
        raise AssertionError("the store was asked")

    for name in ("held", "find", "counts"):
        monkeypatch.setattr(inspection, name, refuse)
    client = client_with_permissions(VIEW, RELEASE, "view_user")
    for url in ("/admin/", "/admin/django_redis_locks/", "/admin/auth/user/"):
        page = client.get(url)
        assert page.status_code == 200
        assert LIST in visible_text(page)


def test_wrong_settings_are_shown_with_the_text_of_the_check(settings: Any) -> None:
    client = client_with_permissions(VIEW, RELEASE)
    table: Any
    for table in ({}, {"default": {"LOCATION": "nonsense"}}, {"default": {"TYPO": 1}}, [], {"other": {"TYPO": 1}}):
        settings.REDIS_LOCKS = table
        page = client.get(LIST)
        assert page.status_code == 200
        assert "redis-lock-problem" in visible_text(page)
        assert "REDIS_LOCKS" in visible_text(page)
        assert client.get(lock_url("a")).status_code in (200, 302)


# The model without a table: commands of Django for all models must work with it

ROOT = Path(__file__).resolve().parents[2]

PROGRAM = """
import django
from django.conf import settings

settings.configure(
    INSTALLED_APPS=["django.contrib.contenttypes", "django.contrib.auth", "django_redis_locks"],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "db.sqlite3"}},
    REDIS_LOCKS={"default": {"BACKEND": "django_redis_locks.backends.memory.MemoryBackend"}},
)
django.setup()

from django.core.management import call_command
from django.db import connection
from django_redis_locks import locks

call_command("makemigrations", check=True, dry_run=True, verbosity=0)
call_command("check", fail_level="ERROR")
for _ in range(2):
    call_command("migrate", verbosity=0)
assert not [table for table in connection.introspection.table_names() if "lock" in table]
with locks.lock("order:42"):
    call_command("dumpdata", output="all.json", use_base_manager=True, verbosity=0)
    call_command("dumpdata", "django_redis_locks", output="ours.json", verbosity=0)
for name in ("all.json", "ours.json"):
    assert "django_redis_locks.heldlock" not in open(name).read()
call_command("flush", interactive=False, verbosity=0)
call_command("loaddata", "all.json", verbosity=0)
"""


def test_model_needs_no_migration_and_no_table(tmp_path: Path) -> None:
    """[D55] [D56] `makemigrations --check` finds no change, `migrate` creates no table, and `dumpdata`, `flush` and
    `loaddata` ignore the model, even in a project without the admin."""
    subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM], cwd=tmp_path, check=True, env={"PYTHONPATH": str(ROOT)}
    )
    assert not (ROOT / "django_redis_locks" / "migrations").exists()


def test_model_has_the_permissions_to_view_and_to_release() -> None:
    """[F24] The app has a verbose name, and the system checks report nothing."""
    content_type = ContentType.objects.get(app_label="django_redis_locks", model="heldlock")
    found = Permission.objects.filter(content_type=content_type).values_list("codename", flat=True)
    assert sorted(found) == ["force_release_heldlock", "view_heldlock"]
    call_command("check", "--tag", "admin", "--tag", "models", fail_level="WARNING")
    assert str(apps.get_app_config("django_redis_locks").verbose_name) == "Redis locks"

"""Force release in the admin: in two steps, with the fence that was shown."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import pytest
from django.contrib.admin.models import CHANGE, LogEntry
from django.db import DatabaseError, transaction
from django.test import Client

from django_redis_locks import Grant, LockError, inspection, locks
from tests.django.admin_site import FORCE, LIST, RELEASE, VIEW, detail, keys, messages, text, urlpatterns, visitor
from tests.django.helpers import Events, in_thread, until
from tests.probes.django import admin_id, events

__all__ = ["urlpatterns"]

pytestmark = pytest.mark.django_db


@pytest.fixture
def client() -> Client:
    return visitor(VIEW, RELEASE)


@pytest.fixture
def held(redis_locks: str) -> Iterator[dict[str, Grant]]:
    """Three held locks. A key that has another holder by the end is freed for the next test."""
    grants = {key: in_thread(locks.lock(key, expire=60).acquire) for key in ("a", "b", "c")}
    yield grants
    for key, grant in grants.items():
        try:
            grant.release()
        except LockError:
            locks.lock(key).force_release()


def held_keys() -> list[str]:
    return sorted(info.key for info in inspection.held().rows)


def confirmed(page: Any, reason: str = "it hangs") -> dict[str, Any]:
    """What the form of this page sends."""
    chosen = [one["lock"] for one in page.context["locks"]]
    return {"lock": [lock.pk for lock in chosen], "fence": [str(lock.fence) for lock in chosen], "reason": reason}


def choose(client: Client, *chosen: str, **more: str) -> Any:
    """The action of the list."""
    data = {"action": "force_release", "_selected_action": [admin_id("default", key) for key in chosen], **more}
    return client.post(LIST, data)


def ask(client: Client, *chosen: str) -> Any:
    """The page of the button."""
    return client.get(FORCE, {"lock": [admin_id("default", key) for key in chosen]})


def test_lock_is_released_from_its_page_and_logged(client: Client, held: Any, seen: Events) -> None:
    """[D 3.2] What is freed is shown first; then it is freed, and actor and reason are written down."""
    info = inspection.find("a")
    assert FORCE in text(client.get(detail("a")))
    page = ask(client, "a")
    holder = (str(info.holder.host), f"pid {info.holder.pid}", str(info.fence))
    for expected in (*holder, "nobody", "The holder keeps running until it notices"):
        assert expected in text(page)
    after = client.post(FORCE, confirmed(page), follow=True)
    assert messages(after) == ["Released: a."]
    assert held_keys() == ["b", "c"]
    (event,) = seen.of(events.ForceReleased)
    assert (event.key, event.reason) == ("a", "it hangs")
    assert event.actor.startswith("visitor-")
    entry = LogEntry.objects.get()
    assert (entry.user.get_username(), entry.object_repr, entry.action_flag) == (event.actor, "a", CHANGE)
    assert entry.change_message == f"Released by force (fence {info.fence}): it hangs"
    assert "it hangs" in text(client.get(detail("a").replace("change", "history")))
    assert detail("a") in text(client.get("/admin/"))


def test_several_locks_are_released_from_the_list(client: Client, held: Any) -> None:
    """The message names the first five."""
    many = [f"k{number}" for number in range(8)]
    held.update({key: in_thread(locks.lock(key, expire=60).acquire) for key in many})
    page = choose(client, *many)
    assert [one["lock"].key for one in page.context["locks"]] == many
    assert held_keys() == ["a", "b", "c", *many]
    after = client.post(FORCE, confirmed(page), follow=True)
    assert messages(after) == ["8 locks were released: k0, k1, k2, k3, k4, …."]
    assert sorted(keys(after)) == ["a", "b", "c"]
    assert LogEntry.objects.count() == 8


def test_only_a_post_releases(client: Client, held: Any) -> None:
    """[D57] sidekiq-unique-jobs freed locks with links; whatever prefetches links freed them too."""
    query = urlencode(confirmed(ask(client, "a")), doseq=True)
    for method in ("get", "head", "options", "put", "delete"):
        for url in (FORCE, detail("a"), LIST, detail("a").replace("change", "delete")):
            getattr(client, method)(f"{url}?{query}&post=yes&action=force_release&_selected_action=default:a")
            assert held_keys() == ["a", "b", "c"], (method, url)
    assert client.put(FORCE).status_code == 405


def test_post_without_the_csrf_token_releases_nothing(held: Any) -> None:
    """[D57] Without the token of the form nothing is freed; with it, one is."""
    client = visitor(VIEW, RELEASE, enforce_csrf_checks=True)
    page = ask(client, "a")
    assert client.post(FORCE, confirmed(page)).status_code == 403
    assert held_keys() == ["a", "b", "c"]
    tokens = re.findall(r'name="csrfmiddlewaretoken" value="(\w+)"', text(page).partition(f'action="{FORCE}"')[2])
    client.post(FORCE, {**confirmed(page), "csrfmiddlewaretoken": tokens[0]})
    assert held_keys() == ["b", "c"]


def test_forged_fence_or_missing_reason_releases_nothing(client: Client, held: Any) -> None:
    """[D58] Without a reason the page comes again, with what is held now."""
    data = confirmed(ask(client, "a"))
    for fence in ("0", "1", "", "-1", "x", "\N{FULLWIDTH DIGIT NINE}", "9" * 19, "9" * 400, "1e3", None):
        data["fence"] = [] if fence is None else [fence]
        (message,) = messages(client.post(FORCE, data, follow=True))
        assert message.startswith("Nothing was released"), fence
        assert held_keys() == ["a", "b", "c"], fence
    for reason in ("", "   ", "x" * 201, "nul\x00"):
        again = client.post(FORCE, confirmed(ask(client, "a"), reason))
        assert (again.status_code, bool(again.context["form"].errors)) == (200, True), reason
        assert [one["lock"].key for one in again.context["locks"]] == ["a"]
        assert held_keys() == ["a", "b", "c"]
    assert not LogEntry.objects.exists()


def test_new_holder_since_the_page_was_shown_keeps_its_lock(client: Client, held: Any) -> None:
    """[D58]"""
    data = confirmed(ask(client, "a", "b"))
    held["a"].release()
    held["a"] = in_thread(locks.lock("a", expire=60).acquire)
    after = client.post(FORCE, data, follow=True)
    assert messages(after) == [
        "Released: b.",
        "Nothing was released: a isn't held by the holder that you saw any more.",
    ]
    assert held_keys() == ["a", "c"]
    held["a"].ensure_held()


def test_lock_that_is_free_by_now_is_no_error(client: Client, held: Any) -> None:
    """Before the page: back to the list. After it: nothing to do, which isn't an error."""
    data = confirmed(ask(client, "a"))
    held["a"].release()
    assert messages(client.post(FORCE, data, follow=True)) == ["It was free already: a."]
    for lock in (admin_id("default", "a"), "", "nonsense", "nobody:a", "default:", ":a"):
        response = client.get(FORCE, {"lock": lock}, follow=True)
        assert messages(response) == ["None of these locks is held any more."], lock
        client.post(FORCE, {"lock": [lock], "fence": ["1"], "reason": "r"}, follow=True)
        assert sorted(keys(response)) == held_keys() == ["b", "c"]


def test_selection_across_pages_releases_nothing(client: Client, held: Any) -> None:
    """[D59] `select_across` emptied all rows of the prototype."""
    assert choose(client, "a", select_across="1").status_code == 302
    assert messages(client.get(LIST)) == ["Locks are released page by page, not all at once."]
    assert held_keys() == ["a", "b", "c"]


def test_lock_of_another_alias_is_not_touched(client: Client, held: Any, settings: Any) -> None:
    """Whatever the form says."""
    table = settings.REDIS_LOCKS
    settings.REDIS_LOCKS = {**table, "other": {**table["default"], "KEY_PREFIX": "other"}}
    grant = in_thread(locks["other"].lock("a", expire=60).acquire)
    action = {"action": "force_release", "_selected_action": [admin_id("other", "a")]}
    assert messages(client.post(LIST, action, follow=True)) == ["None of these locks is held any more."]
    after = client.post(FORCE, confirmed(client.post(f"{LIST}?alias=other", action)))
    assert after["Location"] == f"{LIST}?alias=other"
    assert held_keys() == ["a", "b", "c"]
    with pytest.raises(LockError):
        grant.release()


@pytest.mark.parametrize("atomic", [False, True], ids=["autocommit", "atomic requests"])
def test_failed_audit_releases_and_is_shown_and_logged(
    client: Client, held: Any, atomic: bool, settings: Any, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    """[D63] Whether the database can be written or not. Fails as a statement does on most databases: no other one may
    follow."""

    def fail(*args: Any, **options: Any) -> None:
        with transaction.atomic(savepoint=False):
            raise DatabaseError("this table can't be written")

    monkeypatch.setattr(type(LogEntry.objects), "log_actions", fail)
    data = confirmed(ask(client, "a"))
    if atomic:
        monkeypatch.setitem(settings.DATABASES["default"], "ATOMIC_REQUESTS", True)
    with caplog.at_level(logging.WARNING, "django_redis_locks"):
        after = client.post(FORCE, data, follow=True)
    assert messages(after) == ["The admin's log couldn't be written.", "Released: a."]
    assert held_keys() == ["b", "c"]
    (record,) = [record for record in caplog.records if record.name == "django_redis_locks.admin"]
    assert isinstance(record.exc_info[1], DatabaseError)
    assert any("released by force: it hangs" in record.getMessage() for record in caplog.records)


def test_lock_without_an_index_is_found_and_released_by_its_key(client: Client, memory_locks: Any) -> None:
    """[INDEX off] The list shows why it is empty; what isn't listed can be found and freed all the same."""
    memory_locks(INDEX=False)
    grant = in_thread(locks.lock("order:42", expire=60).acquire)
    assert "because its INDEX is off" in text(client.get(LIST))
    for query, found in (({}, []), ({"q": "order"}, []), ({"q": "order:42"}, ["order:42"])):
        assert keys(client.get(LIST, query)) == found
    after = client.post(FORCE, confirmed(ask(client, "order:42")), follow=True)
    assert messages(after) == ["Released: order:42."]
    with pytest.raises(LockError):
        grant.release()


def test_waiter_is_shown_and_gets_the_released_lock(client: Client, held: Any) -> None:
    """[D 3.2]"""
    turn: list[Grant] = []
    waiter = threading.Thread(target=lambda: turn.append(locks.lock("a", expire=60, wait=-1).acquire()), daemon=True)
    waiter.start()
    until(lambda: inspection.find("a").waiting)
    page = ask(client, "a")
    assert "1 process" in text(page)
    assert "1 process" in text(client.get(detail("a")))
    assert [lock.waiting for lock in client.get(LIST, {"q": "a"}).context["cl"].result_list] == [1]
    client.post(FORCE, confirmed(page))
    waiter.join(10)
    turn[0].release()

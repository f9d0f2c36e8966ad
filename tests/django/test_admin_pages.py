"""The admin: the list of held locks, the page of a lock, and force release, confirmed with the fence that was shown."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from html import unescape
from typing import Any
from urllib.parse import urlencode
from zoneinfo import ZoneInfo

import pytest
from django.contrib.admin.models import CHANGE, LogEntry
from django.db import DatabaseError, transaction
from django.test import Client
from redis import Redis

from django_redis_locks import Grant, LockError, inspection, locks
from django_redis_locks.admin import HeldLockAdmin
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
from tests.django.helpers import LEASE, PATIENCE, Events, in_thread, parse_seconds, wait_until
from tests.probes.django import admin_id, events
from tests.probes.engine import set_most_listed

__all__ = ["urlpatterns"]

pytestmark = pytest.mark.django_db

Hold = Callable[..., Any]


@pytest.fixture
def client() -> Client:
    return client_with_permissions(VIEW, RELEASE)


@pytest.fixture
def hold() -> Iterator[Hold]:
    """`hold("a", "b", expire=60)`: until the end of the test."""
    with ExitStack() as stack:

        def take(*wanted: str, using: str = "default", **options: Any) -> None:
            for key in wanted:
                stack.enter_context(locks[using].lock(key, **{"expire": 60, **options}))

        yield take


def columns(response: Any) -> dict[str, str]:
    """Of the first row, without markup."""
    found = re.findall(
        r'<t[dh] class="(?:action-checkbox |nowrap )?field-(\w+)[^>]*>(.*?)</t[dh]>', visible_text(response)
    )
    return {name.removeprefix("shown_"): re.sub(r"<[^>]+>", "", value) for name, value in found[::-1]}


def test_list_shows_key_holder_and_times_of_a_lock(client: Client, store: str, hold: Hold) -> None:
    hold("order:42", expire=90, note="for <b>Ada</b>")
    row = columns(client.get(LIST))
    info = inspection.find("order:42")
    assert [row[name] for name in ("key", "state")] == ["order:42", "held"]
    assert unescape(" ".join(row["holder"].split())) == str(info.holder)
    assert "(for &lt;b&gt;Ada&lt;/b&gt;)" in row["holder"]
    assert parse_seconds(row["held_for"]) < 30
    assert 60 <= parse_seconds(row["lease_left"]) < 90
    assert row["waiting"] == "0"


def test_list_is_sorted_by_each_column_both_ways(client: Client, store: str, hold: Hold) -> None:
    """All locks are sorted, not only those of one page."""
    for key, name, expire in (("a", "m", 90), ("b", "n", 30), ("c", "l", 60)):
        hold(key, name=name, expire=expire)
        wait_until(lambda key=key: inspection.find(key).held_for > 0.002)
    # key, held for, lease left
    for column, expected in ((1, "abc"), (4, "cba"), (5, "bca")):
        assert listed_keys(client.get(LIST, {"o": f"{column}"})) == [*expected], column
        assert listed_keys(client.get(LIST, {"o": f"-{column}"})) == [*expected[::-1]], column


def test_search_finds_parts_of_keys_and_patterns(client: Client, redis_locks: str, hold: Hold) -> None:
    """Parts match in any case; patterns match whole keys; brackets have no special meaning."""
    hold("order:42", "order:7", "Report[1]")
    for query, found in (("ORDER", ["order:42", "order:7"]), ("order:?", ["order:7"]), ("t[1]", ["Report[1]"])):
        assert sorted(listed_keys(client.get(LIST, {"q": query}))) == found
    nothing = client.get(LIST, {"q": "nobody"})
    assert listed_keys(nothing) == []
    assert "There are no such locks now." in visible_text(nothing)


def test_list_is_filtered_by_state(client: Client, settings: Any, redis_url: str, hold: Hold) -> None:
    settings.REDIS_LOCKS = {"default": {"LOCATION": redis_url, "LOCKS": {"slow": {"MAX_HOLD": 0.01}}}}
    hold("usual", "slow")
    in_thread(locks.lock("crashed", expire=LEASE, wait=PATIENCE).acquire)
    wait_until(lambda: inspection.counts().expired and inspection.held(state="overdue").rows)
    assert sorted(listed_keys(client.get(LIST))) == ["slow", "usual"]
    assert sorted(listed_keys(client.get(LIST, {"state": "all"}))) == ["crashed", "slow", "usual"]
    overdue, expired = (client.get(LIST, {"state": state}) for state in ("overdue", "expired"))
    assert (listed_keys(overdue), listed_keys(expired)) == (["slow"], ["crashed"])
    assert columns(overdue)["state"] == "overdue"
    assert columns(expired)["lease_left"].startswith("ended ")


def test_locks_of_two_aliases_are_listed_separately(
    client: Client, settings: Any, redis_locks: str, hold: Hold
) -> None:
    """One alias at a time, the default one first; the title names it. With a single alias there is no filter."""
    page = visible_text(client.get(LIST))
    assert "No lock is held now." in page
    assert "?alias=" not in page
    entry = settings.REDIS_LOCKS["default"]
    settings.REDIS_LOCKS = {"payments": {**entry, "KEY_PREFIX": "pay"}, "default": entry}
    hold("a", "same")
    hold("same", "p", using="payments")
    for query, alias, found in (({}, "default", ["a", "same"]), ({"alias": "payments"}, "payments", ["p", "same"])):
        response = client.get(LIST, query)
        assert sorted(listed_keys(response)) == found
        assert f"Held locks of the alias {alias}" in visible_text(response)
        page = visible_text(client.get(lock_url("same", alias)))
        assert str(inspection.find("same", alias).fence) in page
        assert ("--alias payments" in page) is (alias == "payments")


def test_page_of_the_list_has_fifty_locks(
    client: Client, store: str, hold: Hold, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those with the shortest leases are on the first page. A subclass may change the length of a page."""
    wanted = [f"k{number:03}" for number in range(120)]
    for number, key in enumerate(wanted):
        hold(key, expire=60 + number)
    first, last = client.get(LIST), client.get(LIST, {"p": "3"})
    assert (listed_keys(first), listed_keys(last)) == (wanted[:50], wanted[100:])
    assert "120 held locks" in visible_text(first)
    assert "120 results" not in visible_text(first)  # without a filter there is no link to show all
    assert "120 results" in visible_text(client.get(LIST, {"q": "k"}))
    assert len(listed_keys(client.get(LIST, {"all": ""}))) == 50
    monkeypatch.setattr(HeldLockAdmin, "list_per_page", 100)
    assert listed_keys(client.get(LIST, {"p": "2"})) == wanted[100:]


def test_page_reads_the_locks_once(
    client: Client, redis_locks: str, hold: Hold, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sorting by fields of the records must not read them twice. If there are more locks than are sorted, the page says
    so."""
    hold(*(f"k{number:03}" for number in range(60)))
    calls = []
    held = inspection.held
    monkeypatch.setattr(inspection, "held", lambda *args, **options: calls.append(options) or held(*args, **options))
    for query in ({}, {"p": "2"}, {"o": "4"}, {"p": "2", "o": "-8", "q": "k"}, {"q": "k001"}):
        calls.clear()
        assert listed_keys(client.get(LIST, query))
        assert len(calls) == 1, query
    set_most_listed(monkeypatch, 3)
    for query, partial in (({"o": "1"}, True), ({}, False)):
        assert ("Only those whose leases end first" in visible_text(client.get(LIST, query))) is partial


def test_unknown_query_parameter_is_refused_as_by_the_admin(client: Client, redis_locks: str, hold: Hold) -> None:
    """Ignoring `?key__contains=1` would show wrong rows. Other invalid parameters are no server error."""
    hold("a" * 100)
    for query in ("alias=nobody", "state=bogus", "key__contains=1", "unknown=1", "id=x"):
        assert client.get(f"{LIST}?{query}")["Location"].endswith("?e=1"), query
        assert "invalid_setup" in client.get(f"{LIST}?{query}&e=1").template_name, query
    for query in ("p=99", "p=-1", "p=99999999999999999999", "p=x", "o=99", "o=x.-y", "q=%00", "q=*****************a"):
        assert client.get(f"{LIST}?{query}").status_code in (200, 302), query


HOSTILE = [
    "<script>alert(1)</script>",
    "a/b?c#d&e=f",
    "../../..",
    "quote\"and'more",
    "new\nline\x00nul",
    "default:default:",
]
HOSTILE += ["100%25%2F_3A", "订单:42", "\u202egnp.exe", "{{ 7|add:7 }}{% now 'Y' %}", " spaces ", "k" * 300]


def test_key_with_markup_is_escaped_and_linked(client: Client, redis_locks: str) -> None:
    """[D57] A key may contain user input. Its URL leads to this lock only, without escapes that servers refuse, such as
    %00."""
    for key in HOSTILE:
        with locks.lock(key, name="n", expire=50), locks.lock("bystander", expire=60):
            response = client.get(LIST)
            link = unescape(re.findall(r'field-shown_key[^>]*><a href="([^"]+)"', visible_text(response))[0])
            assert not re.search(r"%(00|20)", link)
            fence = locks.lock(key).holder().fence
            page = client.get(link)
            assert page.context["original"].fence == fence
            (button,) = re.findall(r'<a href="([^"]+)" class="redis-lock-force"', visible_text(page))
            confirm = client.get(unescape(button))
            assert [one.lock.fence for one in confirm.context["locks"]] == [fence]
            assert not any("<script>alert" in visible_text(shown) for shown in (response, page, confirm))
            assert "\u202e" not in visible_text(page)
            assert "{{ 7" in visible_text(page) or "7|add" not in key


def test_page_of_a_lock_shows_time_zone_holder_and_command(
    client: Client, store: str, hold: Hold, settings: Any
) -> None:
    """[D62] With `USE_TZ = False` local times, without a name. Of a free lock that it is free; the address of no lock
    redirects."""
    settings.TIME_ZONE = "Asia/Shanghai"
    hold("order:42")
    info = inspection.find("order:42")
    page = visible_text(client.get(lock_url("order:42")))
    since = f'datetime="{info.since.isoformat(timespec="seconds")}"'
    holder = ("order:42", str(info.holder.pid), info.holder.host, info.holder.thread, str(info.fence))
    for expected in (*holder, since, "CST", "python manage.py redis_locks show order:42", "no process"):
        assert expected in page
    assert 'name="_save"' not in page
    settings.USE_TZ = False
    (since,) = re.findall(r"<time [^>]*>([^<]*)</time>", visible_text(client.get(lock_url("order:42"))))
    assert since.endswith(f"{info.since.astimezone(ZoneInfo('Asia/Shanghai')):%H:%M:%S}")
    page = visible_text(client.get(lock_url("free")))
    assert "No process holds it." in page
    assert "redis-lock-force" not in page
    for id in ("nonsense", "nobody_3Aorder", "default_3A", "_3A", "default"):
        assert client.get(f"{LIST}{id}/change/").status_code == 302, id


def test_foreign_value_under_a_key_is_shown_and_not_released(client: Client, redis_locks: str) -> None:
    grant = locks.lock("order:42", expire=60).acquire()
    with closing(Redis.from_url(redis_locks)) as server:
        server.set("lock:{0}:k:order:42", "something else")
    assert columns(client.get(LIST))["state"] == "not a lock"
    page = visible_text(client.get(lock_url("order:42")))
    assert "The store has something else under its key" in page
    assert "redis-lock-force" not in page
    with pytest.raises(LockError):
        grant.release()


# Force release


@pytest.fixture
def held(redis_locks: str) -> Iterator[dict[str, Grant]]:
    """Three held locks. At the end, a lock that has another holder is released by force."""
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
    """The data that the form of this page sends."""
    chosen = [one.lock for one in page.context["locks"]]
    return {"lock": [lock.pk for lock in chosen], "fence": [str(lock.fence) for lock in chosen], "reason": reason}


def choose(client: Client, *chosen: str, **more: str) -> Any:
    """The action of the list."""
    data = {"action": "force_release", "_selected_action": [admin_id("default", key) for key in chosen], **more}
    return client.post(LIST, data)


def ask(client: Client, *chosen: str) -> Any:
    """The page of the button."""
    return client.get(FORCE, {"lock": [admin_id("default", key) for key in chosen]})


def test_lock_is_released_from_its_page_and_logged(client: Client, held: Any, received: Events) -> None:
    """A first page shows the lock. After its confirmation the lock is released, and actor and reason are logged."""
    info = inspection.find("a")
    assert FORCE in visible_text(client.get(lock_url("a")))
    page = ask(client, "a")
    holder = (str(info.holder.host), f"pid {info.holder.pid}", str(info.fence))
    for expected in (*holder, "no process", "The holder keeps running until it notices"):
        assert expected in visible_text(page)
    after = client.post(FORCE, confirmed(page), follow=True)
    assert page_messages(after) == ["Released: a."]
    assert held_keys() == ["b", "c"]
    (event,) = received.of(events.ForceReleased)
    assert (event.key, event.reason) == ("a", "it hangs")
    assert event.actor.startswith("visitor-")
    entry = LogEntry.objects.get()
    assert (entry.user.get_username(), entry.object_repr, entry.action_flag) == (event.actor, "a", CHANGE)
    assert entry.change_message == f"Released by force (fence {info.fence}): it hangs"
    assert "it hangs" in visible_text(client.get(lock_url("a").replace("change", "history")))
    assert lock_url("a") in visible_text(client.get("/admin/"))


def test_several_locks_are_released_from_the_list(client: Client, held: Any) -> None:
    """The message names the first five."""
    many = [f"k{number}" for number in range(8)]
    held.update({key: in_thread(locks.lock(key, expire=60).acquire) for key in many})
    page = choose(client, *many)
    assert [one.lock.key for one in page.context["locks"]] == many
    assert held_keys() == ["a", "b", "c", *many]
    after = client.post(FORCE, confirmed(page), follow=True)
    assert page_messages(after) == ["8 locks were released: k0, k1, k2, k3, k4, …."]
    assert sorted(listed_keys(after)) == ["a", "b", "c"]
    assert LogEntry.objects.count() == 8


def test_only_a_post_with_the_csrf_token_releases(client: Client, held: Any) -> None:
    """[D57] A GET request, such as by a browser that prefetches links, releases nothing."""
    page = ask(client, "a")
    query = urlencode(confirmed(page), doseq=True)
    for method in ("get", "head", "options", "put", "delete"):
        for url in (FORCE, lock_url("a"), LIST, lock_url("a").replace("change", "delete")):
            getattr(client, method)(f"{url}?{query}&post=yes&action=force_release&_selected_action=default:a")
            assert held_keys() == ["a", "b", "c"], (method, url)
    assert client.put(FORCE).status_code == 405
    client = client_with_permissions(VIEW, RELEASE, enforce_csrf_checks=True)
    page = ask(client, "a")
    assert client.post(FORCE, confirmed(page)).status_code == 403
    assert held_keys() == ["a", "b", "c"]
    tokens = re.findall(
        r'name="csrfmiddlewaretoken" value="(\w+)"', visible_text(page).partition(f'action="{FORCE}"')[2]
    )
    client.post(FORCE, {**confirmed(page), "csrfmiddlewaretoken": tokens[0]})
    assert held_keys() == ["b", "c"]


def test_forged_fence_or_missing_reason_releases_nothing(client: Client, held: Any) -> None:
    """[D58] Without a reason the page is shown again, with the current holder."""
    data = confirmed(ask(client, "a"))
    for fence in ("0", "1", "", "-1", "x", "\N{FULLWIDTH DIGIT NINE}", "9" * 19, "9" * 400, "1e3", None):
        data["fence"] = [] if fence is None else [fence]
        (message,) = page_messages(client.post(FORCE, data, follow=True))
        assert message.startswith("Nothing was released"), fence
        assert held_keys() == ["a", "b", "c"], fence
    for reason in ("", "   ", "x" * 201, "nul\x00"):
        again = client.post(FORCE, confirmed(ask(client, "a"), reason))
        assert (again.status_code, bool(again.context["form"].errors)) == (200, True), reason
        assert [one.lock.key for one in again.context["locks"]] == ["a"]
        assert held_keys() == ["a", "b", "c"]
    assert not LogEntry.objects.exists()


def test_holder_that_acquired_after_the_page_was_shown_keeps_its_lock(client: Client, held: Any) -> None:
    """[D58]"""
    data = confirmed(ask(client, "a", "b"))
    held["a"].release()
    held["a"] = in_thread(locks.lock("a", expire=60).acquire)
    after = client.post(FORCE, data, follow=True)
    assert page_messages(after) == [
        "Released: b.",
        "Nothing was released: a isn't held by the holder that you saw any more.",
    ]
    assert held_keys() == ["a", "c"]
    held["a"].ensure_held()


def test_releasing_a_lock_that_is_already_free_is_no_error(client: Client, held: Any) -> None:
    """If it is free before the page is shown, there is a redirect to the list."""
    data = confirmed(ask(client, "a"))
    held["a"].release()
    assert page_messages(client.post(FORCE, data, follow=True)) == ["It was free already: a."]
    for lock in (admin_id("default", "a"), "", "nonsense", "nobody:a", "default:", ":a"):
        response = client.get(FORCE, {"lock": lock}, follow=True)
        assert page_messages(response) == ["None of these locks is held any more."], lock
        client.post(FORCE, {"lock": [lock], "fence": ["1"], "reason": "r"}, follow=True)
        assert sorted(listed_keys(response)) == held_keys() == ["b", "c"]


def test_selection_of_all_pages_releases_nothing(client: Client, held: Any) -> None:
    """[D59] `select_across` isn't supported."""
    assert choose(client, "a", select_across="1").status_code == 302
    assert page_messages(client.get(LIST)) == ["Locks are released page by page, not all at once."]
    assert held_keys() == ["a", "b", "c"]


def test_lock_with_the_same_key_in_another_alias_is_not_released(client: Client, held: Any, settings: Any) -> None:
    """With any data in the form."""
    table = settings.REDIS_LOCKS
    settings.REDIS_LOCKS = {**table, "other": {**table["default"], "KEY_PREFIX": "other"}}
    grant = in_thread(locks["other"].lock("a", expire=60).acquire)
    action = {"action": "force_release", "_selected_action": [admin_id("other", "a")]}
    assert page_messages(client.post(LIST, action, follow=True)) == ["None of these locks is held any more."]
    after = client.post(FORCE, confirmed(client.post(f"{LIST}?alias=other", action)))
    assert after["Location"] == f"{LIST}?alias=other"
    assert held_keys() == ["a", "b", "c"]
    with pytest.raises(LockError):
        grant.release()


@pytest.mark.parametrize("atomic", [False, True], ids=["autocommit", "atomic requests"])
def test_lock_is_released_and_the_error_shown_when_the_audit_entry_fails(
    client: Client, held: Any, atomic: bool, settings: Any, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    """[D63] The audit entry fails like a statement after which most databases accept no other one in the
    transaction."""

    def fail(*args: Any, **options: Any) -> None:
        with transaction.atomic(savepoint=False):
            raise DatabaseError("this table can't be written")

    monkeypatch.setattr(type(LogEntry.objects), "log_actions", fail)
    data = confirmed(ask(client, "a"))
    if atomic:
        monkeypatch.setitem(settings.DATABASES["default"], "ATOMIC_REQUESTS", True)
    with caplog.at_level(logging.WARNING, "django_redis_locks"):
        after = client.post(FORCE, data, follow=True)
    assert page_messages(after) == ["The admin's log couldn't be written.", "Released: a."]
    assert held_keys() == ["b", "c"]
    (record,) = [record for record in caplog.records if record.name == "django_redis_locks.admin"]
    assert isinstance(record.exc_info[1], DatabaseError)
    assert any("released by force: it hangs" in record.getMessage() for record in caplog.records)


def test_lock_without_an_index_is_found_and_released_by_its_key(client: Client, memory_locks: Any) -> None:
    """With INDEX off the list says why it is empty. Locks can still be found and released by key."""
    memory_locks(INDEX=False)
    grant = in_thread(locks.lock("order:42", expire=60).acquire)
    assert "because its INDEX is off" in visible_text(client.get(LIST))
    for query, found in (({}, []), ({"q": "order"}, []), ({"q": "order:42"}, ["order:42"])):
        assert listed_keys(client.get(LIST, query)) == found
    after = client.post(FORCE, confirmed(ask(client, "order:42")), follow=True)
    assert page_messages(after) == ["Released: order:42."]
    with pytest.raises(LockError):
        grant.release()


def test_list_after_a_release_has_the_same_filters_and_order(client: Client, held: Any) -> None:
    """[D7] From the action, from the page of the lock, and after cancelling."""
    query = {"q": "a", "state": "all", "o": "1"}
    action = {"action": "force_release", "_selected_action": admin_id("default", "a")}
    for page in (
        client.post(f"{LIST}?{urlencode(query)}", action),
        client.get(FORCE, {"lock": admin_id("default", "a"), "_changelist_filters": urlencode(query)}),
    ):
        assert page.context["list_url"] == f"{LIST}?{urlencode(query)}"
        assert page.context["back_url"].endswith("?" + urlencode({"_changelist_filters": urlencode(query)}))
    after = client.post(FORCE, {**confirmed(page), "_changelist_filters": urlencode(query)})
    assert after.headers["Location"] == f"{LIST}?{urlencode(query)}"
    link = client.get(lock_url("b"), {"_changelist_filters": "q=b"}).context["force_release_url"]
    assert link.endswith("&_changelist_filters=q%3Db")
    assert client.get(link).context["list_url"] == f"{LIST}?q=b"


def test_keys_that_differ_in_invisible_characters_look_different(client: Client, hold: Hold) -> None:
    """[D7] Spaces, control characters, and text that looks like an escape."""
    keys_alike = ["a b", "a  b", "a\nb", "a\\nb", " a b", "a b ", "a\xa0b"]
    hold(*keys_alike)
    page = visible_text(client.get(LIST))
    shown = re.findall(r'<span class="redis-lock-key" title="[^"]*">([^<]*)</span>', page)
    assert len({" ".join(key.split()) for key in shown}) == len(keys_alike) == len(shown)


def test_waiter_is_shown_and_gets_the_released_lock(client: Client, held: Any) -> None:
    grants: list[Grant] = []
    waiter = threading.Thread(target=lambda: grants.append(locks.lock("a", expire=60, wait=-1).acquire()), daemon=True)
    waiter.start()
    wait_until(lambda: inspection.find("a").waiting)
    page = ask(client, "a")
    assert "1 process" in visible_text(page)
    assert "1 process" in visible_text(client.get(lock_url("a")))
    assert [lock.waiting for lock in client.get(LIST, {"q": "a"}).context["cl"].result_list] == [1]
    client.post(FORCE, confirmed(page))
    waiter.join(10)
    grants[0].release()

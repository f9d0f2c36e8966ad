"""The list of held locks in the admin, and the page of one."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from html import unescape
from typing import Any
from urllib.parse import quote as percent
from zoneinfo import ZoneInfo

import pytest
from django.test import Client
from redis import Redis

from django_redis_locks import LockError, inspection, locks
from django_redis_locks.admin import HeldLockAdmin
from tests.django.admin_site import LIST, RELEASE, VIEW, detail, keys, text, urlpatterns, visitor
from tests.django.helpers import LEASE, MEMORY, PATIENCE, in_thread, seconds, until

__all__ = ["urlpatterns"]

pytestmark = pytest.mark.django_db

Hold = Callable[..., Any]


@pytest.fixture
def client() -> Client:
    return visitor(VIEW)


@pytest.fixture
def hold() -> Iterator[Hold]:
    """`hold("a", "b", expire=60)`: until the end of the test."""
    with ExitStack() as stack:

        def take(*wanted: str, using: str = "default", **terms: Any) -> None:
            for key in wanted:
                stack.push(locks[using].lock(key, **{"expire": 60, **terms}).acquire().__exit__)

        yield take


@pytest.fixture
def two_aliases(settings: Any, redis_url: str) -> None:
    settings.REDIS_LOCKS = {
        "payments": {"LOCATION": redis_url, "KEY_PREFIX": "pay"},
        "default": {"LOCATION": redis_url},
    }


def columns(response: Any) -> dict[str, str]:
    """Of the first row, without markup."""
    found = re.findall(r'<t[dh] class="(?:action-checkbox |nowrap )?field-(\w+)[^>]*>(.*?)</t[dh]>', text(response))
    return {name.removeprefix("shown_"): re.sub(r"<[^>]+>", "", value) for name, value in found[::-1]}


def links(response: Any) -> list[str]:
    """To the pages of the locks in the list."""
    return [unescape(link) for link in re.findall(r'field-shown_key[^>]*><a href="([^"]+)"', text(response))]


def test_list_shows_all_that_is_known_of_a_lock(client: Client, store: str, hold: Hold) -> None:
    hold("order:42", expire=90)
    row = columns(client.get(LIST))
    info = inspection.find("order:42")
    assert row["key"] == "order:42"
    assert row["name"] == "order"
    assert row["kind"] == "lock"
    assert row["state"] == "held"
    assert " ".join(row["holder"].split()) == str(info.holder)
    assert seconds(row["held_for"]) < 30
    assert 60 <= seconds(row["lease_left"]) < 90
    assert row["fence"] == str(info.fence)
    assert row["waiting"] == "0"


def test_list_begins_with_the_lease_that_ends_first(client: Client, redis_locks: str, hold: Hold) -> None:
    hold("late", expire=90)
    hold("soon", expire=30)
    hold("later", expire=120)
    assert keys(client.get(LIST)) == ["soon", "late", "later"]


SORTED_BY = {
    "key": (0, ["a", "b", "c"]),
    "name": (7, ["c", "a", "b"]),
    "held for": (3, ["c", "b", "a"]),
    "lease left": (4, ["b", "c", "a"]),
    "fence": (6, ["a", "b", "c"]),
}


def test_list_is_sorted_by_each_column_both_ways(client: Client, store: str, hold: Hold) -> None:
    """[D 3.2] Over all locks and not only those of a page."""
    for key, name, expire in (("a", "m", 90), ("b", "n", 30), ("c", "l", 60)):
        hold(key, name=name, expire=expire)
        until(lambda key=key: inspection.find(key).held_for > 0.002)
    for column, expected in SORTED_BY.values():
        assert keys(client.get(LIST, {"o": f"{column}"})) == expected
        assert keys(client.get(LIST, {"o": f"-{column}"})) == expected[::-1]


def test_search_finds_parts_of_keys_and_patterns(client: Client, redis_locks: str, hold: Hold) -> None:
    """[D 3.2] A part in capitals or not; a pattern is the whole key; brackets are nothing special."""
    hold("order:42", "order:7", "Report[1]")
    assert sorted(keys(client.get(LIST, {"q": "ORDER"}))) == ["order:42", "order:7"]
    assert keys(client.get(LIST, {"q": "order:?"})) == ["order:7"]
    assert keys(client.get(LIST, {"q": "*42"})) == ["order:42"]
    assert keys(client.get(LIST, {"q": "t[1]"})) == ["Report[1]"]
    nothing = client.get(LIST, {"q": "nobody"})
    assert keys(nothing) == []
    assert "There are no such locks now." in text(nothing)


def test_list_is_filtered_by_state(client: Client, settings: Any, redis_url: str, hold: Hold) -> None:
    settings.REDIS_LOCKS = {"default": {"LOCATION": redis_url, "LOCKS": {"slow": {"MAX_HOLD": 0.01}}}}
    hold("usual", "slow")
    in_thread(locks.lock("crashed", expire=LEASE, wait=PATIENCE).acquire)
    until(lambda: inspection.counts().expired and inspection.held(state="overdue").rows)
    assert sorted(keys(client.get(LIST))) == ["slow", "usual"]
    assert keys(client.get(LIST, {"state": "overdue"})) == ["slow"]
    assert keys(client.get(LIST, {"state": "expired"})) == ["crashed"]
    assert sorted(keys(client.get(LIST, {"state": "all"}))) == ["crashed", "slow", "usual"]
    assert columns(client.get(LIST, {"state": "overdue"}))["state"] == "overdue"
    assert columns(client.get(LIST, {"state": "expired"}))["lease_left"].startswith("ended ")


def test_locks_of_two_aliases_are_listed_apart(client: Client, two_aliases: None, hold: Hold) -> None:
    """One is shown at a time, the default one first wherever it stands in the settings; the title says which."""
    hold("a", "same")
    hold("same", "p", using="payments")
    first, second = client.get(LIST), client.get(LIST, {"alias": "payments"})
    assert sorted(keys(first)) == ["a", "same"]
    assert sorted(keys(second)) == ["p", "same"]
    assert "Held locks of the alias default" in text(first)
    assert "Held locks of the alias payments" in text(second)
    assert "2 held locks" in text(second)
    fences = {inspection.find("same", alias).fence for alias in ("default", "payments")}
    assert len(fences) == 2
    for alias in ("default", "payments"):
        page = text(client.get(detail("same", alias)))
        assert str(inspection.find("same", alias).fence) in page
        assert ("--alias payments" in page) is (alias == "payments")


def test_empty_list_of_a_single_alias_has_no_filter(client: Client, redis_locks: str) -> None:
    page = text(client.get(LIST))
    assert "No lock is held now." in page
    assert 'aria-label="By alias"' not in page
    assert "?alias=" not in page


def test_page_of_the_list_has_fifty_locks(client: Client, store: str, hold: Hold) -> None:
    for number in range(120):
        hold(f"k{number:03}", expire=60 + number)
    first, last = client.get(LIST), client.get(LIST, {"p": "3"})
    assert keys(first) == [f"k{number:03}" for number in range(50)]
    assert keys(last) == [f"k{number:03}" for number in range(100, 120)]
    assert "120 held locks" in text(first)
    assert "120 results" not in text(first)  # nor a link to show all: nothing was chosen
    assert "120 results" in text(client.get(LIST, {"q": "k"}))
    assert sorted(keys(client.get(LIST, {"p": "2", "o": "0"}))) == sorted(keys(client.get(LIST, {"p": "2"})))
    assert len(keys(client.get(LIST, {"all": ""}))) == 50


@pytest.mark.parametrize(("per_page", "show_all"), [(7, 0), (10, 150)])
def test_subclass_may_change_the_length_of_a_page(
    client: Client, redis_locks: str, hold: Hold, per_page: int, show_all: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HeldLockAdmin, "list_per_page", per_page)
    monkeypatch.setattr(HeldLockAdmin, "list_max_show_all", show_all)
    for number in range(120):
        hold(f"k{number:03}", expire=60 + number)
    pages = [keys(client.get(LIST, {"p": str(number + 1)})) for number in range(-(-120 // per_page))]
    assert pages == [
        [f"k{number:03}" for number in range(120)][first : first + per_page] for first in range(0, 120, per_page)
    ]
    assert len(keys(client.get(LIST, {"all": ""}))) == (120 if show_all else per_page)


def test_page_reads_the_locks_once(
    client: Client, redis_locks: str, hold: Hold, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sorted by what only the locks know, a second reading of all of them would double the time."""
    for number in range(60):
        hold(f"k{number:03}")
    calls = []
    held = inspection.held
    monkeypatch.setattr(inspection, "held", lambda *args, **terms: calls.append(terms) or held(*args, **terms))
    for query in ({}, {"p": "2"}, {"o": "3"}, {"p": "2", "o": "-7", "q": "k"}, {"q": "k001"}):
        calls.clear()
        assert keys(client.get(LIST, query))
        assert len(calls) == 1, query


def test_unknown_parameter_is_refused_as_by_the_admin(client: Client, redis_locks: str) -> None:
    """`?key__contains=1` with the wrong rows would be a lie."""
    pages = ["p=99", "p=-1", "p=99999999999999999999"]
    for query in ("alias=nobody", "state=bogus", "key__contains=1", "unknown=1", "id=x", *pages):
        for url in (f"{LIST}?{query}", f"{LIST}?{query}&e=1"):
            response = client.get(url)
            if query in pages:
                assert response.status_code in (200, 302), query
            elif "e=1" in url.split("&"):
                assert "invalid_setup" in response.template_name, query
            else:
                assert response["Location"].endswith("?e=1"), query


def test_nonsense_in_the_query_is_never_a_server_error(client: Client, redis_locks: str, hold: Hold) -> None:
    hold("a" * 100)
    for query in ("o=99", "o=x.-y", "o=8", "p=x", "q=%00", "q=*****************a", "foo__bar__baz=1"):
        assert client.get(f"{LIST}?{query}").status_code in (200, 302, 400), query


HOSTILE = [
    "<script>alert(1)</script>",
    "a/b?c#d&e=f",
    "../../..",
    "quote\"and'more",
    "new\nline\x00nul",
    "default:default:",
    "100%25%2F_3A",
    "订单:42",
    "\u202egnp.exe",
    "{{ 7|add:7 }}{% now 'Y' %}",
    " spaces ",
    "k" * 300,
]


def test_hostile_key_is_shown_and_never_run(redis_locks: str) -> None:
    """[D57] A key is what a user typed; its address leads to it and to no other lock."""
    client = visitor(VIEW, RELEASE)
    for key in HOSTILE:
        with locks.lock(key, name="n", expire=50), locks.lock("bystander", expire=60):
            response = client.get(LIST)
            link = links(response)[0]
            shown = next(iter(response.context["cl"].result_list))
            assert "<script>alert" not in text(response)
            page = client.get(link)
            assert page.status_code == 200
            assert page.context["original"].fence == shown.fence == locks.lock(key).holder().fence
            assert "<script>alert" not in text(page)
            assert "\u202e" not in text(page)
            assert "{{ 7" in text(page) or "7|add" not in key
            (button,) = re.findall(r'<a href="([^"]+)" class="redis-lock-force"', text(page))
            confirm = client.get(unescape(button))
            assert [one["lock"].fence for one in confirm.context["locks"]] == [shown.fence]
            assert "<script>alert" not in text(confirm)


def test_page_of_a_lock_shows_time_zone_holder_and_command(
    client: Client, store: str, hold: Hold, settings: Any
) -> None:
    """[D62] With `USE_TZ = False` local times, without a name."""
    settings.TIME_ZONE = "Asia/Shanghai"
    hold("order:42")
    info = inspection.find("order:42")
    page = text(client.get(detail("order:42")))
    since = f'datetime="{info.since.isoformat(timespec="seconds")}"'
    holder = ("order:42", str(info.holder.pid), info.holder.host, info.holder.thread, str(info.fence))
    for expected in (*holder, since, "CST", "python manage.py redis_locks show order:42", "nobody"):
        assert expected in page
    assert 'name="_save"' not in page
    settings.USE_TZ = False
    (since,) = re.findall(r"<time [^>]*>([^<]*)</time>", text(client.get(detail("order:42"))))
    assert since.endswith(f"{info.since.astimezone(ZoneInfo('Asia/Shanghai')):%H:%M:%S}")


def test_page_of_a_free_lock_shows_that_it_is_free(client: Client, redis_locks: str) -> None:
    """The address of no lock redirects."""
    page = client.get(detail("order:42"))
    assert page.status_code == 200
    assert "Nobody holds it." in text(page)
    assert "redis-lock-force" not in text(page)
    for id in ("nonsense", "nobody_3Aorder", "default_3A", "_3A", "default"):
        assert client.get(f"{LIST}{id}/change/").status_code == 302, id


def test_foreign_value_under_a_key_is_shown_and_not_released(redis_locks: str) -> None:
    client = visitor(VIEW, RELEASE)
    grant = locks.lock("order:42", expire=60).acquire()
    with closing(Redis.from_url(redis_locks)) as server:
        server.set("lock:{0}:k:order:42", "something else")
    with suppress(LockError):
        assert columns(client.get(LIST))["state"] == "not a lock"
        page = text(client.get(detail("order:42")))
        assert "Something else lives under its key" in page
        assert "redis-lock-force" not in page
        grant.release()


def test_alias_without_an_index_shows_why_the_list_is_empty(
    client: Client, settings: Any, hold: Hold, request: pytest.FixtureRequest
) -> None:
    """[INDEX off] One lock can be looked at all the same."""
    settings.REDIS_LOCKS = {"default": {"BACKEND": MEMORY, "INDEX": False}}
    hold("order:42")
    empty = client.get(LIST)
    assert keys(empty) == []
    assert "because its INDEX is off" in text(empty)
    assert keys(client.get(LIST, {"q": "order:42"})) == ["order:42"]
    assert keys(client.get(LIST, {"q": "order"})) == []
    assert "1 held lock" in text(client.get(LIST, {"q": "order:42"}))


def test_more_locks_than_are_sorted_are_announced(
    client: Client, redis_locks: str, hold: Hold, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inspection, "MOST", 3)
    hold("a", "b", "c", "d", "e")
    assert "Only those whose leases end first" in text(client.get(LIST, {"o": "0"}))
    assert "Only those whose leases end first" not in text(client.get(LIST))


def test_address_of_a_lock_has_no_escapes_that_servers_refuse(client: Client, redis_locks: str, hold: Hold) -> None:
    """Such as %00."""
    hold("a\x00b c%d")
    (link,) = links(client.get(LIST))
    assert not re.search(r"%(00|20)", link)
    assert percent("a\x00b") not in link

"""The list of held locks in the admin, and the page of one."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from html import unescape
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.test import Client
from redis import Redis

from django_redis_locks import LockError, inspection, locks
from django_redis_locks.admin import HeldLockAdmin
from tests.django.admin_site import LIST, RELEASE, VIEW, detail, keys, text, urlpatterns, visitor
from tests.django.helpers import LEASE, PATIENCE, in_thread, seconds, until

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
                stack.enter_context(locks[using].lock(key, **{"expire": 60, **terms}))

        yield take


def columns(response: Any) -> dict[str, str]:
    """Of the first row, without markup."""
    found = re.findall(r'<t[dh] class="(?:action-checkbox |nowrap )?field-(\w+)[^>]*>(.*?)</t[dh]>', text(response))
    return {name.removeprefix("shown_"): re.sub(r"<[^>]+>", "", value) for name, value in found[::-1]}


def test_list_shows_all_that_is_known_of_a_lock(client: Client, store: str, hold: Hold) -> None:
    hold("order:42", expire=90)
    row = columns(client.get(LIST))
    info = inspection.find("order:42")
    assert [row[name] for name in ("key", "name", "kind", "state")] == ["order:42", "order", "lock", "held"]
    assert " ".join(row["holder"].split()) == str(info.holder)
    assert seconds(row["held_for"]) < 30
    assert 60 <= seconds(row["lease_left"]) < 90
    assert (row["fence"], row["waiting"]) == (str(info.fence), "0")


def test_list_is_sorted_by_each_column_both_ways(client: Client, store: str, hold: Hold) -> None:
    """[D 3.2] Over all locks and not only those of a page."""
    for key, name, expire in (("a", "m", 90), ("b", "n", 30), ("c", "l", 60)):
        hold(key, name=name, expire=expire)
        until(lambda key=key: inspection.find(key).held_for > 0.002)
    # key, name, held for, lease left, fence
    for column, expected in ((0, "abc"), (7, "cab"), (3, "cba"), (4, "bca"), (6, "abc")):
        assert keys(client.get(LIST, {"o": f"{column}"})) == [*expected], column
        assert keys(client.get(LIST, {"o": f"-{column}"})) == [*expected[::-1]], column


def test_search_finds_parts_of_keys_and_patterns(client: Client, redis_locks: str, hold: Hold) -> None:
    """[D 3.2] A part in capitals or not; a pattern is the whole key; brackets are nothing special."""
    hold("order:42", "order:7", "Report[1]")
    for query, found in (("ORDER", ["order:42", "order:7"]), ("order:?", ["order:7"]), ("t[1]", ["Report[1]"])):
        assert sorted(keys(client.get(LIST, {"q": query}))) == found
    nothing = client.get(LIST, {"q": "nobody"})
    assert keys(nothing) == []
    assert "There are no such locks now." in text(nothing)


def test_list_is_filtered_by_state(client: Client, settings: Any, redis_url: str, hold: Hold) -> None:
    settings.REDIS_LOCKS = {"default": {"LOCATION": redis_url, "LOCKS": {"slow": {"MAX_HOLD": 0.01}}}}
    hold("usual", "slow")
    in_thread(locks.lock("crashed", expire=LEASE, wait=PATIENCE).acquire)
    until(lambda: inspection.counts().expired and inspection.held(state="overdue").rows)
    assert sorted(keys(client.get(LIST))) == ["slow", "usual"]
    assert sorted(keys(client.get(LIST, {"state": "all"}))) == ["crashed", "slow", "usual"]
    overdue, expired = (client.get(LIST, {"state": state}) for state in ("overdue", "expired"))
    assert (keys(overdue), keys(expired)) == (["slow"], ["crashed"])
    assert columns(overdue)["state"] == "overdue"
    assert columns(expired)["lease_left"].startswith("ended ")


def test_locks_of_two_aliases_are_listed_apart(client: Client, settings: Any, redis_locks: str, hold: Hold) -> None:
    """One is shown at a time, the default one first wherever it stands in the settings; the title says which. A single
    one has no filter."""
    page = text(client.get(LIST))
    assert "No lock is held now." in page
    assert "?alias=" not in page
    entry = settings.REDIS_LOCKS["default"]
    settings.REDIS_LOCKS = {"payments": {**entry, "KEY_PREFIX": "pay"}, "default": entry}
    hold("a", "same")
    hold("same", "p", using="payments")
    for query, alias, found in (({}, "default", ["a", "same"]), ({"alias": "payments"}, "payments", ["p", "same"])):
        response = client.get(LIST, query)
        assert sorted(keys(response)) == found
        assert f"Held locks of the alias {alias}" in text(response)
        page = text(client.get(detail("same", alias)))
        assert str(inspection.find("same", alias).fence) in page
        assert ("--alias payments" in page) is (alias == "payments")


def test_page_of_the_list_has_fifty_locks(
    client: Client, store: str, hold: Hold, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those whose leases end first are on the first one. A subclass may change the length of a page."""
    wanted = [f"k{number:03}" for number in range(120)]
    for number, key in enumerate(wanted):
        hold(key, expire=60 + number)
    first, last = client.get(LIST), client.get(LIST, {"p": "3"})
    assert (keys(first), keys(last)) == (wanted[:50], wanted[100:])
    assert "120 held locks" in text(first)
    assert "120 results" not in text(first)  # nor a link to show all: nothing was chosen
    assert "120 results" in text(client.get(LIST, {"q": "k"}))
    assert len(keys(client.get(LIST, {"all": ""}))) == 50
    for per_page, show_all in ((7, 0), (100, 150)):
        monkeypatch.setattr(HeldLockAdmin, "list_per_page", per_page)
        monkeypatch.setattr(HeldLockAdmin, "list_max_show_all", show_all)
        assert keys(client.get(LIST, {"p": "2"})) == wanted[per_page : 2 * per_page]
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


def test_unknown_parameter_is_refused_as_by_the_admin(client: Client, redis_locks: str, hold: Hold) -> None:
    """`?key__contains=1` with the wrong rows would be a lie. Other nonsense is no server error."""
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


def test_hostile_key_is_shown_and_never_run(redis_locks: str) -> None:
    """[D57] A key is what a user typed; its address leads to it and to no other lock, without the escapes that servers
    refuse, such as %00."""
    client = visitor(VIEW, RELEASE)
    for key in HOSTILE:
        with locks.lock(key, name="n", expire=50), locks.lock("bystander", expire=60):
            response = client.get(LIST)
            link = unescape(re.findall(r'field-shown_key[^>]*><a href="([^"]+)"', text(response))[0])
            assert not re.search(r"%(00|20)", link)
            fence = locks.lock(key).holder().fence
            page = client.get(link)
            assert page.context["original"].fence == fence
            (button,) = re.findall(r'<a href="([^"]+)" class="redis-lock-force"', text(page))
            confirm = client.get(unescape(button))
            assert [one["lock"].fence for one in confirm.context["locks"]] == [fence]
            assert not any("<script>alert" in text(shown) for shown in (response, page, confirm))
            assert "\u202e" not in text(page)
            assert "{{ 7" in text(page) or "7|add" not in key


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


def test_more_locks_than_are_sorted_are_announced(
    client: Client, redis_locks: str, hold: Hold, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inspection, "MOST", 3)
    hold("a", "b", "c", "d", "e")
    for query, partial in (({"o": "0"}, True), ({}, False)):
        assert ("Only those whose leases end first" in text(client.get(LIST, query))) is partial

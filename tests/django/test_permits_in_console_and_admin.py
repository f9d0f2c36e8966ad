"""Semaphores and read-write locks, on the command line and in the admin: each holder with its fence, permits and lease."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from html import unescape
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry

from django_redis_locks import Grant, LockLost, LockNotOwned, inspection, locks, release_dead
from tests.django.admin_site import (
    FORCE,
    LIST,
    RELEASE,
    VIEW,
    client_with_permissions,
    lock_url,
    page_messages,
    urlpatterns,
    visible_text,
)
from tests.django.helpers import in_thread, wait_until
from tests.django.test_console import call
from tests.probes.django import admin_id

__all__ = ["urlpatterns"]

pytestmark = pytest.mark.django_db


@pytest.fixture
def held(redis_locks: str) -> Iterator[dict[str, list[Grant]]]:
    """A semaphore with three holders, a lock with two readers, and one with a writer."""
    with ExitStack() as stack:

        def hold(lock: Any, **options: Any) -> Grant:
            grant: Grant = in_thread(lambda: lock.acquire(**options))
            stack.callback(release, grant)
            return grant

        yield {
            "geocoder": [
                hold(locks.semaphore("geocoder", 5, expire=60 + n, note=f"row {n}"), permits=1 + n // 2)
                for n in range(3)
            ],
            "stock": [hold(locks.rwlock("stock", expire=60 + n).read) for n in range(2)],
            "prices": [hold(locks.rwlock("prices", expire=60).write)],
        }


def release(grant: Grant) -> None:
    with suppress(LockLost, LockNotOwned):  # released by force, or by the test
        grant.release()


def fences(key: str) -> list[int]:
    return [holder.fence for holder in inspection.find(key).holders]


class TestConsole:
    def test_show_prints_each_holder(self, held: dict[str, list[Grant]]) -> None:
        for key, permits in {"geocoder": ["1", "1", "2"], "stock": ["1", "1"], "prices": ["all"]}.items():
            lines = [" ".join(line.split()) for line in call("show", key).out.splitlines()]
            shown = [line for line in lines if line.startswith("holder ")]
            for line, grant, taken in zip(shown, held[key], permits, strict=True):
                assert f"fence {grant.fence}, permits {taken}, held for 0." in line
                assert re.search(r"lease left (59 s|1 m 0\d s)$", line)
            assert not any(line.startswith(("fence ", "lease left ")) for line in lines)
        assert "row 2" in call("show", "geocoder").out

    def test_json_names_each_holder(self, held: dict[str, list[Grant]]) -> None:
        document = call("show", "geocoder", "--json").document
        assert document["limit"] == 5
        assert [
            (one["fence"], one["permits"], one["note"], round(one["lease_left"], -1)) for one in document["holders"]
        ] == [(grant.fence, 1 + n // 2, f"row {n}", 60.0) for n, grant in enumerate(held["geocoder"])]
        (writer,) = call("show", "prices", "--json").document["holders"]
        assert (writer["permits"], writer["held_for"] < 60) == ("all", True)

    def test_release_ends_the_holds_that_were_shown_or_one_of_them(self, held: dict[str, list[Grant]]) -> None:
        first, second, third = (grant.fence for grant in held["geocoder"])
        assert call("release", "geocoder", "--yes", f"--fence={second}").code == 0
        assert fences("geocoder") == [first, third]
        assert call("release", "geocoder", "--yes").code == 0
        assert fences("geocoder") == []
        assert fences("stock") == [grant.fence for grant in held["stock"]]


class TestAdmin:
    def test_list_shows_how_many_permits_are_in_use(self, held: dict[str, list[Grant]]) -> None:
        text = visible_text(client_with_permissions(VIEW).get(LIST))
        for key, use in {"geocoder": "4 of 5 permits", "stock": "2 readers", "prices": "a writer"}.items():
            assert re.search(rf">{key}</span> <span class=\"redis-lock-thread\">{use}</span>", text), key
        assert "(row 0) (+2)" in text

    def test_page_lists_the_holders_with_a_link_to_release_each(self, held: dict[str, list[Grant]]) -> None:
        text = visible_text(client_with_permissions(VIEW).get(lock_url("geocoder")))
        assert [grant.fence for grant in held["geocoder"]] == [int(n) for n in re.findall(r"<td[^>]*>(\d{16})<", text)]
        assert "Release…" not in text
        assert "field-host" not in text
        client = client_with_permissions(VIEW, RELEASE)
        page = client.get(lock_url("geocoder"))
        second = held["geocoder"][1].fence
        (link,) = [
            unescape(url) for url in re.findall(r'<a href="([^"]+)">Release…', visible_text(page)) if str(second) in url
        ]
        confirm = client.get(link)
        assert [row.fence for row in confirm.context["locks"]] == [second]
        assert "Release this hold" in visible_text(confirm)
        assert ">all<" in visible_text(client.get(lock_url("prices")))

    def test_only_the_holds_that_were_shown_are_released_and_logged(self, held: dict[str, list[Grant]]) -> None:
        client = client_with_permissions(VIEW, RELEASE)
        first, second, third = (grant.fence for grant in held["geocoder"])
        id = admin_id("default", "geocoder")
        refused = client.post(FORCE, {"lock": [id], "fence": [second], "reason": ""})
        assert [row.fence for row in refused.context["locks"]] == [second]
        chosen = {"lock": [id, id], "fence": [first, third], "reason": "stuck"}
        assert page_messages(client.post(FORCE, chosen, follow=True)) == ["Released: geocoder."]
        assert fences("geocoder") == [second]
        logged = [entry.get_change_message() for entry in LogEntry.objects.order_by("pk")]
        assert logged == [f"Released by force (fence {fence}): stuck" for fence in (first, third)]
        again = client.post(FORCE, chosen, follow=True)
        assert "isn't held by the holder that you saw any more" in page_messages(again)[0]
        everything = client.post(
            LIST, {"action": "force_release", "_selected_action": [id, admin_id("default", "stock")]}
        )
        assert [row.fence for row in everything.context["locks"]] == [second, *fences("stock")]
        assert "Release these 3 holds" in visible_text(everything)

    def test_waiting_callers_are_counted(self, held: dict[str, list[Grant]]) -> None:
        client = client_with_permissions(VIEW)
        assert "no caller" in visible_text(client.get(lock_url("prices")))
        waiter = locks.rwlock("prices", wait=30).read
        with ExitStack() as stack:
            thread = threading.Thread(target=lambda: waiter.acquire().release())
            thread.start()
            stack.callback(thread.join)
            stack.callback(held["prices"][0].release)
            wait_until(lambda: inspection.find("prices").waiting)
            assert "1 caller<" in visible_text(client.get(lock_url("prices")))


def test_only_the_permit_of_a_dead_process_is_shown_and_released(redis_locks: str) -> None:
    """[C21] [L37] Its lease would have lasted for ten minutes."""
    program = (
        "import os, sys; from django_redis_locks import locks;"
        "locks.configure({'default': {'LOCATION': sys.argv[1], 'EXPIRE': 600}});"
        "locks.semaphore('geocoder', 3).acquire(); os._exit(0)"
    )
    environment = {name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"}
    subprocess.run([sys.executable, "-c", program, redis_locks], env=environment, check=True)
    (dead,) = locks.semaphore("geocoder", 3).holders()
    with locks.semaphore("geocoder", 3) as grant:
        (shown,) = release_dead()
        assert [holder.fence for holder in shown.holders] == [shown.fence] == [dead.fence]
        grant.ensure_held(confirm=True)
        assert fences("geocoder") == [grant.fence]


def test_semaphore_is_overdue_if_one_hold_is_longer_than_its_own_max_hold(manual_clock: Any) -> None:
    """A hold with a max_hold of its own, such as a run of a task, isn't judged by MAX_HOLD."""
    semaphore = locks.semaphore("geocoder", 5, expire=10_000)
    grant = semaphore.acquire()
    patient = locks.semaphore("import", 5, expire=10_000, renew=True, max_hold=-1).acquire()
    manual_clock.advance(3601)
    later = semaphore.acquire()
    info = inspection.find("geocoder")
    assert [round(info.seconds_held(holder)) for holder in info.holders] == [3601, 0]
    assert (info.state, inspection.find("import").state) == ("overdue", "held")
    grant.release()
    assert inspection.find("geocoder").state == "held"
    later.release()
    patient.release()

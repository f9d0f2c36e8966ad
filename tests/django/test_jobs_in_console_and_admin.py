"""Jobs among the locks, on the command line and in the admin."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry

from django_redis_locks import Record, inspection, locks
from tests.django.admin_site import (
    LIST,
    RELEASE,
    VIEW,
    client_with_permissions,
    listed_keys,
    lock_url,
    urlpatterns,
    visible_text,
)
from tests.django.test_admin_pages import columns, confirmed
from tests.django.test_console import call

__all__ = ["urlpatterns"]

pytestmark = pytest.mark.django_db

KEY, QUEUED, DONE = "job:export:1", "job:export:2", "job:export:3"


@pytest.fixture
def jobs(redis_locks: str) -> Iterator[dict[str, Record]]:
    """A running job, a waiting one, a finished one, and a lock."""
    running = {"v": 1, "state": "running", "id": "task-1", "holder": ["web-3", 4711, "MainThread", "shop.export"]}
    written = {
        KEY: locks.record(KEY).put(None, running, 60, show_in_admin=True),
        QUEUED: locks.record(QUEUED).put(None, {"v": 1, "state": "queued", "id": "task-2"}, 90, show_in_admin="queued"),
        DONE: locks.record(DONE).put(None, {"v": 1, "state": "done", "id": "task-3"}, 90),
    }
    with locks.lock("a lock", expire=120):
        yield {key: found.record for key, found in written.items() if found.record is not None}


# The command


def test_list_and_stats_show_jobs_with_their_tasks(jobs: dict[str, Record]) -> None:
    """A running job counts as held. Waiting jobs are listed on request."""
    first, second, third, *_ = call("list").out.splitlines()
    assert first.split()[-1] == "TASK"
    assert second.split()[:7] == ["default", KEY, "held", "web-3", "pid", "4711", "MainThread"]
    assert second.split()[-2:] == [str(jobs[KEY].version), "task-1"]
    assert third.startswith("default  a lock")
    waits = call("list", "--state=queued").out.splitlines()[1].split()
    assert (waits[:3], waits[-1]) == (["default", QUEUED, "queued"], "task-2")
    document = call("list", "--state=all", "--json").document
    assert {(one["key"], one["kind"], one["state"], one["task_id"]) for one in document["locks"]} == {
        (KEY, "job", "held", "task-1"),
        (QUEUED, "job", "queued", "task-2"),
        ("a lock", "lock", "held", None),
    }
    assert document["aliases"]["default"]["total"] == 3
    assert call("stats", "--json").document["aliases"]["default"]["queued"] == 1
    lines = [" ".join(line.split()) for line in call("stats").out.splitlines()]
    assert {"held 2", "queued 1"} <= set(lines)


def test_show_prints_state_task_and_holder_of_a_job(jobs: dict[str, Record]) -> None:
    for key, expected in (
        (KEY, ["name shop.export", "kind job", "state held", "task task-1", "holder web-3 pid 4711 MainThread"]),
        (QUEUED, ["name export", "kind job", "state queued", "task task-2"]),
        (DONE, ["kind job", "state done", "task task-3"]),
    ):
        ended = call("show", key)
        lines = [" ".join(line.split()) for line in ended.out.splitlines()]
        assert ended.code == 0
        assert set(expected) <= set(lines)
        assert any(line.startswith("since ") for line in lines)
        assert any(line.startswith("holder ") for line in lines) == (key == KEY)
        assert any(line.startswith("fence ") for line in lines) == (key != DONE)


def test_release_of_a_job_warns_and_frees_it_unless_done_or_another_version(jobs: dict[str, Record]) -> None:
    """Without its record a finished job could run again. Unlike a lock, a record must have exactly the given fence."""
    fences = [f"--fence={jobs[KEY].version + off}" for off in (-1, 1)]
    for key, message, *words in ((DONE, "is done"), *((KEY, "doesn't have the fence", fence) for fence in fences)):
        ended = call("release", key, "--yes", *words)
        assert (ended.code, message in ended.out) == (1, True)
        assert locks.record(key).get() is not None
    for key, warning in ((KEY, "Its holder isn't stopped"), (QUEUED, "It hasn't begun")):
        ended = call("release", key, "--yes")
        assert (ended.code, warning in ended.out) == (0, True)
        assert inspection.find(key).state == "free"


# The admin


def test_admin_list_shows_jobs_with_their_tasks(jobs: dict[str, Record]) -> None:
    client = client_with_permissions(VIEW)
    page = client.get(LIST)
    assert listed_keys(page) == [KEY, "a lock"]
    row = columns(page)
    assert " ".join(row["key"].split()) == f"{KEY} task task-1"
    assert row["state"] == "held"
    assert " ".join(row["holder"].split()) == "web-3 pid 4711 MainThread"
    page = client.get(LIST, {"state": "queued"})
    assert listed_keys(page) == [QUEUED]
    assert columns(page)["state"] == "queued"
    assert "A job that waits to begin." in visible_text(page)
    assert listed_keys(client.get(LIST, {"state": "all"})) == [KEY, QUEUED, "a lock"]


def test_page_of_a_job_names_its_task(jobs: dict[str, Record]) -> None:
    """The page of a finished job has no release button."""
    client = client_with_permissions(VIEW, RELEASE)
    for key, task in ((KEY, "task-1"), (QUEUED, "task-2"), (DONE, "task-3"), ("a lock", None)):
        page = client.get(lock_url(key))
        assert page.status_code == 200
        assert ("force_release_url" in page.context) == (key != DONE)
        assert ("field-task" in visible_text(page)) == (task is not None)
        assert task is None or task in visible_text(page)


def test_task_id_with_markup_is_escaped(redis_locks: str) -> None:
    """A list without jobs has no task column."""
    with locks.lock("a lock"):
        assert "TASK" not in call("list").out
    hostile = "<script>alert(1)</script>\x1b[31m"
    locks.record(KEY).put(None, {"state": "running", "id": hostile}, show_in_admin=True)
    page = visible_text(client_with_permissions(VIEW).get(lock_url(KEY))) + visible_text(
        client_with_permissions(VIEW).get(LIST)
    )
    assert "<script>alert" not in page
    assert "\x1b" not in page + call("list").out + call("show", KEY).out


def test_job_is_released_in_the_admin_like_a_lock(jobs: dict[str, Record]) -> None:
    """[D58] Not if it has started since the page was shown."""
    client = client_with_permissions(VIEW, RELEASE)
    for key, began in ((KEY, False), (QUEUED, True), (QUEUED, False)):
        link: Any = client.get(lock_url(key)).context["force_release_url"]
        page = client.get(link)
        if began:
            locks.record(QUEUED).put(jobs[QUEUED], {"state": "running", "id": "task-2"}, 60, show_in_admin=True)
        client.post(link, confirmed(page))
        assert inspection.find(key).state == ("held" if began else "free")
    assert LogEntry.objects.count() == 2

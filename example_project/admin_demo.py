"""The admin's page of held locks, with 10 000 of them, on a Redis and a database of its own.

    python admin_demo.py                   serve it until Ctrl-C; log in as admin, password admin
    python admin_demo.py --locks 200       with fewer locks
    python admin_demo.py --measure         only print the server time of the pages
    python admin_demo.py --shots FOLDER    only make the screenshots of the documentation, with Chromium

The locks belong to processes of this demo with host names such as web-1 and worker-1.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import socket
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import django

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tools.processes import ServerFailed, ServerNotFound
from tools.redis_server import RedisServer

HOSTS = ("web-1", "web-2", "worker-1", "worker-2")
PAGE = "/admin/django_redis_locks/heldlock/"
MINUTE, HOUR = 60, 3600


def main() -> int:
    parser = argparse.ArgumentParser(description="The admin's page of held locks.")
    parser.add_argument("--locks", type=int, default=10_000, help="number of locks that are held")
    parser.add_argument("--port", type=int, default=8000, help="if it is taken, a free one is used")
    parser.add_argument("--measure", action="store_true", help="only print the server time of the pages")
    parser.add_argument("--shots", type=Path, metavar="FOLDER", help="only draw the pictures of the documentation")
    arguments = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        with ExitStack() as stack:
            show(stack, arguments)
    except KeyboardInterrupt:
        print("\nEnded.")
    except (ServerNotFound, ServerFailed) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def show(stack: ExitStack, arguments: argparse.Namespace) -> None:
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="shop-"))
    os.environ["DJANGO_SETTINGS_MODULE"] = "project.admin_settings"
    os.environ["DATABASE"] = str(Path(folder, "db.sqlite3"))
    os.environ["REDIS_URL"] = stack.enter_context(RedisServer()).url()
    django.setup()
    stack.enter_context(holders(arguments.locks))
    open_admin()
    if arguments.measure:
        measure(arguments.locks)
        return
    from django.contrib.staticfiles.handlers import StaticFilesHandler  # noqa: PLC0415 - after django.setup()
    from project.wsgi import application  # noqa: PLC0415
    from workers import Workers  # noqa: PLC0415

    port = 0 if arguments.shots else arguments.port
    site = stack.enter_context(Workers(StaticFilesHandler(application), port=port, processes=2))
    if arguments.shots:
        draw(site.url, arguments.shots)
        return
    print(f"{site.url}{PAGE}    as admin, password admin. Ctrl-C ends it.", flush=True)
    while True:
        time.sleep(3600)


@contextmanager
def holders(count: int) -> Iterator[None]:
    """Run processes that hold locks, wait for some, and seem to have crashed with others, until the end of the
    block."""
    pids = []
    read, write = os.pipe()
    wait, go = os.pipe()
    for number, host in enumerate(HOSTS):
        pid = os.fork()
        if pid == 0:
            os.close(read)
            os.close(go)
            socket.gethostname = lambda host=host: host  # type: ignore[misc]
            try:
                hold(number, count // len(HOSTS))
                os.write(write, b".")
                os.read(wait, 1)  # until all processes have their locks
                wait_for_others(number)
                signal.pause()
            finally:
                os._exit(0)
        pids.append(pid)
    os.close(write)
    try:
        for _ in HOSTS:
            if not os.read(read, 1):
                raise ServerFailed("The processes that hold locks have failed.")
        os.close(go)
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        os.close(read)
        os.close(wait)


def hold(number: int, count: int) -> None:
    from django_redis_locks import locks  # noqa: PLC0415 - after django.setup()

    chance = random.Random(number)
    for one in range(count - 14):
        name = chance.choice(("order", "cart", "invoice", "import", "mail"))
        locks.lock(f"{name}:{number}{one:05}", expire=chance.uniform(10 * MINUTE, 2 * HOUR)).acquire()
    for one in range(10):
        locks["payments"].lock(f"payment:{number}{one:03}", expire=chance.uniform(MINUTE, HOUR)).acquire()
    locks.lock(f"report:2026-1{number % 3}:{number}", expire=8 * MINUTE, name="report").acquire()  # overdue soon
    locks.lock(f"export:{number}", expire=0.05).acquire()  # as if its process had crashed
    in_thread(lambda: locks.lock(f"tenant:{number}:nightly-sync", expire=5 * MINUTE).acquire(), "nightly-sync")
    if number < len(HOSTS) - 1:
        locks.semaphore("geocoder", limit=5, expire=4 * MINUTE, note=f"import {number}").acquire(
            permits=1 + number // 2
        )
        in_thread(locks.rwlock("catalogue", expire=4 * MINUTE).read.acquire, "show-prices")


def wait_for_others(number: int) -> None:
    from django_redis_locks import locks  # noqa: PLC0415 - after django.setup()

    for other in range(number):
        lock = locks.lock(f"tenant:{other}:nightly-sync", wait=-1)
        threading.Thread(target=lock.acquire, daemon=True).start()
    if number == len(HOSTS) - 1:
        threading.Thread(target=locks.rwlock("catalogue", wait=-1).write.acquire, daemon=True).start()
        locks.rwlock("prices", expire=4 * MINUTE).write.acquire()


def in_thread(work: Callable[[], object], name: str) -> None:
    """Call in a new thread, which then stays alive: it holds the lock."""
    done = threading.Event()

    def run() -> None:
        work()
        done.set()
        threading.Event().wait()

    threading.Thread(target=run, name=name, daemon=True).start()
    done.wait()


def open_admin() -> None:
    from django.contrib.auth.models import User  # noqa: PLC0415 - after django.setup()
    from django.core.management import call_command  # noqa: PLC0415
    from django.db import connections  # noqa: PLC0415

    call_command("migrate", verbosity=0)
    User.objects.create_superuser("admin", password="admin")
    connections.close_all()  # connections of SQLite can't be used after a fork


def draw(url: str, folder: Path) -> None:
    from django.contrib.auth.models import User  # noqa: PLC0415 - after django.setup()
    from django.test import Client  # noqa: PLC0415

    from tools.browser import Browser  # noqa: PLC0415 - only screenshots need a browser

    client = Client(SERVER_NAME="localhost")
    client.force_login(User.objects.get())
    with Browser() as browser:
        for dark in (False, True):
            page = browser.open(1420, 700 if not dark else 500, dark=dark)
            page.cookie(url, "sessionid", client.cookies["sessionid"].value)
            page.goto(f"{url}{PAGE}?state=all")
            page.evaluate("document.querySelector('#toggle-nav-sidebar').click()")
            if not dark:
                page.screenshot(folder / "admin-list.png")
            page.goto(f"{url}{PAGE}?q=tenant:0:nightly-sync")
            page.goto(page.evaluate("document.querySelector('.field-shown_key a').href"))
            page.goto(page.evaluate("document.querySelector('.redis-lock-force').href"))
            if dark:
                page.screenshot(folder / "admin-release.png")


def measure(count: int) -> None:
    """Server time of the pages, without a network and a browser."""
    from django.contrib.auth.models import User  # noqa: PLC0415 - after django.setup()
    from django.test import Client  # noqa: PLC0415

    client = Client(SERVER_NAME="localhost")
    client.force_login(User.objects.get())
    for about, query in {
        "first page": "",
        "a page in the middle": f"p={count // 100}",
        "sorted by key": "o=1",
        "searched": "q=order:1",
        "sorted by held for": "o=-4",
        "another alias": "alias=payments",
    }.items():
        seconds = []
        for _ in range(11):
            begin = time.perf_counter()
            response = client.get(f"{PAGE}?{query}")
            seconds.append(time.perf_counter() - begin)
            if response.status_code != 200 or b"redis-lock-key" not in response.content:
                raise SystemExit(f"{query}: {response.status_code}, without locks")
        median, worst = statistics.median(seconds[1:]), max(seconds[1:])
        print(f"{about:20} median {median * 1000:6.1f} ms   worst {worst * 1000:6.1f} ms")


if __name__ == "__main__":
    sys.exit(main())

"""A rush on a shop, first without a lock, then with one.

    python demo.py            the rush, as a table; the exit code says whether it went as it must
    python demo.py --serve    the shop itself, to click through, until Ctrl-C

Redis, the database and the site's processes are the demo's own, and gone when it ends.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import signal
import sys
import tempfile
import textwrap
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from buyers import crowd
from report import Outcome, explanation, failures, heading, line

from tools.redis_server import RedisServer, ServerFailed, ServerNotFound

BUYERS = 60
SUPPLY = 40
TRIES = 5  # how often the naive form may get away with it, which it hardly does once
PORT = 8000
BOLD, DIM, RED, GREEN = "1", "2", "31", "32"


def main() -> int:
    arguments = parse()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # also where a script started us in the background
    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGHUP, end)
    try:
        with ExitStack() as stack:
            try:
                return serve(stack, arguments) if arguments.serve else rush(stack, arguments)
            finally:
                for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                    signal.signal(number, signal.SIG_IGN)  # nothing disturbs the cleaning
    except KeyboardInterrupt:
        print("\nEnded.")
        return 0 if arguments.serve else 130
    except (ServerNotFound, ServerFailed) as error:
        print(error, file=sys.stderr)
        return 1


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="A rush on a shop, first without a lock, then with one.")
    parser.add_argument("--serve", action="store_true", help="serve the shop until Ctrl-C")
    parser.add_argument("--port", type=int, default=PORT, help="for --serve; if it is taken, a free one is used")
    parser.add_argument("--redis", metavar="URL", help="use this server instead of starting one")
    return parser.parse_args()


def end(number: int, frame: object) -> None:
    raise SystemExit(128 + number)


def serve(stack: ExitStack, arguments: argparse.Namespace) -> int:
    site = start(stack, arguments.redis, arguments.port)
    print(f"The shop is open at {paint(site.url + '/', BOLD)}    Ctrl-C closes it.", flush=True)
    while True:
        time.sleep(3600)


def rush(stack: ExitStack, arguments: argparse.Namespace) -> int:
    site = start(stack, arguments.redis, port=0)
    print(f"\n{BUYERS} buyers at once, {SUPPLY} items in stock, {len(site.pids)} processes; {versions()}\n")
    print(paint(heading(), BOLD))
    print(paint(rule() * len(heading()), DIM), flush=True)
    run("naive", site.url)  # the first requests of a process load what it needs; those don't count
    naive = run("naive", site.url)
    for _ in range(TRIES - 1):
        if naive.oversold:
            break
        naive = run("naive", site.url)
    print(paint(line(naive), RED), flush=True)
    locked = run("locked", site.url)
    print(paint(line(locked), GREEN if locked.oversold == 0 else RED), flush=True)
    wrong = failures(naive, locked)
    if wrong:
        print("", *wrong, sep="\n", file=sys.stderr)
        return 1
    print("", textwrap.fill(explanation(naive, locked), len(heading())), "", sep="\n")
    return 0


def start(stack: ExitStack, redis_url: str | None, port: int) -> Any:
    """Redis, a database of three products, and the site, which ends first."""
    if not hasattr(os, "fork"):
        raise SystemExit("The site runs in forked processes, which this system doesn't have.")
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="shop-"))
    os.environ["DJANGO_SETTINGS_MODULE"] = "project.settings"
    os.environ["DATABASE"] = str(Path(folder, "db.sqlite3"))
    os.environ["REDIS_URL"] = redis_url or stack.enter_context(RedisServer()).url()

    from django.core.management import call_command
    from django.db import connections
    from project.wsgi import application
    from workers import Workers

    call_command("migrate", verbosity=0)
    connections.close_all()  # SQLite's aren't to be carried over a fork
    return stack.enter_context(Workers(application, port=port))


def run(form: str, url: str) -> Outcome:
    """One crowd on one product with a fresh stock."""
    from django.db import transaction
    from shop.models import Order, Product

    with transaction.atomic():
        Order.objects.all().delete()
        Product.objects.update(stock=SUPPLY)
    product = Product.objects.earliest("pk")
    buyers = crowd(f"{url}/{form}/{product.pk}/buy", BUYERS, lambda done: status(f"{form}: {done} of {BUYERS} done"))
    status("")
    product.refresh_from_db()
    return Outcome(
        form,
        supply=SUPPLY,
        sold=product.orders.count(),
        left=product.stock,
        finals=[buyer.last for buyer in buyers],
        statuses=[status for buyer in buyers for status in buyer.statuses],
        seconds=[seconds for buyer in buyers for seconds in buyer.seconds],
    )


def versions() -> str:
    import django

    return f"Django {django.__version__}, Python {platform.python_version()}"


def rule() -> str:
    return "─" if (sys.stdout.encoding or "").lower().startswith("utf") else "-"


def status(text: str) -> None:
    """The line that is being worked on; only where it can be overwritten."""
    if sys.stdout.isatty():
        print(f"\r\033[K{paint(text, DIM)}", end="", flush=True)


def paint(text: str, code: str) -> str:
    if sys.stdout.isatty() and not os.environ.get("NO_COLOR"):
        return f"\033[{code}m{text}\033[0m"
    return text


if __name__ == "__main__":
    sys.exit(main())

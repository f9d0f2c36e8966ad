"""A rush on a shop, first without a lock, then with one, then with one that is waited for; and one on its report.

    python demo.py            both, as tables; the exit code says whether they went as they must
    python demo.py --commit   on PostgreSQL, beside redis-py's lock: which of the two still holds at COMMIT?
    python demo.py --serve    the shop itself, to click through, until Ctrl-C

Redis, the database and the site's processes are the demo's own, and gone when it ends.
"""

from __future__ import annotations

import argparse
import os
import platform
import signal
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import django

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from report import (
    Outcome,
    commit_explanation,
    commit_failures,
    explanation,
    failures,
    heading,
    line,
    visits_explanation,
    visits_failures,
    visits_heading,
    visits_line,
)

from tools.database_servers import PostgreSQL
from tools.processes import ServerFailed, ServerNotFound
from tools.redis_server import RedisServer

TRIES = 10  # attempts to show the fault of a wrong form; one is nearly always enough
PORT = 8000
MANAGE = Path(__file__).with_name("manage.py")
BOLD, DIM, RED, GREEN = "1", "2", "31", "32"


def main() -> int:
    arguments = parse()
    shown = serve if arguments.serve else show_commit if arguments.commit else show
    return run(lambda stack: shown(stack, arguments))


def run(show: Callable[[ExitStack], int], *errors: type[Exception]) -> int:
    """Run a demo, and return its exit code. Its servers, processes and folders, on the stack, are gone at the end, also
    after Ctrl-C or a signal.

    Args:
        show: the demo.
        errors: the errors that are reported by their message alone.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)  # also if started in the background by a script
    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGHUP, end)
    try:
        with ExitStack() as stack:
            try:
                return show(stack)
            finally:
                for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                    signal.signal(number, signal.SIG_IGN)  # no signal interrupts the clean-up
    except KeyboardInterrupt:
        print("\nEnded.")
        return 130
    except (ServerNotFound, ServerFailed, *errors) as error:
        print(error, file=sys.stderr)
        return 1


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="A rush on a shop, and one on its report.")
    parser.add_argument("--serve", action="store_true", help="serve the shop until Ctrl-C")
    parser.add_argument("--commit", action="store_true", help="on PostgreSQL, beside redis-py's lock")
    parser.add_argument("--port", type=int, default=PORT, help="for --serve; if it is taken, a free one is used")
    parser.add_argument("--redis", metavar="URL", help="use this server instead of starting one")
    return parser.parse_args()


def end(number: int, frame: object) -> None:
    raise SystemExit(128 + number)


def serve(stack: ExitStack, arguments: argparse.Namespace) -> int:
    site = stack.enter_context(prepare(stack, arguments.redis).open_site(arguments.port))
    print(f"The shop is open at {paint(site.url + '/', BOLD)}    Ctrl-C closes it.")
    where = (
        "REDIS_URL=…" if arguments.redis else f"REDIS_URL={os.environ['REDIS_URL']}"
    )  # a given URL may contain a password
    print(
        f"Its locks:  {where} {os.path.relpath(sys.executable)} {os.path.relpath(MANAGE)} redis_locks watch", flush=True
    )
    try:
        while True:
            time.sleep(3600)
    except KeyboardInterrupt:
        print("\nEnded.")
        return 0


def show(stack: ExitStack, arguments: argparse.Namespace) -> int:
    stage, site = open_shop(stack, arguments.redis)
    naive = oversell(stage, "naive", site.url)
    locked = stage.run_sale("locked", site.url, status)
    print(paint(line(locked), RED if locked.oversold else GREEN), flush=True)
    waiting = stage.run_sale("waiting", site.url, status)
    wrong = failures(naive, locked, waiting)
    print(paint(line(waiting), RED if wrong else GREEN), flush=True)
    return judge(wrong, explanation(naive, locked, waiting)) or show_report(stage, site.url)


def show_report(stage: Any, url: str) -> int:
    """Many visitors of a cached page that is slow to render."""
    print(f"{stage.VISITORS} visitors at once, a report that takes {stage.reports.COUNTING} s to make", end="\n\n")
    print(paint(visits_heading(), BOLD))
    print(paint(rule() * len(visits_heading()), DIM), flush=True)
    guarded, unguarded = f"{url}/reports/sales/", f"{url}/reports/sales/unguarded/"
    plain = stage.visit_expired("get_or_set, expired", unguarded, status)
    print(paint(visits_line(plain), RED), flush=True)
    expired = stage.visit_expired("get_or_load, expired", guarded, status)
    print(paint(visits_line(expired), RED if visits_failures(plain, expired) else GREEN), flush=True)
    none = stage.visit_none("get_or_load, none yet", guarded, status)
    wrong = visits_failures(plain, expired, none)
    print(paint(visits_line(none), RED if wrong else GREEN), flush=True)
    return judge(wrong, visits_explanation(plain, expired, none))


def show_commit(stack: ExitStack, arguments: argparse.Namespace) -> int:
    """All forms wait for their lock, and the same view is a transaction: ATOMIC_REQUESTS."""
    stage, site = open_shop(stack, arguments.redis, stack.enter_context(PostgreSQL()))
    by_hand = oversell(stage, "by-hand", site.url)
    in_block = stage.run_sale("in-block", site.url, status)
    print(paint(line(in_block), RED if commit_failures(by_hand, in_block) else GREEN), flush=True)
    waiting = stage.run_sale("waiting", site.url, status)
    wrong = commit_failures(by_hand, in_block, waiting)
    print(paint(line(waiting), RED if wrong else GREEN), flush=True)
    return judge(wrong, commit_explanation(by_hand, in_block, waiting))


def open_shop(stack: ExitStack, redis_url: str | None, database: PostgreSQL | None = None) -> tuple[Any, Any]:
    """Open the shop, and print the head of the table."""
    stage = prepare(stack, redis_url, database)
    stage.count_reports()
    site = stack.enter_context(stage.open_site(port=0))
    print(f"\n{stage.BUYERS} buyers at once, {stage.SUPPLY} items in stock, a site of {len(site.pids)} processes")
    where = "PostgreSQL" if database else "SQLite"
    print(paint(f"Django {django.__version__}, Python {platform.python_version()}, {where}", DIM), end="\n\n")
    print(paint(heading(), BOLD))
    print(paint(rule() * len(heading()), DIM), flush=True)
    return stage, site


def oversell(stage: Any, form: str, url: str) -> Outcome:
    stage.run_sale(form, url, status)  # warm-up: the first requests of a process don't count
    for _ in range(TRIES):
        outcome: Outcome = stage.run_sale(form, url, status)
        if outcome.oversold:
            break
    print(paint(line(outcome), RED), flush=True)
    return outcome


def judge(wrong: list[str], text: str) -> int:
    if wrong:
        print("", *wrong, sep="\n", file=sys.stderr)
        return 1
    print("", textwrap.fill(text, len(heading())), "", sep="\n")
    return 0


def prepare(stack: ExitStack, redis_url: str | None, database: PostgreSQL | None = None) -> Any:
    """Start Redis, set up the database and Django, then import the module `stage`, which needs them."""
    if not hasattr(os, "fork"):
        raise SystemExit("The site runs in forked processes, which this system doesn't have.")
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="shop-"))
    os.environ["DJANGO_SETTINGS_MODULE"] = "project.settings"
    os.environ["DATABASE"] = str(database.folder if database else Path(folder, "db.sqlite3"))
    os.environ["REDIS_URL"] = redis_url or stack.enter_context(RedisServer()).url()
    django.setup()

    import stage  # noqa: PLC0415 - it imports models

    return stage


def rule() -> str:
    return "─" if (sys.stdout.encoding or "").lower().startswith("utf") else "-"


def status(text: str) -> None:
    """Print the progress, if the output is a terminal."""
    if sys.stdout.isatty():
        print(f"\r\033[K{paint(text, DIM)}", end="", flush=True)


def paint(text: str, code: str) -> str:
    if text and sys.stdout.isatty() and not os.environ.get("NO_COLOR"):
        return f"\033[{code}m{text}\033[0m"
    return text


if __name__ == "__main__":
    sys.exit(main())

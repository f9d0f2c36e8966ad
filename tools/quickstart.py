"""Follows the quickstarts of README.md and docs/quickstart.md in a new Django project, and fails unless they work as
shown.

The code is that of the page: each Python block after a comment such as `<!-- quickstart: views -->`. The project is
made by `django-admin startproject`, checked by `manage.py check` and served by `runserver`; only the address of the
Redis server is replaced. The `curl` loop of README is run as printed. This process holds the lock to make a request
busy.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from email.message import Message
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from django_redis_locks import locks  # noqa: E402 - found through the line above
from tools.processes import HOST, free_port  # noqa: E402 - found through the line above
from tools.redis_server import RedisServer  # noqa: E402

LOCATION = "redis://127.0.0.1:6379/0"
ADDRESS = "127.0.0.1:8000"
PAGES = {"README.md": "quickstart: ", "docs/quickstart.md": "test: mysite."}
"""The pages, and the first word of the comments above their blocks."""

PATH = "/checkout/1/"
KEY = "checkout:1"
EXPECTED = [200, 409, 200]


def main() -> None:
    with RedisServer() as server:
        locks.configure({"default": {"LOCATION": server.url()}})
        for page, prefix in PAGES.items():
            with tempfile.TemporaryDirectory() as name:
                follow(page, prefix, Path(name), server.url())


def follow(page: str, prefix: str, folder: Path, location: str) -> None:
    text = (ROOT / page).read_text()
    make_project(folder, dict(re.findall(rf"<!-- {prefix}(\w+) -->\s*```python\n(.*?)```", text, re.DOTALL)), location)
    address = f"{HOST}:{free_port()}"
    command = [sys.executable, "manage.py", "runserver", "--noreload", address]
    with (
        (folder / "runserver.log").open("wb") as log,
        subprocess.Popen(command, cwd=folder, stdout=log, stderr=subprocess.STDOUT) as site,
    ):
        try:
            wait_until_served(site, address)
            statuses = visit(f"http://{address}{PATH}")
            for line, shown in re.findall(r"^\$ (for .*curl.*)\n((?:HTTP.*\n)+)", text, re.MULTILINE):
                loop(line.replace(ADDRESS, address), shown)
        except Exception:
            print((folder / "runserver.log").read_text())
            raise
        finally:
            site.terminate()
    print(f"{page}:", *statuses)
    if statuses != EXPECTED:
        sys.exit(f"The quickstart of {page} doesn't work: expected {EXPECTED}.")


def make_project(folder: Path, blocks: dict[str, str], location: str) -> None:
    if blocks.keys() != {"settings", "views", "urls"}:
        sys.exit(f"The quickstart has blocks for {sorted(blocks)}.")
    if LOCATION not in blocks["settings"]:
        sys.exit(f"The settings of the quickstart don't name {LOCATION}, so that it can't be replaced.")
    subprocess.run([sys.executable, "-m", "django", "startproject", "mysite", folder], check=True)
    site = folder / "mysite"
    with (site / "settings.py").open("a") as settings:
        settings.write("\n" + blocks["settings"].replace(LOCATION, location))
    (site / "views.py").write_text(blocks["views"])
    (site / "urls.py").write_text(blocks["urls"])
    subprocess.run([sys.executable, "manage.py", "check", "--tag", "redis_locks"], cwd=folder, check=True)


def visit(url: str) -> list[int]:
    """The statuses while the lock is free, held by this process, and free again."""
    before, _ = get(url)
    with locks.lock(KEY):
        during, headers = get(url)
        if "Retry-After" not in headers:
            sys.exit("The answer of a busy lock has no Retry-After.")
    after, _ = get(url)
    return [before, during, after]


def loop(line: str, shown: str) -> None:
    """Run the shell loop of the page, and compare its output with the page's."""
    done = subprocess.run(["bash", "-c", line], check=True, capture_output=True, text=True)
    if sorted(done.stdout.split()) != sorted(shown.split()):
        sys.exit(f"The loop printed {done.stdout!r} instead of {shown!r}.")


def get(url: str) -> tuple[int, Message]:
    try:
        with urllib.request.urlopen(url, timeout=10) as response:
            return response.status, response.headers
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers


def wait_until_served(site: subprocess.Popen[bytes], address: str) -> None:
    deadline = time.monotonic() + 30
    while site.poll() is None and time.monotonic() < deadline:
        try:
            get(f"http://{address}/")
        except urllib.error.URLError:
            time.sleep(0.05)
        else:
            return
    raise RuntimeError("runserver doesn't answer.")


if __name__ == "__main__":
    main()

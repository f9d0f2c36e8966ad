"""Follows README.md's quickstart to the letter, in a new Django project, and fails unless it does what README says.

The code is cut out of README.md: each fenced block after a comment such as `<!-- quickstart: views -->`. The project is
made by `django-admin startproject` and served by `runserver`; only the server in LOCATION is exchanged for one of our
own. Another request's hold is played by this process, which shares the project's settings: busy while it holds the
lock, served before and after.
"""

from __future__ import annotations

import os
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

from tools.processes import HOST, free_port  # noqa: E402 - found through the line above
from tools.redis_server import RedisServer  # noqa: E402

LOCATION = "redis://127.0.0.1:6379/0"
PATH = "/checkout/1/"
KEY = "checkout:1"
EXPECTED = [200, 409, 200]


def main() -> None:
    with RedisServer() as server, tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_project(folder, server.url())
        address = f"{HOST}:{free_port()}"
        command = [sys.executable, "manage.py", "runserver", "--noreload", address]
        with (
            (folder / "runserver.log").open("wb") as log,
            subprocess.Popen(command, cwd=folder, stdout=log, stderr=subprocess.STDOUT) as site,
        ):
            try:
                wait_until_served(site, address)
                statuses = visit(folder, f"http://{address}{PATH}")
            except Exception:
                print((folder / "runserver.log").read_text())
                raise
            finally:
                site.terminate()
    print("Statuses:", *statuses)
    if statuses != EXPECTED:
        sys.exit(f"README's quickstart doesn't work: expected {EXPECTED}.")


def make_project(folder: Path, location: str) -> None:
    blocks = quickstart_blocks()
    if LOCATION not in blocks["settings"]:
        sys.exit(f"README's settings don't name {LOCATION}, so that it can't be exchanged.")
    subprocess.run([sys.executable, "-m", "django", "startproject", "mysite", folder], check=True)
    site = folder / "mysite"
    with (site / "settings.py").open("a") as settings:
        settings.write("\n" + blocks["settings"].replace(LOCATION, location))
    (site / "views.py").write_text(blocks["views"])
    (site / "urls.py").write_text(blocks["urls"])


def quickstart_blocks() -> dict[str, str]:
    text = (ROOT / "README.md").read_text()
    blocks = dict(re.findall(r"<!-- quickstart: (\w+) -->\s*```python\n(.*?)```", text, re.DOTALL))
    if blocks.keys() != {"settings", "views", "urls"}:
        sys.exit(f"README's quickstart has blocks for {sorted(blocks)}.")
    return blocks


def visit(folder: Path, url: str) -> list[int]:
    """Free, held by another process, free again."""
    sys.path.insert(0, str(folder))
    os.environ["DJANGO_SETTINGS_MODULE"] = "mysite.settings"

    import django

    django.setup()

    from django_redis_locks import locks

    before, _ = get(url)
    with locks.lock(KEY):
        during, headers = get(url)
        if "Retry-After" not in headers:
            sys.exit("The answer of a busy lock has no Retry-After.")
    after, _ = get(url)
    return [before, during, after]


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

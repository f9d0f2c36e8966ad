from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import pytest
from django.test import override_settings

from django_redis_locks import locks
from example_project.buyers import post
from tests.example.helpers import PATIENCE, PROJECT, Shop, close_shop, open_shop

STOCK = 40


def test_locked_form_sells_exactly_the_stock(shop: Shop):
    def buy_until_sold_out(_: int) -> list[int]:
        answers = []
        while 410 not in answers:
            answers.append(shop.buy("locked")[0])
        return answers

    with ThreadPoolExecutor(8) as pool:
        answers = list(chain.from_iterable(pool.map(buy_until_sold_out, range(8))))
    assert set(answers) == {200, 409, 410}
    assert answers.count(200) == STOCK
    product = shop.product()
    assert (product["sold"], product["stock"]) == (STOCK, 0)


def test_locked_form_is_busy_while_another_holder_has_the_key(shop: Shop, redis_url: str):
    with override_settings(REDIS_LOCKS={"default": {"LOCATION": redis_url}}):
        with locks.lock("shop:checkout:1", expire=60):
            status, retry_after = shop.buy("locked")
            assert status == 409
            assert 1 <= retry_after <= 60
            assert shop.buy("locked", 2)[0] == 200
            assert shop.buy("naive")[0] == 200
        assert shop.buy("locked")[0] == 200
    assert shop.product()["sold"] == 2


def test_forms_sell_one_item_each_until_it_is_sold_out(shop: Shop):
    assert [shop.buy(form)[0] for form in ("waiting", "by-hand", "in-block")] == [200] * 3
    assert [shop.buy("naive")[0] for _ in range(STOCK - 3)] == [200] * (STOCK - 3)
    assert [shop.buy(form)[0] for form in ("naive", "locked", "waiting", "by-hand", "in-block")] == [410] * 5
    assert shop.product()["sold"] == STOCK
    assert shop.buy("locked", 99)[0] == 404


def test_confirmation_of_an_order_is_submitted_once(shop: Shop):
    statuses = [post(f"{shop.url}/orders/{order}/confirm")[0] for order in (1, 1, 2)]
    assert statuses == [202, 409, 202]


def test_report_counts_an_order_until_a_restock(shop: Shop):
    """The one of before may be served for as long as the next one takes to make."""
    assert "<td>Coffee grinder<td>0<td>" in shop.report()
    assert shop.buy("locked")[0] == 200
    deadline = time.monotonic() + PATIENCE
    while "<td>Coffee grinder<td>1<td>" not in shop.report():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert "<td>Coffee grinder<td>1<td>" in shop.report("reports/sales/unguarded/")
    assert post(f"{shop.url}/restock")[0] == 302
    assert "<td>Coffee grinder<td>0<td>" in shop.report()


def test_browser_gets_the_page_with_a_message_or_403_if_forged(shop: Shop, redis_url: str):
    token = "b" * 32
    headers = {"Accept": "text/html", "Cookie": f"csrftoken={token}", "X-CSRFToken": token}

    def post_form(**headers: str) -> tuple[int, str, str]:
        try:
            answer = urlopen(Request(f"{shop.url}/locked/1/buy", data=b"", headers=headers), timeout=PATIENCE)
        except HTTPError as error:
            answer = error
        with answer:
            return answer.status, answer.read().decode(), answer.headers.get("Retry-After", "")

    status, page, _ = post_form(**headers)
    assert status == 200
    assert "Coffee grinder: sold. 39 left." in page
    assert page.count("csrfmiddlewaretoken") == 3 * 3 + 1
    assert post_form()[0] == 403
    with override_settings(REDIS_LOCKS={"default": {"LOCATION": redis_url}}), locks.lock("shop:checkout:1", expire=60):
        status, page, retry_after = post_form(**headers)
    assert status == 409
    assert 1 <= int(retry_after) <= 60
    assert "Another buyer is paying for this one." in page


def test_ctrl_c_leaves_nothing_behind(redis_url: str, tmp_path):
    process, url = open_shop(redis_url, tmp_path)
    urlopen(url, timeout=PATIENCE).close()
    assert list(tmp_path.iterdir())
    assert close_shop(process) == 0
    assert not list(tmp_path.iterdir())
    with pytest.raises(URLError):
        urlopen(url, timeout=PATIENCE)


@pytest.mark.parametrize("command", [["check", "--fail-level=WARNING"], ["makemigrations", "--check", "--dry-run"]])
def test_manage_command_finds_no_problem(command: list[str], tmp_path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("DJANGO_SETTINGS_MODULE", raising=False)  # pytest-django sets the tests' own
    monkeypatch.setenv("DATABASE", str(tmp_path / "db.sqlite3"))
    done = subprocess.run(
        [sys.executable, PROJECT / "manage.py", *command], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_command_named_by_the_server_shows_its_locks(redis_executable: None, tmp_path: Path) -> None:
    """`make run` names the command that looks at its locks; copied, it does."""
    command = [sys.executable, str(PROJECT / "demo.py"), "--serve", "--port", "0"]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    environment.pop("DJANGO_SETTINGS_MODULE", None)
    process = subprocess.Popen(command, cwd=PROJECT.parent, env=environment, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        shown = process.stdout.readline().strip().removeprefix("Its locks:  ")
        assert shown.endswith(" redis_locks watch")
        counted = shown.removesuffix("watch") + "stats --json"
        told = subprocess.run(counted, shell=True, cwd=PROJECT.parent, env=environment, check=True, capture_output=True)
        assert json.loads(told.stdout)["aliases"]["default"]["held"] == 0
    finally:
        assert close_shop(process) == 0


def test_admin_demo_measures_pages_with_locks(redis_executable: None) -> None:
    """Each page that it measures comes with locks on it, or it fails."""
    command = [sys.executable, str(PROJECT / "admin_demo.py"), "--measure", "--locks", "200"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 6

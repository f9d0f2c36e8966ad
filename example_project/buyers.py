"""A crowd of HTTP buyers, or visitors, that send their requests at the same moment. A refused buyer retries."""

from __future__ import annotations

import http.client
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from urllib.parse import urlsplit

RETRIES = 20
TIMEOUT = 30.0
CSRF = "a" * 32  # Django compares the header with the cookie; a forged form can't send both
HEADERS = {
    "Accept": "application/json",
    "Cookie": f"csrftoken={CSRF}",
    "X-CSRFToken": CSRF,
    "Content-Length": "0",
    "Connection": "close",
}

ShowProgress = Callable[[int], None]
Visit = tuple[int, float]
"""The status of the response, 0 if there was none, and its seconds."""


@dataclass
class Buyer:
    """The response statuses of one buyer, by request; 0 stands for no response."""

    statuses: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    @property
    def last(self) -> int:
        return self.statuses[-1] if self.statuses else 0

    def buy(self, url: str, over: threading.Event) -> None:
        """Send requests until the item is bought or sold out, with at most `RETRIES` retries."""
        for _ in range(1 + RETRIES):
            began = time.perf_counter()
            status, retry_after = post(url)
            self.seconds.append(time.perf_counter() - began)
            self.statuses.append(status)
            if status != 409 or over.wait(pause(retry_after)):
                return


def pause(retry_after: float) -> float:
    """Retry-After plus up to a quarter, so that buyers don't retry at the same moment."""
    return retry_after * random.uniform(1, 1.25)


def post(url: str) -> tuple[int, float]:
    """The status and `Retry-After`."""
    status, headers = ask("POST", url)
    return status, float(headers.get("Retry-After", 1)) if status else 0.0


def ask(method: str, url: str) -> tuple[int, Mapping[str, str]]:
    """The status and headers of the response; 0 if there is none."""
    target = urlsplit(url)
    connection = http.client.HTTPConnection(str(target.hostname), target.port, timeout=TIMEOUT)
    try:
        connection.request(method, target.path, headers=HEADERS)
        response = connection.getresponse()
        response.read()
    except (OSError, http.client.HTTPException):
        return 0, {}
    finally:
        connection.close()
    return response.status, response.headers


def run_buyers(url: str, number: int, show_progress: ShowProgress = lambda done: None) -> Sequence[Buyer]:
    """Send the requests of `number` buyers to this URL. `tell` gets the number of finished ones from time to time."""
    buyers = [Buyer() for _ in range(number)]
    over = threading.Event()
    try:
        start_at_once([partial(buyer.buy, url, over) for buyer in buyers], show_progress)
    finally:
        over.set()  # after Ctrl-C no buyer retries
    return buyers


def visit(url: str) -> Visit:
    began = time.perf_counter()
    status, _ = ask("GET", url)
    return status, time.perf_counter() - began


def run_visitors(url: str, number: int, show_progress: ShowProgress) -> Sequence[Visit]:
    visits: list[Visit] = []
    start_at_once([lambda: visits.append(visit(url))] * number, show_progress)
    return visits


def start_at_once(acts: Sequence[Callable[[], object]], show_progress: ShowProgress) -> None:
    """Start all of them at the same moment, each in a thread of its own."""
    start = threading.Barrier(len(acts))

    def run(act: Callable[[], object]) -> None:
        start.wait()
        act()

    threads = [threading.Thread(target=run, args=(act,), daemon=True) for act in acts]
    for thread in threads:
        thread.start()
    while alive := sum(thread.is_alive() for thread in threads):
        show_progress(len(acts) - alive)
        time.sleep(0.05)

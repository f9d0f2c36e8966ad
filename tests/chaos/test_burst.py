"""A crowd that comes at once, to a lock that nobody waits for yet."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from django_redis_locks.client import Locks
from tests.proxy import Proxy
from tests.waiting import eventually

Open = Callable[..., Locks]
SIZE = 24


def test_one_question_is_asked_for_a_crowd(open_locks: Open, proxy: Proxy) -> None:
    """[H12] [L25] While the first answer is on its way the others queue up behind who asked: one question, not as many as
    there are threads, nor as many connections."""
    client = open_locks(proxy.url, OPTIONS={"socket_timeout": 20})
    with client.lock("warm up"):
        pass
    proxy.plan("delay", "reply", of="lock/acquire")
    before = len([call for call in proxy.calls if call.name == "lock/acquire"])
    begin = threading.Barrier(SIZE)

    def enter() -> None:
        begin.wait()
        with client.lock("a", wait=20):
            pass

    with ThreadPoolExecutor(SIZE) as threads:
        futures = [threads.submit(enter) for _ in range(SIZE)]
        eventually(lambda: proxy.holds)
        threading.Event().wait(0.3)  # for all of them to have come; what is asserted is how few asked
        asked = len([call for call in proxy.calls if call.name == "lock/acquire"]) - before
        proxy.deliver()
        for future in futures:
            future.result(20)
    assert asked == 1

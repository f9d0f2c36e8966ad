"""The inbox of a process, on a real server: it has a name only while its subscription stands."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import redis

from django_redis_locks.backends.redis import subscriber as module
from django_redis_locks.backends.redis.subscriber import RedisSubscriber
from tests.probes.tuning import Tune
from tests.proxy import Proxy
from tests.unit.backends.redis.subscribers import (
    LOCKS,
    SHOP,
    TICK,
    Opened,
    RecordingHandler,
    begin,
    opened,
    subscriptions,
    thread_of,
)
from tests.waiting import eventually

pytestmark = pytest.mark.usefixtures("short_polls")

Make = Callable[..., RedisSubscriber]


def test_each_subscriber_has_a_random_name(subscriber: RedisSubscriber, make_subscriber: Make, proxy: Proxy) -> None:
    """[H10] Random for each process and store, behind the prefix that its rights are given for. Without one before it is
    opened."""
    assert subscriber.channel_name(LOCKS) == ""
    name = opened(subscriber)
    assert re.fullmatch(r"lock:\{0\}:inbox:[\w-]{12}", name)
    assert subscriber.channel_name(LOCKS) == name
    assert subscriber.channel_name(SHOP) == ""
    assert opened(make_subscriber(proxy.url)) != name


def test_subscriber_passes_on_queue_number_and_lock_key(
    subscriber: RedisSubscriber, handler: RecordingHandler, direct: redis.Redis
) -> None:
    """The number of the queue, and the whole key of the lock, whatever stands in it."""
    name = opened(subscriber)
    messages = [("1", "lock:{0}:k:order:42"), ("7f", "lock:{0}:k:a|b"), ("2", "lock:{0}:k:ключ")]
    for number, lock in messages:
        assert direct.publish(name, f"{number} {lock}") == 1
    eventually(lambda: len(handler.messages) == 3)
    assert handler.messages == messages


def test_subscriber_opened_many_times_subscribes_once(
    subscriber: RedisSubscriber, handler: RecordingHandler, direct: redis.Redis, proxy: Proxy
) -> None:
    """[L25] However many waiters ask for it, at once and later: one thread, one connection, one subscription. [H7] Before it
    is confirmed the inbox has no name, and is answered by nothing: registered it would be passed over as dead."""
    proxy.plan("delay", "reply", of="SUBSCRIBE")
    first = begin(subscriber)
    thread = thread_of(subscriber)
    eventually(lambda: subscriptions(direct, subscriber))
    assert (subscriber.channel_name(LOCKS), first.calls) == ("", 0)
    with ThreadPoolExecutor(8) as threads:
        results = [first, *threads.map(lambda _: begin(subscriber), range(16))]
    proxy.deliver()
    names = {each.wait() for each in [*results, begin(subscriber)]}
    assert names == {subscriber.channel_name(LOCKS)}
    assert [each.calls for each in results] == [1] * 17
    assert thread_of(subscriber) is thread
    assert subscriptions(direct, subscriber) == 1
    assert proxy.fates("SUBSCRIBE") == ["delay reply"]
    assert handler.gaps == 1


def test_subscriber_without_waiters_sends_no_ping_and_is_closed_after_a_while(
    subscriber: RedisSubscriber, handler: RecordingHandler, direct: redis.Redis, proxy: Proxy, tune: Tune
) -> None:
    """[L25] Its connection and its thread are gone; the next waiter has it opened again, under its name."""
    handler.has_waiters = False
    name = opened(subscriber)
    threading.Event().wait(4 * TICK)
    assert proxy.fates("PING") == []
    tune(subscriber_idle=3 * TICK)
    handler.has_waiters = True
    threading.Event().wait(6 * TICK)
    assert subscriber.channel_name(LOCKS) == name, "somebody waits"
    thread = thread_of(subscriber)
    handler.has_waiters = False
    eventually(lambda: not thread.is_alive())
    assert subscriber.channel_name(LOCKS) == ""
    eventually(lambda: not subscriptions(direct, subscriber))
    assert opened(subscriber) == name


def test_subscriber_that_gets_messages_stays_open(
    subscriber: RedisSubscriber,
    handler: RecordingHandler,
    direct: redis.Redis,
    proxy: Proxy,
    monkeypatch: pytest.MonkeyPatch,
    tune: Tune,
) -> None:
    """[L25] An inbox that is told all the time isn't idle, although nobody happens to wait at its first quiet moment."""
    tune(max_poll_interval=60.0)
    received = threading.Event()

    def on_message(number: str, lock: str) -> None:
        tune(max_poll_interval=TICK)  # no quiet moment comes before the message does
        received.set()

    handler.on_message = on_message  # type: ignore[method-assign]
    name = opened(subscriber)
    handler.has_waiters = False
    now = module.now
    monkeypatch.setattr(module, "now", lambda: now() + 100)
    direct.publish(name, "1 lock")
    assert received.wait(20)
    threading.Event().wait(4 * TICK)
    assert subscriber.channel_name(LOCKS) == name
    monkeypatch.setattr(module, "now", lambda: now() + 200)
    eventually(lambda: not subscriptions(direct, subscriber))


def test_waiter_that_arrives_while_the_subscriber_closes_is_woken(
    subscriber: RedisSubscriber, handler: RecordingHandler, monkeypatch: pytest.MonkeyPatch, tune: Tune
) -> None:
    """[H7] [H9] It may have registered under the name: the inbox stays open, and the waiter asks once more."""
    tune(subscriber_idle=0.0)
    handler.has_waiters = False
    closing = threading.Event()
    drop = module.drop

    def closed(connection: Any) -> None:
        mine = subscriber._is_current_thread()  # an earlier test's may be closing too
        handler.has_waiters = handler.has_waiters or mine
        drop(connection)
        if mine:
            closing.set()

    monkeypatch.setattr(module, "drop", closed)
    opened(subscriber)
    assert closing.wait(20)
    eventually(lambda: handler.gaps >= 2)
    assert subscriber.channel_name(LOCKS)


def test_second_prefix_shares_the_connection(
    subscriber: RedisSubscriber, handler: RecordingHandler, direct: redis.Redis, proxy: Proxy, tune: Tune
) -> None:
    """[H7] [L25] Two aliases of one server: both channels on one connection. The thread that listens is interrupted, and
    whoever has the second one opened is answered when it is heard, as the first one was."""
    tune(max_poll_interval=30.0)
    name = opened(subscriber)
    other = opened(subscriber, SHOP)
    assert other == SHOP + name.removeprefix(LOCKS)
    assert subscriber.channel_name(LOCKS) == name
    for channel in (name, other):
        assert direct.publish(channel, f"1 {channel}") == 1
    eventually(lambda: handler.messages == [("1", name), ("1", other)])
    assert len({call.link for call in proxy.calls if call.name == "message"}) == 1
    assert handler.gaps == 2, "what was published meanwhile is lost"


def test_second_prefix_during_the_first_confirmation_is_answered(
    subscriber: RedisSubscriber, handler: RecordingHandler
) -> None:
    """[H7] Only whoever waits for what was confirmed is answered by that."""
    second: list[Opened] = []

    def on_reconnect() -> None:
        if not second:
            second.append(begin(subscriber, SHOP))

    handler.on_reconnect = on_reconnect  # type: ignore[method-assign]
    opened(subscriber)
    assert second[0].wait() == subscriber.channel_name(SHOP) != ""


def test_second_prefix_before_the_first_confirmation_is_answered(subscriber: RedisSubscriber, proxy: Proxy) -> None:
    """[H7] The subscription that is on its way doesn't have it: it begins anew, and both are answered."""
    proxy.plan("delay", "reply", of="SUBSCRIBE")
    first = begin(subscriber)
    eventually(lambda: proxy.fates("SUBSCRIBE"))
    second = begin(subscriber, SHOP)
    assert (first.wait(), second.wait()) == (subscriber.channel_name(LOCKS), subscriber.channel_name(SHOP))
    assert first.name
    assert second.name


def test_closed_subscriber_opens_again_under_its_name(
    subscriber: RedisSubscriber, handler: RecordingHandler, direct: redis.Redis, proxy: Proxy
) -> None:
    """Who waits for the subscription is answered at once; the thread that ends takes neither the next one's connection nor its
    name."""
    proxy.plan("delay", "reply", of="SUBSCRIBE")
    asked = begin(subscriber)
    eventually(lambda: proxy.holds)
    subscriber.close()
    assert asked.calls == 1
    for _ in range(20):
        name = opened(subscriber)
        subscriber.close()
        subscriber.close()
        assert subscriber.channel_name(LOCKS) == ""
        assert opened(subscriber) == name != ""
    proxy.deliver()
    eventually(lambda: subscriptions(direct, subscriber) == 1)
    direct.publish(name, "1 lock")
    eventually(lambda: handler.messages)


def test_thread_that_ends_late_leaves_the_next_one_alone(
    subscriber: RedisSubscriber, handler: RecordingHandler, direct: redis.Redis
) -> None:
    """Closed while it told somebody something, and opened before it was done with that."""
    telling, go_on = threading.Event(), threading.Event()

    def on_message(number: str, lock: str) -> None:
        telling.set()
        go_on.wait(20)

    handler.on_message = on_message  # type: ignore[method-assign]
    name = opened(subscriber)
    thread = thread_of(subscriber)
    direct.publish(name, "1 lock")
    assert telling.wait(20)
    subscriber.close()
    assert opened(subscriber) == name
    go_on.set()
    eventually(lambda: not thread.is_alive())
    assert subscriber.channel_name(LOCKS) == name
    subscriber.close()
    eventually(lambda: not subscriptions(direct, subscriber))

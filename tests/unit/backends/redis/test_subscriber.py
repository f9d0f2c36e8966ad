"""The subscriber of a process, on a real server: its channel has a name only while the subscription is confirmed."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import redis

from django_redis_locks.backends.redis import subscriber as subscriber_module
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
from tools.processes import free_port

pytestmark = pytest.mark.usefixtures("short_polls")

Make = Callable[..., RedisSubscriber]


def test_each_subscriber_has_a_random_name(subscriber: RedisSubscriber, make_subscriber: Make, proxy: Proxy) -> None:
    """[H10] The name is random for each process and store, after the prefix that rights are granted for. Before `open`
    there is none."""
    assert subscriber.channel_name(LOCKS) == ""
    name = opened(subscriber)
    assert re.fullmatch(r"lock:\{0\}:inbox:[\w-]{12}", name)
    assert subscriber.channel_name(LOCKS) == name
    assert subscriber.channel_name(SHOP) == ""
    assert opened(make_subscriber(proxy.url)) != name


def test_subscriber_passes_on_queue_number_and_lock_key(
    subscriber: RedisSubscriber, handler: RecordingHandler, direct: redis.Redis
) -> None:
    """The number of the queue, perhaps with a grant, and the full key of the lock or load, with any characters."""
    name = opened(subscriber)
    messages = [("1", "lock:{0}:k:order:42"), ("7f", "lock:{0}:k:ключ"), ("2,token,9", "{shop:1:top 10}:k:load")]
    for number, lock in messages:
        assert direct.publish(name, f"{number} {lock}") == 1
    eventually(lambda: len(handler.messages) == 3)
    assert handler.messages == messages


def test_subscriber_opened_many_times_subscribes_once(
    subscriber: RedisSubscriber, handler: RecordingHandler, direct: redis.Redis, proxy: Proxy
) -> None:
    """[L25] Any number of waiters share one thread, one connection and one subscription. [H7] Before the confirmation
    there is no channel name and no callback: a registered name would be skipped as dead."""
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
    """[L25] The connection and the thread end; the next waiter opens the subscriber again, with the same name."""
    handler.has_waiters = False
    name = opened(subscriber)
    threading.Event().wait(4 * TICK)
    assert proxy.fates("PING") == []
    handler.has_waiters = True
    tune(subscriber_idle_timeout=3 * TICK)
    threading.Event().wait(6 * TICK)
    assert subscriber.channel_name(LOCKS) == name, "there is a waiter"
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
    """[L25] Each message restarts the idle time, also if no waiter is left when the messages pause."""
    tune(max_poll_interval=60.0)
    received = threading.Event()

    def on_message(number: str, lock: str) -> None:
        tune(max_poll_interval=TICK)  # so that the first pause comes after the message
        received.set()

    handler.on_message = on_message  # type: ignore[method-assign]
    name = opened(subscriber)
    handler.has_waiters = False
    now = subscriber_module.now
    monkeypatch.setattr(subscriber_module, "now", lambda: now() + 100)
    direct.publish(name, "1 lock")
    assert received.wait(20)
    threading.Event().wait(4 * TICK)
    assert subscriber.channel_name(LOCKS) == name
    monkeypatch.setattr(subscriber_module, "now", lambda: now() + 200)
    eventually(lambda: not subscriptions(direct, subscriber))


def test_waiter_that_arrives_while_the_subscriber_closes_is_woken(
    subscriber: RedisSubscriber, handler: RecordingHandler, monkeypatch: pytest.MonkeyPatch, tune: Tune
) -> None:
    """[H7] [H9] The waiter may have registered the name: the subscriber stays open, and the waiter tries once more."""
    tune(subscriber_idle_timeout=0.0)
    handler.has_waiters = False
    closing = threading.Event()
    drop = subscriber_module.drop

    def closed(connection: Any) -> None:
        mine = subscriber._is_current_thread()  # an earlier test's may be closing too
        handler.has_waiters = handler.has_waiters or mine
        drop(connection)
        if mine:
            closing.set()

    monkeypatch.setattr(subscriber_module, "drop", closed)
    opened(subscriber)
    assert closing.wait(20)
    eventually(lambda: handler.gaps >= 2)
    assert subscriber.channel_name(LOCKS)


def test_second_prefix_shares_the_connection(
    subscriber: RedisSubscriber, handler: RecordingHandler, direct: redis.Redis, proxy: Proxy, tune: Tune
) -> None:
    """[H7] [L25] Two aliases of one server use one connection. The reading thread is interrupted, and the second
    callback is called when its channel is confirmed."""
    tune(max_poll_interval=30.0)
    name = opened(subscriber)
    other = opened(subscriber, SHOP)
    assert other == SHOP + name.removeprefix(LOCKS)
    assert subscriber.channel_name(LOCKS) == name
    for channel in (name, other):
        assert direct.publish(channel, f"1 {channel}") == 1
    eventually(lambda: handler.messages == [("1", name), ("1", other)])
    assert len({call.connection for call in proxy.calls if call.name == "message"}) == 1
    assert handler.gaps == 2, "messages published in between are lost"


def test_second_prefix_during_the_first_confirmation_is_answered(
    subscriber: RedisSubscriber, handler: RecordingHandler
) -> None:
    """[H7] A confirmation calls only the callbacks of the confirmed channels."""
    second: list[Opened] = []

    def on_reconnect() -> None:
        if not second:
            second.append(begin(subscriber, SHOP))

    handler.on_reconnect = on_reconnect  # type: ignore[method-assign]
    opened(subscriber)
    assert second[0].wait() == subscriber.channel_name(SHOP) != ""


def test_second_prefix_before_the_first_confirmation_is_answered(subscriber: RedisSubscriber, proxy: Proxy) -> None:
    """[H7] The pending subscription lacks the second channel: it is repeated, and both callbacks are called."""
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
    """`close` calls the callbacks at once; the thread that ends removes neither the connection nor the name of the next
    one."""
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
    """The subscriber is closed while it delivers a message, and opened before the delivery ends."""
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


def test_problem_that_lasts_is_logged_once(make_subscriber: Make, tune: Tune, caplog: pytest.LogCaptureFixture) -> None:
    """While a failover is awaited, there are five attempts a second."""
    tune(min_retry_delay=0.001, max_retry_delay=0.001)
    caplog.set_level("INFO", "django_redis_locks.backend")
    subscriber = make_subscriber(f"redis://127.0.0.1:{free_port()}/0")
    attempts: list[object] = []
    make = subscriber._make

    def counted() -> Any:
        attempts.append(make())
        return attempts[-1]

    subscriber._make = counted
    begin(subscriber)
    eventually(lambda: len(attempts) > 3)
    assert len(caplog.messages) == 1
    assert "refused" in caplog.text

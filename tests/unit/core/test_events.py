"""Events are logged and passed to listeners; a failing listener doesn't break a lock."""

from __future__ import annotations

import dataclasses
import logging
from typing import Any

import pytest

from django_redis_locks import locks
from django_redis_locks.core import events
from django_redis_locks.core.digests import digest_of
from django_redis_locks.core.events import Acquired, Contended, Event, Released, emit, listen

ABOUT = ("order:jane", "order", "default")

EVENTS = [
    (Acquired(*ABOUT, 7, 0.25), "acquire", logging.DEBUG, "Lock order acquired after 0.250 s"),
    (Contended(*ABOUT, 0.25), "acquire", logging.INFO, "Lock order is busy, given up after 0.250 s"),
    (Released(*ABOUT, 7, 1.5, True), "release", logging.DEBUG, "Lock order released after 1.500 s"),
    (events.Detached(*ABOUT, 7, 1.5), "release", logging.DEBUG, "Lock order detached after 1.500 s"),
    (events.ForceReleased(*ABOUT, "stuck"), "release", logging.WARNING, "Lock order was released by force: stuck"),
    (events.ForceReleased(*ABOUT, ""), "release", logging.WARNING, "was released by force: no reason was given"),
    (events.Lost(*ABOUT, 7, 1.5, "expired"), "lost", logging.ERROR, "Lock order was lost while it was held (expired)"),
    (events.Vanished(*ABOUT, 7), "lost", logging.WARNING, "Lock order was gone when it was handed over"),
    (
        events.BackendFailed(*ABOUT, "release", "down"),
        "backend",
        logging.ERROR,
        "the store failed during release: down",
    ),
]


@pytest.fixture(autouse=True)
def no_listeners(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "listeners", [])


@pytest.mark.parametrize(("event", "logger", "level", "text"), EVENTS, ids=[type(case[0]).__name__ for case in EVENTS])
def test_event_is_logged_at_its_level(
    event: Event, logger: str, level: int, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    """[D9] The message has the name, and the record's extras have all fields; from INFO on a digest instead of the
    key."""
    with caplog.at_level(logging.DEBUG, "django_redis_locks"):
        emit(event)
    (record,) = caplog.records
    assert (record.name, record.levelno) == (f"django_redis_locks.{logger}", level)
    assert text in record.getMessage()
    assert "jane" not in record.getMessage()
    extras = {name.removeprefix("lock_"): value for name, value in vars(record).items() if name.startswith("lock_")}
    expected = dataclasses.asdict(event)
    if level >= logging.INFO:
        expected["digest"] = digest_of(expected.pop("key"))
    assert extras == expected


def test_keys_are_logged_until_the_settings_change(settings: Any) -> None:
    """[D9] A lock that is still held then is lost or released without its key in the log."""
    memory = {"BACKEND": "django_redis_locks.backends.memory.MemoryBackend"}
    settings.REDIS_LOCKS = {"default": {**memory, "LOG_KEYS": True}}
    assert locks["default"].settings.log_keys
    assert events.key_field("order:jane", "default") == {"lock_key": "order:jane"}
    settings.REDIS_LOCKS = {"default": memory}
    assert events.key_field("order:jane", "default") == {"lock_digest": digest_of("order:jane")}


def test_every_kind_of_event_has_a_test() -> None:
    """A new event needs a row in the table above."""
    values = (kind for kind in vars(events).values() if isinstance(kind, type))
    kinds = {kind for kind in values if issubclass(kind, Event) and kind is not Event}
    assert kinds == {type(case[0]) for case in EVENTS}


def test_listeners_are_called_once_and_in_order(caplog: pytest.LogCaptureFixture) -> None:
    """Registering a listener twice has no effect. A failing listener is logged, and the others are called."""
    received: list[Any] = []

    def broken(event: Event) -> None:
        received.append("broken")
        raise LookupError

    for listener in (broken, received.append, broken):
        listen(listener)
    event = EVENTS[0][0]
    emit(event)
    assert received == ["broken", event]
    assert [record.exc_info[0] for record in caplog.records if record.exc_info] == [LookupError]


def test_frequent_event_is_written_by_its_own_logger(caplog: pytest.LogCaptureFixture) -> None:
    """Whoever creates it asks that logger first."""
    with caplog.at_level(logging.INFO, "django_redis_locks"):
        emit(EVENTS[0][0])
        assert caplog.records == []
        assert not events.acquire_log.isEnabledFor(Acquired.level)
        with caplog.at_level(logging.DEBUG, "django_redis_locks.acquire"):
            assert events.acquire_log.isEnabledFor(Acquired.level)
            assert not events.release_log.isEnabledFor(Released.level), "another logger"


@pytest.mark.parametrize("kind", [Acquired, Released])
def test_event_without_logger_and_listener_is_not_made(
    kind: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An acquire or a release creates no event without a listener or an enabled logger."""
    made: list[Any] = []

    class Made(kind):  # type: ignore[misc]
        def __new__(cls, *about: Any) -> Any:
            made.append(about)
            return object.__new__(kind)

    monkeypatch.setattr(events, kind.__name__, Made)
    lock = locks.lock("no listener")
    with caplog.at_level(logging.INFO, "django_redis_locks"):
        with lock:
            assert made == []
        assert made == []
        listen(lambda event: None)
        with lock:
            pass
    assert len(made) == 1


def test_name_with_line_ends_stays_within_its_log_line(caplog: pytest.LogCaptureFixture) -> None:
    """A name may come from a key, and so from a user's input: the message escapes line ends and terminal codes. The
    fields of the record have it unchanged."""
    hostile = "\x1b[31mred\nCRITICAL forged\u202e"
    events.emit(events.ForceReleased(hostile, hostile, "default", reason="x\ny"))
    (record,) = caplog.records
    assert record.getMessage().isprintable()
    assert r"\x1b[31mred\nCRITICAL forged\u202e" in record.getMessage()
    assert record.lock_name == hostile  # type: ignore[attr-defined]

"""What happens is logged and told, and no listener breaks a lock."""

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
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "_listeners", [])


@pytest.mark.parametrize(("event", "logger", "level", "text"), EVENTS, ids=[type(case[0]).__name__ for case in EVENTS])
def test_event_is_logged_at_its_level(
    event: Event, logger: str, level: int, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    """[D9] Its level says how bad it is, the message shows the name, and the extras have everything; of the key a digest from
    INFO on."""
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


def test_every_kind_of_event_has_a_test() -> None:
    """A new one needs its line in the table above."""
    values = (kind for kind in vars(events).values() if isinstance(kind, type))
    kinds = {kind for kind in values if issubclass(kind, Event) and kind is not Event}
    assert kinds == {type(case[0]) for case in EVENTS}


def test_listeners_are_called_once_and_in_order(caplog: pytest.LogCaptureFixture) -> None:
    """Twice the same listener counts once; one that fails is logged, and the others hear."""
    heard: list[Any] = []

    def broken(event: Event) -> None:
        heard.append("broken")
        raise LookupError

    for listener in (broken, heard.append, broken):
        listen(listener)
    event = EVENTS[0][0]
    emit(event)
    assert heard == ["broken", event]
    assert [record.exc_info[0] for record in caplog.records if record.exc_info] == [LookupError]


def test_event_is_wanted_by_loggers_and_listeners(caplog: pytest.LogCaptureFixture) -> None:
    """The frequent ones aren't even made without one of them; the hot path formats no message that its level hides."""
    with caplog.at_level(logging.INFO, "django_redis_locks"):
        emit(EVENTS[0][0])
        assert caplog.records == []
        assert not events.wanted(Acquired)
        assert events.wanted(Contended)
        with caplog.at_level(logging.DEBUG, "django_redis_locks.acquire"):
            assert events.wanted(Acquired)
            assert not events.wanted(Released), "another logger"
        listen(lambda event: None)
        assert events.wanted(Acquired)
        assert events.wanted(Released)


@pytest.mark.parametrize("kind", [Acquired, Released])
def test_event_without_logger_and_listener_is_not_made(
    kind: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An acquire and a release with neither log nor listener."""
    made: list[Any] = []

    class Made(kind):  # type: ignore[misc]
        def __new__(cls, *about: Any) -> Any:
            made.append(about)
            return object.__new__(kind)

    monkeypatch.setattr(events, kind.__name__, Made)
    lock = locks.lock("nobody listens")
    with caplog.at_level(logging.INFO, "django_redis_locks"):
        with lock:
            assert made == []
        assert made == []
        listen(lambda event: None)
        with lock:
            pass
    assert len(made) == 1


def test_name_with_line_ends_stays_within_its_log_line(caplog: pytest.LogCaptureFixture) -> None:
    """A name is the beginning of a key unless it is given, so it may be what a stranger wrote: it neither begins a line of its
    own nor colours the terminal. The fields of the record have it as it is."""
    hostile = "\x1b[31mred\nCRITICAL forged\u202e"
    events.emit(events.ForceReleased(hostile, hostile, "default", reason="x\ny"))
    (record,) = caplog.records
    assert record.getMessage().isprintable()
    assert r"\x1b[31mred\nCRITICAL forged\u202e" in record.getMessage()
    assert record.lock_name == hostile  # type: ignore[attr-defined]

"""`manage.py redis_locks`, called in this process: what it says, and with which code it ends."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, NamedTuple

import pytest
from django.core.management import CommandError, call_command

from django_redis_locks import LockLost, current_grant, diagnosis, inspection, locks, signals
from tests.django.helpers import MEMORY, Events, held_elsewhere, seconds
from tests.probes.django import RESERVED_FENCES, console_actor
from tools.redis_server import RedisServer


class Ended(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        return json.loads(self.out)


def call(*words: str) -> Ended:
    """The command, its exit code and what it wrote. What a call_command raises is what a process prints last."""
    out, err = io.StringIO(), io.StringIO()
    code = 0
    try:
        call_command("redis_locks", *words, stdout=out, stderr=err)
    except SystemExit as end:
        code = int(str(end.code))
    except CommandError as error:
        code = 2 if "Error: argument" in str(error) else error.returncode
        err.write(f"{error}\n")
    return Ended(code, out.getvalue(), err.getvalue())


@pytest.fixture
def two(settings: Any, redis_url: str) -> None:
    """Two aliases of one server."""
    settings.REDIS_LOCKS = {
        "default": {"LOCATION": redis_url},
        "payments": {"LOCATION": redis_url, "KEY_PREFIX": "pay"},
    }


@pytest.fixture
def one_down(settings: Any, redis_url: str, closed_port: int) -> None:
    """The first of two aliases is on a server that isn't there."""
    settings.REDIS_LOCKS = {
        "default": {"LOCATION": f"redis://operator:hunter2@127.0.0.1:{closed_port}/0"},
        "payments": {"LOCATION": redis_url},
    }


def test_call_command_takes_keywords(two: None) -> None:
    out = io.StringIO()
    with locks["payments"].lock("card:2") as grant:
        call_command("redis_locks", "list", alias="payments", json=True, stdout=out)
        assert json.loads(out.getvalue())["locks"][0]["fence"] == grant.fence
        with pytest.raises(CommandError) as caught:
            call_command("redis_locks", "show", "card:2", alias="nowhere")
        assert caught.value.returncode == 2


# list


def test_list_shows_the_locks_of_all_aliases(two: None) -> None:
    """Holder, age, rest of the lease, fence."""
    with locks.lock("order:1", expire=30) as grant, locks["payments"].lock("card:2"):
        ended = call("list")
        assert ended.code == 0
        heads, order, card, _, total = ended.out.splitlines()
        assert heads.split() == ["ALIAS", "KEY", "STATE", "HOLDER", "HELD", "FOR", "LEASE", "LEFT", "FENCE", "WAITING"]
        assert order.startswith("default   order:1  held")
        assert re.search(rf"  [12]?\d s +{grant.fence}$|  30 s        {grant.fence}$", order)
        assert card.startswith("payments  card:2   held")
        assert total == "2 locks"
        assert call("list", "--alias", "payments").out.count("card:2") == 1
        assert "order:1" not in call("list", "--alias", "payments").out
        assert call("list", "--match", "ORD*").out.count("order:1") == 1


def test_list_without_locks_ends_with_1(redis_locks: str) -> None:
    """As with grep, so that a script may wait for it."""
    ended = call("list")
    assert (ended.code, ended.out) == (1, "0 locks\n")
    assert call("list", "--json").document["locks"] == []


HOSTILE = [
    "a\nb",
    "\x1b[2J\x1b[31mowned",
    "\x9b31m",
    "abc\u202edef",
    "nul\x00\x7f",
    "'\"; <script>",
    "  spaces  ",
    r"back\slash",
    "注文:四十二",
    "%41",
    "{}",
    "-rf",
]


def test_hostile_key_is_escaped_in_text_and_exact_in_json(redis_locks: str) -> None:
    """[D57] Nothing that a terminal acts on; JSON has the very key, which show and release take."""
    for key in HOSTILE:
        with locks.lock(key, expire=30) as grant:
            ended = call("list")
            assert ended.code == 0
            assert len(ended.out.splitlines()) == 4
            assert all(line.isprintable() for line in ended.out.splitlines())
            ended = call("list", "--json")
            assert ended.out.replace("\n", "").isprintable()
            (listed,) = ended.document["locks"]
            assert (listed["key"], listed["fence"]) == (key, grant.fence)
            shown = call("show", "--json", "--", listed["key"])
            assert shown.document["fence"] == grant.fence
            assert all(line.isprintable() for line in call("show", "--", key).out.splitlines())
            released = call("release", "--yes", "--", listed["key"])
            assert released.code == 0
            assert all(line.isprintable() for line in released.out.splitlines())
            assert not locks.lock(key).locked()
            with pytest.raises(LockLost):
                grant.release()


def test_long_key_is_found_as_it_is_listed(redis_locks: str) -> None:
    """Of a key beyond 200 bytes the store has a hash."""
    with locks.lock("long:" + "x" * 500):
        (listed,) = call("list", "--json").document["locks"]
        assert call("show", listed["key"]).code == 0


def test_limit_beyond_a_page_lists_several_pages(memory_locks: Any) -> None:
    memory_locks()
    grants = [locks.lock(f"n:{number:04}").acquire() for number in range(1205)]
    try:
        document = call("list", "--json", "--limit", "1200", "--order", "key").document
        assert [lock["key"] for lock in document["locks"]] == [f"n:{number:04}" for number in range(1200)]
        assert document["aliases"]["default"]["total"] == 1205
        assert call("list", "--limit", "3").out.splitlines()[-1] == "3 of 1205 locks"
        last = call("list", "--json", "--limit", "2", "--order=-key").document["locks"]
        assert [lock["key"] for lock in last] == ["n:1204", "n:1203"]
    finally:
        for grant in grants:
            grant.release()


def test_alias_that_is_down_hides_no_other(one_down: None) -> None:
    """[D57] The code is 3, and no password is shown."""
    with locks["payments"].lock("card:2"):
        for verb in ("list", "ping", "stats", "fence"):
            ended = call(verb)
            assert ended.code == 3, verb
            assert "payments" in ended.out
            assert "default: can't reach redis://operator:***@" in ended.err
            assert "hunter2" not in ended.out + ended.err
            ended = call(verb, "--json")
            assert ended.code == 3
            assert "can't reach" in ended.document["aliases"]["default"]["error"]
            assert "error" not in ended.document["aliases"]["payments"]
        assert call("list", "--alias", "payments").code == 0
        assert call("show", "card:2").code == 3
        assert call("release", "card:2", "--yes").code == 3


def test_alias_with_wrong_settings_is_a_mistake_alone_and_down_among_others(settings: Any, redis_url: str) -> None:
    settings.REDIS_LOCKS = {"default": {"LOCATION": redis_url}, "payments": {"LOCATION": "nowhere"}}
    assert call("list").code == 3
    for words in (["list", "--alias", "payments"], ["show", "a", "--alias", "payments"]):
        ended = call(*words)
        assert ended.code == 2
        assert "is no URL of a Redis server" in ended.err
    ended = call("list", "--alias", "x")
    assert ended.code == 2
    assert "There is no alias 'x'; there is 'default', 'payments'." in ended.err
    settings.REDIS_LOCKS = None
    assert "set REDIS_LOCKS" in call("list").err


def test_wrong_arguments_raise_CommandError(memory_locks: Any) -> None:
    """Bytes in an argument that are no UTF-8 are what Python makes of them, which no store can have."""
    memory_locks()
    wrong = "list --limit 0|list --limit -1|list --limit 1e3|list --state stuck|list --order colour|watch --interval 0"
    wrong += "|watch --interval nan|release a --fence x|release a --fence -1|show|destroy|fence --at-least " + "9" * 30
    for words in wrong.split("|"):
        with pytest.raises(CommandError, match="Error: "):
            call_command("redis_locks", *words.split())
    # beyond 2**53 Lua would give the same fence twice; half of that leaves room
    for words in (["show", ""], ["show", "\udcff"], ["fence", "--at-least", str(2**52 + 1), "--yes"]):
        assert call(*words).code == 2, words
    with pytest.raises(ValueError, match="a fence is a whole number"):
        diagnosis.raise_fences(2**52 + 1)


# show


def test_show_prints_all_that_is_known_of_a_lock(store: str) -> None:
    with held_elsewhere("order:1", expire=30) as grant:
        ended = call("show", "order:1")
        assert ended.code == 0
        lines = ended.out.splitlines()
        assert lines[0] == "order:1"
        about = dict(line.strip().split("  ", 1) for line in lines[1:])
        assert about["fence"].strip() == str(grant.fence)
        assert 0 < seconds(about["lease left"]) <= 30
    ended = call("show", "order:1")
    assert ended.code == 1
    assert "free" in ended.out
    assert call("show", "order:1", "--json").document["holder"] is None


# release


def test_release_shows_the_holder_and_sends_actor_and_reason(store: str, seen: Events) -> None:
    with held_elsewhere("order:1", expire=30) as grant:
        ended = call("release", "order:1", "--yes", "--reason", "hangs")
        assert ended.code == 0
        assert str(grant.fence) in ended.out
        assert "runs on" in ended.out
        assert ended.out.endswith("It was released.\n")
        assert not locks.lock("order:1").locked()
        (event,) = seen.of(signals.events.ForceReleased)
        assert event.reason == "hangs"
        assert event.actor == console_actor()
        assert "@" in event.actor
        locks.lock("order:1").force_release()
        grant.hold.state = grant.hold.state.GONE


def test_release_without_terminal_and_yes_is_refused(redis_locks: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A script that forgot --yes doesn't hang, and frees nothing; nor does a daemon, which has no stdin."""
    with held_elsewhere("order:1"):
        for stdin in (io.StringIO("y\n"), None):
            monkeypatch.setattr("sys.stdin", stdin)
            ended = call("release", "order:1")
            assert ended.code == 2, stdin
            assert "--yes" in ended.err
            assert locks.lock("order:1").locked()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_release_asks_at_a_terminal_and_takes_only_a_yes(redis_locks: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of the input is a no."""
    for typed, code in (("y\n", 0), ("YES\n", 0), (" y \n", 0), ("\n", 1), ("n\n", 1), ("", 1), ("yy\n", 1)):
        monkeypatch.setattr("sys.stdin", Terminal(typed))
        grant = locks.lock("order:1", expire=30).acquire()
        ended = call("release", "order:1")
        assert ended.code == code, typed
        assert "Release it? [y/N] " in ended.err
        assert locks.lock("order:1").locked() == bool(code)
        with pytest.raises(LockLost) if code == 0 else nullcontext():
            grant.release()


@pytest.mark.parametrize("yes", [True, False], ids=["yes", "asked"])
def test_release_leaves_a_new_holder_alone(redis_locks: str, monkeypatch: pytest.MonkeyPatch, *, yes: bool) -> None:
    """[D58] Between showing and releasing the lock is freed and acquired by another hold."""
    first = locks.lock("order:1").acquire()
    shown = inspection.find
    second: list[Any] = []

    def find(*args: Any) -> Any:
        info = shown(*args)
        if not second:
            first.release()
            second.append(locks.lock("order:1").acquire())
        return info

    monkeypatch.setattr(inspection, "find", find)
    monkeypatch.setattr("sys.stdin", Terminal("y\n"))
    # a hold that follows at once may have one of the fences that were reserved for local hand-overs
    monkeypatch.setattr("django_redis_locks.inspection.force_release", _exact(second))
    ended = call("release", "order:1", *(["--yes"] if yes else []))
    assert ended.code == 1
    assert "another hold by now" in ended.out
    assert second[0].held
    second[0].release()


def _exact(second: list[Any]) -> Callable[..., bool]:
    plain = inspection.force_release

    def force_release(key: str, *, fence: int | None, **more: Any) -> bool:
        assert fence is not None, "whoever came since would be hit"
        assert second[0].fence > fence
        return plain(key, fence=fence, **more)

    return force_release


def test_forged_or_old_fence_releases_nothing(redis_locks: str) -> None:
    with held_elsewhere("order:1") as grant:
        assert grant.fence is not None
        for off in (-1, RESERVED_FENCES + 1, -(10**15), 10**15):
            ended = call("release", "order:1", "--yes", "--fence", str(grant.fence + off))
            assert ended.code == 1
            assert f"the fence {grant.fence + off}" in ended.out
            assert str(grant.fence) in ended.out
            assert locks.lock("order:1").locked()


def test_release_frees_once(redis_locks: str, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its fence; as one JSON document, which asks nothing; and a lock without expiry."""
    monkeypatch.setattr("sys.stdin", Terminal("y\n"))
    grants = {key: locks.lock(key).acquire() for key in ("fenced", "json", "endless")}
    fenced = ("release", "fenced", "--yes", "--fence", str(grants["fenced"].fence))
    assert call(*fenced).code == 0
    ended = call(*fenced)
    assert ended.code == 1
    assert "Nobody holds it" in ended.out
    assert call("release", "json", "--json").code == 2
    released = call("release", "json", "--json", "--yes").document
    assert (released["released"], released["lock"]["fence"]) == (True, grants["json"].fence)
    ended = call("release", "json", "--json", "--yes")
    assert (ended.code, ended.document["released"]) == (1, False)
    redis_server.command("PERSIST", "lock:{0}:k:endless")
    assert call("release", "endless", "--yes").code == 0
    assert redis_server.command("EXISTS", "lock:{0}:k:endless") == 0
    for grant in grants.values():
        with pytest.raises(LockLost):
            grant.release()


def test_foreign_value_is_shown_as_no_lock_and_not_released(redis_locks: str, redis_server: RedisServer) -> None:
    redis_server.command("SET", "lock:{0}:k:a", "\x1b[31mnot ours")
    for words, code, message in ((["show", "a"], 0, "no lock"), (["release", "a", "--yes"], 1, "it stays")):
        ended = call(*words)
        assert ended.code == code
        assert message in ended.out
        assert ended.out.replace("\n", "").isprintable()
    assert redis_server.command("GET", "lock:{0}:k:a") == "\x1b[31mnot ours"


# ping, stats, fence


def test_ping_names_address_server_and_round_trip(two: None) -> None:
    ended = call("ping")
    assert ended.code == 0
    assert ended.out.count("redis://127.0.0.1:") == 2
    assert len(re.findall(r" ms +(?:Redis|Valkey) ", ended.out)) == 2
    told = call("ping", "--json", "--alias", "payments").document["aliases"]
    assert list(told) == ["payments"]
    assert told["payments"]["role"] == "master"
    assert 0 < told["payments"]["round_trip"] < 10


def test_stats_count_locks_and_show_the_memory_policy(two: None) -> None:
    with locks.lock("a"), locks["payments"].lock("b"), locks["payments"].lock("c"):
        told = call("stats", "--json").document["aliases"]
        assert (told["default"]["held"], told["payments"]["held"]) == (1, 2)
        assert told["default"]["server"]["policy"] == "noeviction"
        out = call("stats").out
        assert "noeviction" in out
        assert "no limit" in out
        assert "appendonly no, nothing" in out


def test_memory_backend_answers_all_verbs(settings: Any, redis_url: str) -> None:
    """And `list` names the aliases whose locks it can't list."""
    settings.REDIS_LOCKS = {"default": {"BACKEND": MEMORY}}
    for verb in ("ping", "stats", "fence"):
        assert call(verb).code == call(verb, "--json").code == 0
    assert "memory of this process" in call("stats").out
    settings.REDIS_LOCKS = {"default": {"LOCATION": redis_url, "INDEX": False}, "local": {"BACKEND": MEMORY}}
    shown = call("list").err
    assert "default keeps no index" in shown
    assert "local keeps its locks in the memory of each process" in shown


@pytest.fixture
def counters(store: str, settings: Any, request: pytest.FixtureRequest) -> None:
    """Both stores; that in memory is the test's own, since no fence goes back."""
    if store == "memory":
        settings.REDIS_LOCKS = {"default": {"BACKEND": MEMORY, "LOCATION": request.node.nodeid}}


def test_fences_go_on_from_a_raised_counter(counters: None) -> None:
    """[H1] A store that was restored, or whose clock is behind: fences must not fall below those that rows have, and a
    lower counter changes nothing."""
    with locks.lock("a") as grant:
        ahead = grant.fence + 3_600_000_000
    ended = call("fence", "--at-least", str(ahead))
    assert ended.code == 0
    assert str(ahead) in ended.out
    with locks.lock("a") as grant:
        assert grant.fence > ahead
    for words in ([], ["--at-least", "5"], ["--at-least", "0"]):
        (counter,) = call("fence", "--json", *words).document["aliases"]["default"]
        assert counter["last"] >= grant.fence, words
        assert counter["next"] == counter["last"] + 1


def test_fence_far_ahead_needs_a_yes(counters: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """It can't be taken back."""
    far = 4 * 10**15
    assert call("fence", "--at-least", str(far)).code == 2
    monkeypatch.setattr("sys.stdin", Terminal("n\n"))
    assert call("fence", "--at-least", str(far)).code == 1
    (counter,) = call("fence", "--json").document["aliases"]["default"]
    assert counter["last"] < far
    monkeypatch.setattr("sys.stdin", Terminal("y\n"))
    assert call("fence", "--at-least", str(far)).code == 0
    (counter,) = call("fence", "--json").document["aliases"]["default"]
    assert counter["last"] == far
    with locks.lock("a") as grant:
        assert grant.fence == far + 1
    assert current_grant() is None

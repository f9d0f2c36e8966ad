"""`manage.py redis_locks`, called in this process: output and exit codes."""

from __future__ import annotations

import io
import json
import re
from contextlib import ExitStack, nullcontext
from typing import Any, NamedTuple

import pytest
from django.core.management import CommandError, call_command

from django_redis_locks import LockLost, diagnosis, inspection, locks, signals
from tests.django.helpers import MEMORY, Events, parse_seconds
from tests.probes.django import RESERVED_FENCES, console_actor
from tools.redis_server import RedisServer


class CommandResult(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        return json.loads(self.out)


def call(*words: str) -> CommandResult:
    """Run the command. Return its exit code and output; an exception of call_command counts as output."""
    out, err = io.StringIO(), io.StringIO()
    code = 0
    try:
        call_command("redis_locks", *words, stdout=out, stderr=err)
    except SystemExit as end:
        code = int(str(end.code))
    except CommandError as error:
        code = 2 if "Error: argument" in str(error) else error.returncode
        err.write(f"{error}\n")
    return CommandResult(code, out.getvalue(), err.getvalue())


@pytest.fixture
def two_aliases(settings: Any, redis_url: str) -> None:
    """Two aliases of one server."""
    settings.REDIS_LOCKS = {
        "default": {"LOCATION": redis_url},
        "payments": {"LOCATION": redis_url, "KEY_PREFIX": "pay"},
    }


# list


def test_list_shows_the_locks_of_all_aliases(two_aliases: None) -> None:
    """With holder, age, rest of the lease, and fence. `call_command` with keywords prints the same."""
    with locks.lock("order:1", expire=30) as grant, locks["payments"].lock("card:2"):
        ended = call("list")
        assert ended.code == 0
        heads, order, card, _, total, *_ = ended.out.splitlines()
        assert heads.split() == ["ALIAS", "KEY", "STATE", "HOLDER", "HELD", "FOR", "LEASE", "LEFT", "FENCE", "WAITING"]
        assert order.startswith("default   order:1  held")
        assert re.search(rf"  [12]?\d s +{grant.fence}$|  30 s        {grant.fence}$", order)
        assert card.startswith("payments  card:2   held")
        assert total == "2 locks"
        for words, keys in ((["--alias", "payments"], ["card:2"]), (["--match", "ORD*"], ["order:1"])):
            assert [lock["key"] for lock in call("list", "--json", *words).document["locks"]] == keys
        out = io.StringIO()
        call_command("redis_locks", "list", alias="payments", json=True, stdout=out)
        assert [lock["key"] for lock in json.loads(out.getvalue())["locks"]] == ["card:2"]


HOSTILE = ["a\nb", "\x1b[2J\x1b[31mowned", "\x9b31m", "abc\u202edef", "nul\x00\x7f", "  spaces  ", r"back\slash"]
HOSTILE += ["'\"; <script>", "注文:四十二", "%41", "{}", "-rf"]


def test_key_with_control_characters_is_escaped_in_text_and_exact_in_json(
    redis_locks: str, caplog: pytest.LogCaptureFixture
) -> None:
    """[D57] Neither output nor log has terminal escapes. JSON has the exact key, which show and release accept."""
    for key in HOSTILE:
        grant = locks.lock(key, expire=30).acquire()
        document = call("list", "--json")
        (listed,) = document.document["locks"]
        assert (listed["key"], listed["fence"]) == (key, grant.fence)
        assert call("show", "--json", "--", key).document["fence"] == grant.fence
        texts = [call("list"), call("show", "--", key), call("release", "--yes", "--", key)]
        assert [text.code for text in texts] == [0, 0, 0], key
        assert len(texts[0].out.splitlines()) == 5
        assert all(line.isprintable() for text in (document, *texts) for line in text.out.splitlines()), key
        assert not locks.lock(key).locked()
        with pytest.raises(LockLost):
            grant.release()
    logged = [record.getMessage() for record in caplog.records]
    assert any(r"Lock \x1b[2J\x1b[31mowned was released by force" in message for message in logged)
    assert all(message.isprintable() for message in logged)


def test_limit_beyond_a_page_lists_several_pages(memory_locks: Any) -> None:
    memory_locks()
    keys = [f"n:{number:04}" for number in range(1205)]
    with ExitStack() as stack:
        for key in keys:
            stack.enter_context(locks.lock(key))
        document = call("list", "--json", "--limit", "1200", "--order", "key").document
        assert [lock["key"] for lock in document["locks"]] == keys[:1200]
        assert document["aliases"]["default"]["total"] == 1205
        assert call("list", "--limit", "3").out.splitlines()[-2] == "3 of 1205 locks"
        last = call("list", "--json", "--limit", "2", "--order=-key").document["locks"]
        assert [lock["key"] for lock in last] == ["n:1204", "n:1203"]


def test_unreachable_alias_does_not_hide_the_others(settings: Any, redis_url: str, store_down: str) -> None:
    """[D57] The exit code is 3, and no password is shown."""
    settings.REDIS_LOCKS = {**settings.REDIS_LOCKS, "payments": {"LOCATION": redis_url}}
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
        assert call("show", "card:2").code == call("release", "card:2", "--yes").code == 3


def test_alias_with_wrong_settings_is_an_error_alone_and_unreachable_among_others(
    settings: Any, redis_url: str
) -> None:
    settings.REDIS_LOCKS = {"default": {"LOCATION": redis_url}, "payments": {"LOCATION": "nowhere"}}
    assert call("list").code == 3
    for alias, message in (("payments", "isn't the URL of a Redis server"), ("x", "There is no alias 'x'; there is")):
        for words in (["list"], ["show", "a"]):
            ended = call(*words, "--alias", alias)
            assert (ended.code, message in ended.err) == (2, True)
    settings.REDIS_LOCKS = None
    assert "set REDIS_LOCKS" in call("list").err


def test_wrong_arguments_raise_CommandError(memory_locks: Any) -> None:
    """Arguments that aren't UTF-8 are surrogates in Python, which no key can contain."""
    memory_locks()
    wrong = "list --limit 0|list --limit 1e3|list --state stuck|list --order colour|watch --interval nan"
    wrong += "|release a --fence x|release a --fence -1|show|destroy|fence --at-least " + "9" * 30
    for words in wrong.split("|"):
        with pytest.raises(CommandError, match="Error: "):
            call_command("redis_locks", *words.split())
    # beyond 2**53 Lua numbers would repeat a fence; half of that leaves room
    for words in (["show", ""], ["show", "\udcff"], ["fence", "--at-least", str(2**52 + 1), "--yes"]):
        assert call(*words).code == 2, words
    with pytest.raises(ValueError, match="a fence is a whole number"):
        diagnosis.raise_fences(2**52 + 1)


# show


# release


def test_release_shows_the_holder_and_sends_actor_and_reason(store: str, received: Events) -> None:
    """It first prints the output of `show`."""
    grant = locks.lock("order:1", expire=30, note="for\x1bAda").acquire()
    lines = call("show", "order:1").out.splitlines()
    assert lines[0] == "order:1"
    about = dict(line.strip().split("  ", 1) for line in lines[1:])
    assert about["fence"].strip() == str(grant.fence)
    assert about["holder"].endswith(r"(for\\x1bAda)")
    assert r"(for\\x1bAda)" in call("list").out
    assert call("show", "order:1", "--json").document["holder"]["note"] == r"for\x1bAda"
    assert 0 < parse_seconds(about["lease left"]) <= 30
    ended = call("release", "order:1", "--yes", "--reason", "hangs")
    assert ended.code == 0
    assert all(text in ended.out for text in (str(grant.fence), "isn't stopped", "It was released.\n"))
    with pytest.raises(LockLost):
        grant.release()
    ended = call("show", "order:1")
    assert (ended.code, "free" in ended.out) == (1, True)
    assert call("show", "order:1", "--json").document["holder"] is None
    (event,) = received.of(signals.events.ForceReleased)
    assert (event.reason, event.actor) == ("hangs", console_actor())
    assert "@" in event.actor


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_release_at_a_terminal_needs_a_yes(redis_locks: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of the input is a no. Without a terminal and without --yes it doesn't hang, and releases nothing."""
    answers = [(" y \n", 0), ("YES\n", 0), ("\n", 1), ("n\n", 1), ("", 1), ("yy\n", 1)]
    for stdin, code in (*((Terminal(typed), code) for typed, code in answers), (None, 2), (io.StringIO("y\n"), 2)):
        monkeypatch.setattr("sys.stdin", stdin)
        grant = locks.lock("order:1", expire=30).acquire()
        ended = call("release", "order:1")
        assert (ended.code, locks.lock("order:1").locked()) == (code, code != 0), stdin
        assert ("--yes" if code == 2 else "Release it? [y/N] ") in ended.err
        with pytest.raises(LockLost) if code == 0 else nullcontext():
            grant.release()


@pytest.mark.parametrize("yes", [True, False], ids=["yes", "asked"])
def test_release_does_not_free_the_lock_of_a_new_holder(
    redis_locks: str, monkeypatch: pytest.MonkeyPatch, *, yes: bool
) -> None:
    """[D58] Between the output and the release the lock is acquired by another holder."""
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
    ended = call("release", "order:1", *(["--yes"] if yes else []))
    assert (ended.code, "Another holder has the lock" in ended.out) == (1, True)
    second[0].release()


def test_release_frees_the_hold_with_this_fence_once(
    redis_locks: str, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unknown or old fence frees nothing. With JSON output there is no prompt, even at a terminal."""
    monkeypatch.setattr("sys.stdin", Terminal("y\n"))
    grants = {key: locks.lock(key).acquire() for key in ("fenced", "json", "endless")}
    fence = grants["fenced"].fence or 0
    for off in (-1, RESERVED_FENCES + 1, -(10**15), 10**15):
        ended = call("release", "fenced", "--yes", "--fence", str(fence + off))
        assert (ended.code, f"the fence {fence + off}" in ended.out) == (1, True)
        assert str(fence) in ended.out
    assert call("release", "fenced", "--yes", "--fence", str(fence)).code == 0
    ended = call("release", "fenced", "--yes", "--fence", str(fence))
    assert (ended.code, "No process holds it" in ended.out) == (1, True)
    assert call("release", "json", "--json").code == 2
    for code in (0, 1):
        ended = call("release", "json", "--json", "--yes")
        assert (ended.code, ended.document["released"]) == (code, code == 0)
        assert (ended.document["lock"]["fence"] == grants["json"].fence) == (code == 0)
    redis_server.command("PERSIST", "lock:{0}:k:endless")
    assert call("release", "endless", "--yes").code == 0
    for grant in grants.values():
        with pytest.raises(LockLost):
            grant.release()


# ping, stats, fence


def test_ping_and_stats_name_address_round_trip_held_locks_and_memory_policy(two_aliases: None) -> None:
    ended = call("ping")
    assert ended.code == 0
    assert len(re.findall(r" ms +(?:Redis|Valkey) .+ redis://127\.0\.0\.1:", ended.out)) == 2
    document = call("ping", "--json", "--alias", "payments").document["aliases"]
    assert list(document) == ["payments"]
    assert document["payments"]["role"] == "master"
    assert 0 < document["payments"]["round_trip"] < 10
    with locks.lock("a"), locks["payments"].lock("b"), locks["payments"].lock("c"):
        document = call("stats", "--json").document["aliases"]
        assert (document["default"]["held"], document["payments"]["held"]) == (1, 2)
        assert document["default"]["server"]["policy"] == "noeviction"
        assert all(text in call("stats").out for text in ("noeviction", "no limit", "appendonly no, nothing"))


def test_all_verbs_work_with_the_memory_backend(settings: Any, redis_url: str) -> None:
    """`list` names the aliases that can't be listed."""
    settings.REDIS_LOCKS = {"default": {"BACKEND": MEMORY}}
    for verb in ("ping", "stats", "fence"):
        assert call(verb).code == call(verb, "--json").code == 0
    assert "memory of this process" in call("stats").out
    settings.REDIS_LOCKS = {"default": {"LOCATION": redis_url, "INDEX": False}, "local": {"BACKEND": MEMORY}}
    shown = call("list").err
    assert "default keeps no index" in shown
    assert "local keeps its locks in the memory of each process" in shown


@pytest.mark.parametrize("store", ["memory", "redis"])
def test_fences_continue_from_a_raised_counter(
    store: str, settings: Any, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[H1] As after restoring a store from a backup. Raising it far ahead needs a yes, because it can't be undone. The
    memory store is a new one, because fences never decrease."""
    settings.REDIS_LOCKS = {"default": {"BACKEND": MEMORY, "LOCATION": request.node.nodeid}}
    if store == "redis":
        request.getfixturevalue("redis_locks")
    with locks.lock("a") as grant:
        ahead = grant.fence + 3_600_000_000
    far = 4 * 10**15
    for least, typed, code in ((ahead, None, 0), (far, None, 2), (far, "n\n", 1), (far, "y\n", 0)):
        monkeypatch.setattr("sys.stdin", typed and Terminal(typed))
        ended = call("fence", "--at-least", str(least))
        assert ended.code == code
        assert code or str(least) in ended.out
        (counter,) = call("fence", "--json").document["aliases"]["default"]
        assert (counter["last"] == least) == (code == 0)
        assert counter["next"] == counter["last"] + 1
    with locks.lock("a") as grant:
        assert grant.fence == far + 1

"""`REDIS_LOCKS`: whatever is wrong in it has an id, a sentence and a hint, in a system check and at the first use."""

from __future__ import annotations

import io
from datetime import timedelta
from math import inf, nan
from typing import Any

import pytest
from django.core import checks
from django.core.checks import CheckMessage, run_checks
from django.core.management import call_command
from django.core.management.base import SystemCheckError

from django_redis_locks import InvalidLockBackend, conf, locks, server_checks
from tests.django.helpers import MEMORY

URL = "redis://127.0.0.1:6379/3"
CORE_CACHE = "django.core.cache.backends.redis.RedisCache"
LOCMEM_CACHE = "django.core.cache.backends.locmem.LocMemCache"
PASSWORD = "hunter2"


def messages(tag: str = "redis_locks", *, deploy: bool = False) -> list[CheckMessage]:
    return run_checks(tags=[tag], include_deployment_checks=deploy)


def only(found: list[CheckMessage]) -> CheckMessage:
    (message,) = found
    return message


OF_AN_ALIAS = [
    pytest.param("E001", {"LOCATON": URL}, "unknown key 'LOCATON'", "Did you mean 'LOCATION'?", id="key"),
    pytest.param("E001", {"location": URL}, "unknown key 'location'", "Did you mean 'LOCATION'?", id="lower-case"),
    pytest.param("E001", {"COLOUR": 1}, "unknown key 'COLOUR'", "Known are BACKEND, LOCATION", id="nothing-close"),
    pytest.param("E001", {5: 1}, "unknown key 5", "Known are", id="key-no-text"),
    pytest.param("E001", {"RENEW": True}, "unknown key 'RENEW'", "Known are", id="renew-is-per-name"),
    pytest.param("E002", {"BACKEND": "nowhere.Backend"}, "BACKEND can't be imported", "", id="backend-missing"),
    pytest.param("E002", {"BACKEND": f"{MEMORY}s"}, "BACKEND can't be imported", "", id="backend-misspelt"),
    pytest.param("E002", {"BACKEND": None}, "BACKEND can't be imported", "", id="backend-none"),
    pytest.param("E003", {"BACKEND": "pathlib.Path"}, "'pathlib.Path' is no lock backend", "", id="no-backend"),
    pytest.param("E003", {"BACKEND": CORE_CACHE}, "is no lock backend", "", id="a-cache"),
    pytest.param("E005", {"LOCATION": "localhost:6379"}, "is no URL of a Redis server", "", id="no-scheme"),
    pytest.param("E005", {"LOCATION": "http://h/0"}, "is no URL of a Redis server", "", id="scheme"),
    pytest.param("E005", {"LOCATION": ""}, "is no URL of a Redis server", "", id="url-empty"),
    pytest.param("E005", {"LOCATION": 6379}, "LOCATION is a URL, not int", "", id="url-int"),
    pytest.param("E005", {}, "is no URL of a Redis server", "", id="no-location"),
    pytest.param("E006", {"LOCATION": [URL]}, "LOCATION is one URL", "come in a later version", id="list"),
    pytest.param("E006", {"LOCATION": (URL, URL)}, "LOCATION is one URL", "come in a later version", id="tuple"),
    pytest.param("E007", {"LOCATION": URL, "CACHE": "default"}, "LOCATION and CACHE", "Keep one", id="both"),
    pytest.param("E008", {"CACHE": "nowhere"}, "CACHE 'nowhere' isn't in CACHES", "Set LOCATION", id="no-cache"),
    pytest.param("E008", {"CACHE": ["default"]}, "isn't in CACHES", "Set LOCATION", id="cache-list"),
    pytest.param("E009", {"CACHE": "default"}, "CACHE 'default' isn't a plain Redis", "Set LOCATION", id="locmem"),
    pytest.param("E011", {"LOCATION": URL, "KEY_PREFIX": ""}, "KEY_PREFIX is a text", "", id="prefix-empty"),
    pytest.param("E011", {"LOCATION": URL, "KEY_PREFIX": "{x}"}, "without braces", "", id="prefix-braces"),
    pytest.param("E011", {"LOCATION": URL, "KEY_PREFIX": "a b"}, "KEY_PREFIX", "", id="prefix-space"),
    pytest.param("E011", {"LOCATION": URL, "KEY_PREFIX": "a\n"}, "KEY_PREFIX", "", id="prefix-newline"),
    pytest.param("E011", {"LOCATION": URL, "KEY_PREFIX": "50%"}, "KEY_PREFIX", "", id="prefix-percent"),
    pytest.param("E011", {"LOCATION": URL, "KEY_PREFIX": None}, "KEY_PREFIX", "", id="prefix-none"),
    pytest.param("E016", {"LOCATION": URL, "MAX_HOLD": 20}, "MAX_HOLD is shorter than EXPIRE", "", id="max-hold"),
    pytest.param("E016", {"LOCATION": URL, "EXPIRE": 7200}, "MAX_HOLD is shorter", "", id="max-hold-default"),
    pytest.param("E027", {"LOCATION": URL, "INDEX": 1}, "INDEX is True or False, not 1", "", id="index"),
    pytest.param("E031", {"LOCATION": URL, "LOCKS": ["order"]}, "LOCKS must be a dict of dicts", "", id="locks-list"),
    pytest.param("E031", {"LOCATION": URL, "LOCKS": {"a": 5}}, "['LOCKS']['a'] must be a dict", "", id="locks-int"),
    pytest.param("E032", {"LOCATION": URL, "OPTIONS": [1]}, "OPTIONS must be a dict, not list", "", id="options"),
    pytest.param("E032", {"LOCATION": URL, "OPTIONS": {"sokcet": 1}}, "argument 'sokcet'", "", id="option"),
    pytest.param("E032", {"BACKEND": MEMORY, "OPTIONS": {"db": 1}}, "no option 'db'", "", id="memory-option"),
    pytest.param("E034", {"LOCATION": URL, "HISTORY": 100}, "comes in a later version", "Leave it at 0", id="history"),
]

PER_NAME = [
    pytest.param("E013", {"EXPIRE": 0}, "EXPIRE must be between", "", id="expire-0"),
    pytest.param("E013", {"EXPIRE": "5"}, "EXPIRE must be seconds or a timedelta", "", id="expire-text"),
    pytest.param("E016", {"MAX_HOLD": -1}, "MAX_HOLD must be between", "", id="max-hold"),
    pytest.param("E016", {"EXPIRE": 60, "MAX_HOLD": 59}, "MAX_HOLD is shorter than EXPIRE", "", id="shorter"),
    pytest.param("E017", {"WAIT": -2}, "WAIT must be 0 or more seconds, or -1", "", id="wait-negative"),
    pytest.param("E017", {"WAIT": inf}, "WAIT must be finite", "", id="wait-infinite"),
    pytest.param("E025", {"ON_BACKEND_ERROR": "opened"}, "is 'closed' or 'open', not 'opened'", "", id="on-error"),
    pytest.param("E025", {"ON_BACKEND_ERROR": True}, "is 'closed' or 'open', not True", "", id="on-error-bool"),
    pytest.param("E022", {"ON_CONFLICT": "rise"}, "'rise'; did you mean 'raise'?", "", id="on-conflict"),
    pytest.param(
        "E022", {"ON_CONFLICT": None}, "ON_CONFLICT is 'answer', 'raise', a handler", "", id="on-conflict-none"
    ),
    pytest.param("E022", {"ON_CONFLICT": dict}, "ON_CONFLICT is 'answer', 'raise'", "", id="on-conflict-class"),
    pytest.param("E022", {"ON_CONFLICT": "skip"}, "ON_CONFLICT can't be 'skip' for all", "", id="on-conflict-skip"),
    pytest.param("E029", {"METADATA": "host"}, "METADATA is a list of names", "", id="metadata-text"),
    pytest.param("E029", {"METADATA": ["hots"]}, "unknown METADATA 'hots'", "host, pid, thread, name", id="metadata"),
    pytest.param("E034", {"METADATA": ["path"]}, "'path' comes in a later version", "Leave it out", id="path"),
    pytest.param("E034", {"METADATA": ["user"]}, "'user' comes in a later version", "Leave it out", id="user"),
    pytest.param("E034", {"METADATA": ["task_id"]}, "'task_id' comes in a later version", "Leave it", id="task"),
    pytest.param("W014", {"EXPIRE": 0.5}, "EXPIRE is below one second", "pause of the process", id="short"),
    pytest.param("W018", {"WAIT": 26}, "WAIT is longer than 25 seconds", "kill a worker after 30", id="long-wait"),
    pytest.param("W018", {"WAIT": -1}, "WAIT is longer than 25 seconds", "kill a worker after 30", id="for-ever"),
]

IN_LOCKS_ONLY = [
    pytest.param("E027", {"RENEW": "yes"}, "RENEW is True or False, not 'yes'", "", id="renew"),
    pytest.param("E031", {"EXPIER": 5}, "unknown key 'EXPIER'", "Did you mean 'EXPIRE'?", id="misspelt"),
    pytest.param("E031", {"LOCATION": URL}, "unknown key 'LOCATION'", "Known are EXPIRE, WAIT", id="alias-only"),
    pytest.param("E031", {"FAILURE_HANDLER": "a.b"}, "unknown key", "Did you mean 'ON_CONFLICT'?", id="handler"),
    pytest.param("E031", {"FAILURE_STATUS": 423}, "unknown key", "Did you mean 'STATUS'?", id="failure-status"),
    pytest.param("E021", {"HOLD": "forever"}, "HOLD is 'call', 'transaction' or 'response'", "", id="hold"),
    pytest.param("E023", {"STATUS": 200}, "STATUS is the status of a refusal, 400 to 599", "", id="status-200"),
    pytest.param("E023", {"STATUS": "409"}, "STATUS is the status of a refusal", "", id="status-text"),
    pytest.param("E024", {"RETRY_AFTER": -1}, "RETRY_AFTER is True, False or a whole number", "", id="retry-after"),
    pytest.param("E027", {"REENTRANT": 1}, "REENTRANT is True or False, not 1", "", id="reentrant"),
    pytest.param("E027", {"AUTO_RELEASE": 0}, "AUTO_RELEASE is True or False, not 0", "", id="auto-release"),
    pytest.param("E031", {"METHOD": ["POST"]}, "unknown key 'METHOD'", "Did you mean 'METHODS'?", id="method"),
    pytest.param("E037", {"METHODS": "POST"}, "METHODS is a set of verbs", "", id="methods-text"),
    pytest.param("E037", {"METHODS": ["POTS"]}, "'POTS' is no verb of HTTP; did you mean 'POST'", "", id="methods"),
    pytest.param("E038", {"CONDITION": "shop.no_such"}, "CONDITION can't be imported", "", id="condition-path"),
    pytest.param("E038", {"CONDITION": "math.pi"}, "CONDITION is a callable or the dotted path", "", id="condition"),
    pytest.param("E039", {"AUTO_RELEASE": False}, "stays until its lease ends", "Give it an EXPIRE", id="cool"),
    *(
        pytest.param(
            "E039", {"AUTO_RELEASE": False, "EXPIRE": 5, key: True}, "stays until", "neither", id=f"cool-{key}"
        )
        for key in ("RENEW", "REENTRANT")
    ),
]


class TestEveryProblem:
    def check(self, settings: Any, entry: dict[Any, Any], where: str, id: str, message: str, hint: str) -> None:
        settings.REDIS_LOCKS = {"default": {"LOCATION": URL}, "payments": entry}
        found = only(messages())
        assert found.id == f"redis_locks.{id}"
        assert isinstance(found, checks.Error if id.startswith("E") else checks.Warning)
        assert found.msg.startswith(where)
        assert message in found.msg
        assert hint in (found.hint or "")
        assert bool(hint) == bool(found.hint)

    @pytest.mark.parametrize(("id", "entry", "message", "hint"), OF_AN_ALIAS)
    def test_of_an_alias(self, settings: Any, id: str, entry: dict[Any, Any], message: str, hint: str) -> None:
        """Whatever is wrong in an alias is one message with its id, the alias, and a hint where there is one."""
        if "LOCATION" not in entry and id in ("E001", "E002", "E003", "E016"):
            entry = {"LOCATION": URL, **entry}
        self.check(settings, entry, "REDIS_LOCKS['payments']", id, message, hint)

    @pytest.mark.parametrize(("id", "entry", "message", "hint"), PER_NAME)
    def test_of_both_levels_in_an_alias(
        self, settings: Any, id: str, entry: dict[Any, Any], message: str, hint: str
    ) -> None:
        """What may stand in an alias and per name is checked in the alias."""
        self.check(settings, {"LOCATION": URL, **entry}, "REDIS_LOCKS['payments']: ", id, message, hint)

    @pytest.mark.parametrize(("id", "entry", "message", "hint"), [*PER_NAME, *IN_LOCKS_ONLY])
    def test_per_name(self, settings: Any, id: str, entry: dict[Any, Any], message: str, hint: str) -> None:
        """[D53] An entry of LOCKS is checked as strictly, and the message says which; what comes later is told so."""
        where = "REDIS_LOCKS['payments']['LOCKS']['order']"
        self.check(settings, {"LOCATION": URL, "LOCKS": {"order": entry}}, where, id, message, hint)

    def test_all_at_once(self, settings: Any) -> None:
        """One run reports everything, of all aliases."""
        settings.REDIS_LOCKS = {
            "default": {"LOCATION": URL, "EXPIRE": 0, "WAIT": -5, "EXPRIE": 3},
            "payments": {"LOCATION": "ftp://x", "LOCKS": {"a": {"INDEX": True}, "b": {"EXPIRE": nan}}},
        }
        assert sorted(str(message.id)[-4:] for message in messages()) == [
            "E001",
            "E005",
            "E013",
            "E013",
            "E017",
            "E031",
        ]

    @pytest.mark.parametrize("entry", [None, 5, "redis://h", [URL], MEMORY])
    def test_an_alias_is_a_dict(self, settings: Any, entry: object) -> None:
        """The URL alone, or anything else that is no dict, is E001."""
        settings.REDIS_LOCKS = {"default": {"LOCATION": URL}, "payments": entry}
        message = only(messages())
        assert message.id == "redis_locks.E001"
        assert message.msg == f"REDIS_LOCKS['payments'] must be a dict, not {type(entry).__name__}."
        with pytest.raises(InvalidLockBackend, match="must be a dict"):
            locks["payments"]

    @pytest.mark.parametrize("table", [[], "redis://h", 5])
    def test_the_setting_is_a_dict(self, settings: Any, table: object) -> None:
        """The setting itself is checked too."""
        settings.REDIS_LOCKS = table
        assert only(messages()).msg == "REDIS_LOCKS must be a dict of aliases."
        with pytest.raises(InvalidLockBackend, match="must be a dict of aliases"):
            locks.lock("x")

    def test_there_is_a_default_alias(self, settings: Any) -> None:
        """`locks.x` is `locks["default"].x`, so an alias of that name is needed."""
        settings.REDIS_LOCKS = {"payments": {"LOCATION": URL}}
        message = only(messages())
        assert (message.id, message.msg) == ("redis_locks.E001", "REDIS_LOCKS has no alias 'default'.")

    @pytest.mark.parametrize("key", conf.DEFAULTS)
    @pytest.mark.parametrize(
        "junk",
        [None, -1, 0, 5, 10**400, nan, inf, True, "x", "", b"x", [], ["x"], [[]], {}, {"a": 1}, {"x"}, object()],
        ids=lambda value: type(value).__name__,
    )
    def test_no_value_breaks_the_check(self, settings: Any, key: str, junk: object) -> None:
        """Junk is reported, never raised; and what the check lets through can be used, what it refuses can't."""
        entry = {key: junk} if key in ("LOCATION", "CACHE") else {"LOCATION": URL, key: junk}
        refused = any(problem.serious for problem in conf.problems("default", entry))
        try:
            conf.read("default", entry)
        except InvalidLockBackend:
            assert refused
        else:
            assert not refused


class TestWhatIsRight:
    @pytest.mark.parametrize(
        "entry",
        [
            {"LOCATION": URL},
            {"LOCATION": "rediss://user:secret@example.org:6380/2"},
            {"LOCATION": "unix:///run/redis.sock?db=1"},
            {"LOCATION": "valkey://example.org"},
            {"LOCATION": "valkeys://example.org/1"},
            {"LOCATION": URL, "EXPIRE": timedelta(seconds=20), "WAIT": timedelta(0), "MAX_HOLD": 20},
            {"LOCATION": URL, "WAIT": 25, "ON_BACKEND_ERROR": "open", "METADATA": [], "INDEX": False, "HISTORY": 0},
            {"LOCATION": URL, "OPTIONS": {"socket_timeout": 1, "max_connection_age": 60, "client_name": "shop"}},
            {"LOCATION": URL, "LOCKS": {"order:{pk}": {"EXPIRE": 5, "WAIT": 0, "RENEW": False, "MAX_HOLD": 60}}},
            {"LOCATION": URL, "LOCKS": {"order": {"ON_BACKEND_ERROR": "open", "METADATA": ("host",)}, "b": {}}},
            {"LOCATION": URL, "CACHE": None, "BACKEND": "django_redis_locks.backends.redis.RedisBackend"},
        ],
    )
    def test_nothing_to_say(self, settings: Any, entry: dict[str, Any]) -> None:
        """Right settings give no message, without and with --deploy, but for "open" itself."""
        settings.REDIS_LOCKS = {"default": entry}
        assert messages() == []
        locks.lock("order:1")

    def test_of_these_tests(self) -> None:
        """`manage.py check` has one thing to say about these tests' settings: their locks are in memory."""
        found = [message.id for message in run_checks()]
        assert [id for id in found if id.startswith("redis_locks.")] == ["redis_locks.W004"]

    def test_by_the_command(self, settings: Any) -> None:
        """`manage.py check` finds the checks by their tag, and an error ends it."""
        settings.REDIS_LOCKS = {"default": {"LOCATION": URL, "EXPIRE": 0}}
        with pytest.raises(SystemCheckError, match=r"\(redis_locks\.E013\)"):
            call_command("check", "--tag", "redis_locks", stderr=io.StringIO())


class TestWarnings:
    def test_memory(self, settings: Any) -> None:
        """W004: the memory of one process, per alias that uses it."""
        settings.REDIS_LOCKS = {"default": {"LOCATION": URL}, "here": {"BACKEND": MEMORY}, "too": {"BACKEND": MEMORY}}
        found = messages()
        assert [(message.id, message.msg.partition(" ")[0]) for message in found] == [
            ("redis_locks.W004", "REDIS_LOCKS['here']"),
            ("redis_locks.W004", "REDIS_LOCKS['too']"),
        ]
        assert "Other processes don't see them" in (found[0].hint or "")

    def test_memory_in_development(self, settings: Any) -> None:
        """W004 is silent under DEBUG."""
        settings.DEBUG = True
        assert messages() == []

    def test_memory_beside_an_error(self, settings: Any) -> None:
        """An error elsewhere doesn't make the check itself fail."""
        settings.REDIS_LOCKS = {"default": {"BACKEND": MEMORY}, "bad": {"LOCATION": URL, "EXPIRE": 0}}
        assert "redis_locks.E013" in [message.id for message in messages()]

    def test_a_cache_in_the_same_database(self, settings: Any) -> None:
        """[D31] W010: `cache.clear()` is FLUSHDB. Another database or server is fine, another spelling isn't."""
        settings.CACHES = {"default": {"BACKEND": CORE_CACHE, "LOCATION": "redis://cache:secret@127.0.0.1/3"}}
        settings.REDIS_LOCKS = {
            "default": {"LOCATION": URL},
            "elsewhere": {"LOCATION": "redis://127.0.0.1:6379/4"},
            "query": {"LOCATION": "redis://127.0.0.1:6379?db=3"},
        }
        found = messages()
        assert [(message.id, message.msg.partition(" ")[0]) for message in found] == [
            ("redis_locks.W010", "REDIS_LOCKS['default']"),
            ("redis_locks.W010", "REDIS_LOCKS['query']"),
        ]
        assert "cache.clear() deletes the locks" in (found[0].hint or "")

    def test_a_cache_with_a_broken_url(self, settings: Any) -> None:
        """A cache's own mistakes are not ours to trip over."""
        settings.CACHES = {"default": {"BACKEND": CORE_CACHE, "LOCATION": "redis://127.0.0.1:port/3"}}
        settings.REDIS_LOCKS = {"default": {"LOCATION": URL}}
        assert messages() == []

    @pytest.mark.parametrize(
        "entry", [{"ON_BACKEND_ERROR": "open"}, {"LOCKS": {"order": {"ON_BACKEND_ERROR": "open"}}}]
    )
    def test_open_in_production(self, settings: Any, entry: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
        """W026, in an alias or per name, under --deploy only."""
        monkeypatch.setattr(server_checks, "_usable", list)
        settings.REDIS_LOCKS = {"default": {"LOCATION": URL}, "cache": {"LOCATION": URL, **entry}}
        assert messages() == []
        message = only(messages(deploy=True))
        assert message.id == "redis_locks.W026"
        assert message.msg.startswith("REDIS_LOCKS['cache']")
        assert "without a lock while the store is down" in message.msg
        assert "'closed'" in (message.hint or "")

    @pytest.mark.parametrize(
        "table", [None, 5, {"default": 5}, {"default": {"LOCKS": 5}}, {"default": {"LOCKS": {"a": 5}}}]
    )
    def test_deployment_check_on_junk(self, settings: Any, table: object) -> None:
        """The check for production leaves the rest to the other one."""
        settings.REDIS_LOCKS = table
        assert "redis_locks.W026" not in [message.id for message in messages(deploy=True)]


class TestWithoutTheSetting:
    """[F19]"""

    def test_a_redis_cache_lends_its_connection(self, settings: Any, redis_url: str) -> None:
        """[F19] Without REDIS_LOCKS the alias default borrows from the Redis cache default, and W010 says so."""
        del settings.REDIS_LOCKS
        settings.CACHES = {"default": {"BACKEND": CORE_CACHE, "LOCATION": redis_url}}
        message = only(messages())
        assert message.id == "redis_locks.W010"
        assert message.msg == "REDIS_LOCKS isn't set: locks live in the database of the cache 'default'."
        assert "cache.clear() deletes the locks" in (message.hint or "")
        assert list(locks) == ["default"]
        with locks.lock("order:1") as grant:
            assert grant.held

    def test_no_redis_cache(self, settings: Any) -> None:
        """[F19] Else W003 and, at the first use, InvalidLockBackend; the decorator of an imported module is fine."""
        from django_redis_locks import redis_lock

        del settings.REDIS_LOCKS
        settings.CACHES = {"default": {"BACKEND": LOCMEM_CACHE}}
        message = only(messages())
        assert message.id == "redis_locks.W003"
        assert "the cache 'default' is no Redis: there are no locks" in message.msg
        assert "'LOCATION': 'redis://127.0.0.1:6379/0'" in (message.hint or "")
        decorated = redis_lock("order")(lambda: None)
        for use in (decorated, lambda: locks.lock("order"), lambda: locks["default"]):
            with pytest.raises(InvalidLockBackend, match=r"set REDIS_LOCKS = \{'default'"):
                use()


class TestFirstUse:
    @pytest.mark.parametrize(("id", "entry", "message", "hint"), [*PER_NAME[:1], *OF_AN_ALIAS[:2], *OF_AN_ALIAS[5:10]])
    def test_raises_what_the_check_says(
        self, settings: Any, id: str, entry: dict[Any, Any], message: str, hint: str
    ) -> None:
        """[F19] A wrong alias raises at its first use, with sentence and hint; the others work."""
        settings.REDIS_LOCKS = {"default": {"BACKEND": MEMORY}, "payments": {"LOCATION": URL, **entry}}
        locks.lock("order")
        with pytest.raises(InvalidLockBackend) as raised:
            locks["payments"]
        assert message in str(raised.value)
        assert hint in str(raised.value)

    def test_warnings_dont_raise(self, settings: Any) -> None:
        """Only errors stop an alias."""
        settings.REDIS_LOCKS = {"default": {"BACKEND": MEMORY, "EXPIRE": 0.5, "WAIT": -1}}
        assert locks.lock("order").terms.wait == inf

    def test_an_unknown_alias(self, settings: Any) -> None:
        """The message lists what there is."""
        settings.REDIS_LOCKS = {"default": {"BACKEND": MEMORY}, "payments": {"BACKEND": MEMORY}}
        with pytest.raises(
            InvalidLockBackend, match=r"no alias 'payment' in REDIS_LOCKS; there is 'default', 'payments'"
        ):
            locks["payment"]


class TestPasswords:
    """[D54] A password stands in no message and no repr."""

    @pytest.mark.parametrize(
        "entry",
        [
            {"LOCATION": f"http://user:{PASSWORD}@host:6379/0"},
            {"LOCATION": f"redis://user:{PASSWORD}@host:port/0"},
            {"LOCATION": f"redis://user:{PASSWORD}@host/0?unknown={PASSWORD}"},
            {"LOCATION": [f"redis://user:{PASSWORD}@host/0"]},
            {"LOCATION": f"redis://user:{PASSWORD}@host/0", "CACHE": "default"},
            {"LOCATION": f"redis://user:{PASSWORD}@host/0", "OPTIONS": {"passwort": PASSWORD}},
            {"LOCATION": f"redis://user:{PASSWORD}@host/0", "OPTIONS": (PASSWORD,)},
            {"BACKEND": MEMORY, "OPTIONS": {"passwort": PASSWORD}},
        ],
    )
    def test_in_problems(self, settings: Any, entry: dict[str, Any]) -> None:
        """[D54] Neither a check nor the exception shows it."""
        settings.REDIS_LOCKS = {"default": {"LOCATION": URL}, "bad": entry}
        message = only(messages())
        assert PASSWORD not in f"{message!r} {message} {message.hint}"
        with pytest.raises(InvalidLockBackend) as raised:
            locks["bad"]
        assert PASSWORD not in str(raised.value)

    def test_in_reprs(self, settings: Any) -> None:
        """[D54] Nor does the repr of anything made from a URL; host and user are there."""
        location = f"redis://user:{PASSWORD}@example.org:6380/1"
        settings.REDIS_LOCKS = {"default": {"LOCATION": location}}
        client = locks["default"]
        shown = f"{locks!r} {client!r} {client.engine.backend!r} {client.lock('x')!r} {client.settings!r}"
        assert PASSWORD not in shown
        assert "redis://user:***@example.org:6380/1" in shown
        assert PASSWORD not in client.engine.backend.identity

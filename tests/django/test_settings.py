"""System checks of `REDIS_LOCKS`: id, message and hint of each problem, which is also raised at the first use."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from math import inf, nan
from typing import Any

import pytest
from django.core import checks
from django.core.cache.backends.redis import RedisCache
from django.core.checks import CheckMessage, run_checks

from django_redis_locks import InvalidLockBackend, locks, redis_lock
from tests.django.helpers import MEMORY, in_thread
from tools.redis_server import RedisServer

URL = "redis://127.0.0.1:6379/3"
CORE_CACHE = "django.core.cache.backends.redis.RedisCache"
LOCMEM_CACHE = "django.core.cache.backends.locmem.LocMemCache"
PASSWORD = "hunter2"


def messages(tag: str = "redis_locks", *, deploy: bool = False) -> list[CheckMessage]:
    """The messages of the checks, without those about decorators in other test modules."""
    found = run_checks(tags=[tag], include_deployment_checks=deploy)
    return [
        message for message in found if message.id not in ("redis_locks.E060", "redis_locks.W060", "redis_locks.W061")
    ]


def only_message(found: list[CheckMessage]) -> CheckMessage:
    (message,) = found
    return message


Problem = tuple[str, dict[Any, Any], str, str]
"""Check id, wrong entry, part of the message, part of the hint."""

IN_ALIAS_ONLY: list[Problem] = [
    ("E001", {"LOCATON": URL}, "unknown key 'LOCATON'", "Did you mean 'LOCATION'?"),
    ("E001", {"TIMEOUT": 5}, "unknown key", "Did you mean 'EXPIRE'?"),
    ("E001", {"COLOUR": 1}, "unknown key 'COLOUR'", "Known are BACKEND, LOCATION"),
    ("E002", {"BACKEND": "nowhere.Backend"}, "BACKEND can't be imported", ""),
    ("E003", {"BACKEND": "pathlib.Path"}, "'pathlib.Path' isn't a lock backend", ""),
    ("E005", {"LOCATION": "localhost:6379"}, "isn't the URL of a Redis server", ""),
    ("E005", {"LOCATION": 6379}, "LOCATION is a URL, not int", ""),
    ("E006", {"LOCATION": [URL]}, "LOCATION is one URL", "need the BACKEND of a Redlock"),
    ("E007", {"LOCATION": URL, "CACHE": "default"}, "LOCATION and CACHE", "Keep one"),
    ("E008", {"CACHE": "nowhere"}, "CACHE 'nowhere' isn't in CACHES", "Set LOCATION"),
    ("E008", {"CACHE": ["default"]}, "isn't in CACHES", "Set LOCATION"),
    ("E009", {"CACHE": "default"}, "CACHE 'default' isn't a plain Redis", "Set LOCATION"),
    ("E011", {"LOCATION": URL, "KEY_PREFIX": "{x}"}, "without braces", ""),
    ("E016", {"LOCATION": URL, "MAX_HOLD": 20}, "MAX_HOLD is shorter than EXPIRE", ""),
    ("E027", {"LOCATION": URL, "INDEX": 1}, "INDEX is True or False, not 1", ""),
    ("E061", {"LOCATION": URL, "LOCKS": {"order": {"ON_KEY_ERROR": 200}}}, "a status from 400 to 499", ""),
    ("E031", {"LOCATION": URL, "LOCKS": ["order"]}, "LOCKS must be a dict of dicts", ""),
    ("E031", {"LOCATION": URL, "LOCKS": {"a": 5}}, "['LOCKS']['a'] must be a dict", ""),
    ("E032", {"LOCATION": URL, "OPTIONS": {"socket_timout": 1}}, "did you mean 'socket_timeout'?", ""),
    *[
        ("E032", {"LOCATION": URL, "OPTIONS": {option: value}}, f"option {option} is a number of seconds above 0", "")
        for option, value in (
            ("socket_timeout", None),
            ("socket_timeout", "2"),
            ("socket_connect_timeout", True),
            ("max_connection_age", 0),
        )
    ],
    ("E032", {"BACKEND": MEMORY, "OPTIONS": {"db": 1}}, "no option 'db'", ""),
    ("E034", {"LOCATION": URL, "HISTORY": 100}, "comes in a later version", "Leave it at 0"),
]

AT_BOTH_LEVELS: list[Problem] = [
    ("E013", {"EXPIRE": 0}, "EXPIRE must be between", ""),
    ("E016", {"EXPIRE": 60, "MAX_HOLD": 59}, "MAX_HOLD is shorter than EXPIRE", ""),
    ("E017", {"WAIT": -2}, "WAIT must be 0 or more seconds, or -1", ""),
    ("E025", {"ON_BACKEND_ERROR": "opened"}, "is one of 'closed', 'open', not 'opened'", ""),
    ("E022", {"ON_CONFLICT": "rise"}, "'rise'; did you mean 'raise'?", ""),
    ("E022", {"ON_CONFLICT": "shop.no_such"}, "ON_CONFLICT can't be imported", ""),
    ("E022", {"ON_CONFLICT": "math.pi"}, "ON_CONFLICT is a callable or the dotted path to one", ""),
    ("E022", {"ON_CONFLICT": "skip"}, "ON_CONFLICT can't be 'skip' for all", ""),
    ("E029", {"METADATA": "host"}, "METADATA is a list of names", ""),
    ("E029", {"METADATA": ["hots"]}, "unknown METADATA 'hots'", "host, pid, thread, name"),
    ("E034", {"METADATA": ["path"]}, "'path' comes in a later version", "Leave it out"),
    ("W014", {"EXPIRE": 0.5}, "EXPIRE is below one second", "pause of the process"),
    ("E065", {"BACKEND_WAIT": -2}, "BACKEND_WAIT must be 0 or more seconds, or -1", ""),
    ("W065", {"BACKEND_WAIT": -1}, "BACKEND_WAIT is longer than 25 seconds", "kill a worker after 30"),
    ("W018", {"WAIT": 26}, "WAIT is longer than 25 seconds", "kill a worker after 30"),
]

IN_LOCKS_ONLY: list[Problem] = [
    ("E027", {"RENEW": "yes"}, "RENEW is True or False, not 'yes'", ""),
    ("E031", {"EXPIER": 5}, "unknown key 'EXPIER'", "Did you mean 'EXPIRE'?"),
    ("E031", {"FAILURE_HANDLER": "a.b"}, "unknown key", "Did you mean 'ON_CONFLICT'?"),
    ("E066", {"KIND": "unfair"}, "KIND is one of 'lock', 'fair', 'read', 'write', 'semaphore', not 'unfair'", ""),
    ("E067", {"KIND": "semaphore", "LIMIT": 0}, "LIMIT is a whole number from 1 to", ""),
    ("E067", {"KIND": "semaphore"}, "KIND 'semaphore' and LIMIT, the number", "Set both, or neither"),
    ("E067", {"KIND": "fair", "LIMIT": 3}, "need each other", "Set both, or neither"),
    ("E021", {"HOLD": "forever"}, "HOLD is one of 'call', 'transaction', 'response'", ""),
    ("E023", {"STATUS": 200}, "STATUS is the status of a refusal, 400 to 599", ""),
    ("E024", {"RETRY_AFTER": -1}, "RETRY_AFTER is True, False or a whole number", ""),
    ("E037", {"METHODS": ["POTS"]}, "'POTS' isn't an HTTP verb; did you mean 'POST'", ""),
    ("E038", {"CONDITION": "shop.no_such"}, "CONDITION can't be imported", ""),
    ("E039", {"AUTO_RELEASE": False}, "stays until its lease ends", "Give it an EXPIRE"),
    ("E039", {"AUTO_RELEASE": False, "EXPIRE": 5, "RENEW": True}, "stays until", "neither"),
    ("E039", {"AUTO_RELEASE": False, "EXPIRE": 5, "REENTRANT": True}, "stays until", "neither"),
]


class TestProblems:
    def check(self, settings: Any, entry: dict[Any, Any], where: str, id: str, message: str, hint: str) -> None:
        settings.REDIS_LOCKS = {"default": {"LOCATION": URL}, "payments": entry}
        found = only_message(messages())
        assert found.id == f"redis_locks.{id}", entry
        assert isinstance(found, checks.Error if id.startswith("E") else checks.Warning)
        assert found.msg.startswith(where), entry
        assert message in found.msg
        assert hint in (found.hint or ""), entry
        assert bool(hint) == bool(found.hint), entry

    def test_wrong_entry_gives_one_message_with_id_place_and_hint(self, settings: Any) -> None:
        """[D53] Entries of LOCKS are checked like aliases. Options of later versions are named as such."""
        for id, entry, message, hint in IN_ALIAS_ONLY:
            if "LOCATION" not in entry and id in ("E001", "E002", "E003", "E016"):
                entry = {"LOCATION": URL, **entry}  # noqa: PLW2901
            self.check(settings, entry, "REDIS_LOCKS['payments']", id, message, hint)
        for id, entry, message, hint in AT_BOTH_LEVELS:
            self.check(settings, {"LOCATION": URL, **entry}, "REDIS_LOCKS['payments']: ", id, message, hint)
        where = "REDIS_LOCKS['payments']['LOCKS']['order']"
        for id, entry, message, hint in [*AT_BOTH_LEVELS, *IN_LOCKS_ONLY]:
            self.check(settings, {"LOCATION": URL, "LOCKS": {"order": entry}}, where, id, message, hint)

    def test_one_run_reports_all_problems_of_all_aliases(self, settings: Any) -> None:
        settings.REDIS_LOCKS = {
            "default": {"LOCATION": URL, "EXPIRE": 0, "WAIT": -5, "EXPRIE": 3},
            "payments": {"LOCATION": "ftp://x", "LOCKS": {"a": {"INDEX": True}, "b": {"EXPIRE": nan}}},
        }
        found = sorted(str(message.id)[-4:] for message in messages())
        assert found == ["E001", "E005", "E013", "E013", "E017", "E031"]

    def test_setting_or_alias_that_is_no_dict_is_E001(self, settings: Any) -> None:
        """Also if the alias `default` is missing, which `locks.x` needs."""
        for entry in (None, [URL], MEMORY):
            settings.REDIS_LOCKS = {"default": {"LOCATION": URL}, "payments": entry}
            message = only_message(messages())
            assert message.id == "redis_locks.E001"
            assert message.msg == f"REDIS_LOCKS['payments'] must be a dict, not {type(entry).__name__}."
            with pytest.raises(InvalidLockBackend, match="must be a dict"):
                locks["payments"]
        for table in ([], 5):
            settings.REDIS_LOCKS = table
            assert only_message(messages()).msg == "REDIS_LOCKS must be a dict of aliases."
            with pytest.raises(InvalidLockBackend, match="must be a dict of aliases"):
                locks.lock("x")
        settings.REDIS_LOCKS = {"payments": {"LOCATION": URL}}
        message = only_message(messages())
        assert (message.id, message.msg) == ("redis_locks.E001", "REDIS_LOCKS has no alias 'default'.")


RIGHT: list[dict[str, Any]] = [
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
    {"LOCATION": URL, "ON_CONFLICT": f"{__name__}.only_message", "LOCKS": {"order": {"ON_CONFLICT": "raise"}}},
    {"LOCATION": URL, "ON_CONFLICT": "answer", "LOCKS": {"order": {"ON_CONFLICT": lambda request, refused: None}}},
    {"LOCATION": URL, "CACHE": None, "BACKEND": "django_redis_locks.backends.redis.RedisBackend"},
]


class TestRightSettings:
    def test_right_alias_gives_no_message(self, settings: Any) -> None:
        for entry in RIGHT:
            settings.REDIS_LOCKS = {"default": entry}
            assert messages() == [], entry
            locks.lock("order:1")


class TestNames:
    def test_decorator_with_an_unknown_alias_is_E060(self, settings: Any) -> None:
        """[D5] Without the check the first request would be a 500."""
        _kept = redis_lock("missing:{x}", using="nope")(lambda x: x)
        settings.REDIS_LOCKS = {"default": {"LOCATION": URL}}
        found = [message for message in run_checks(tags=["redis_locks"]) if "missing:{x}" in message.msg]
        assert [(message.id, message.hint) for message in found] == [("redis_locks.E060", "There is 'default'.")]

    def test_name_in_LOCKS_that_no_decorator_has_is_W060(self, settings: Any) -> None:
        """[D5] Only if the entry has options of the decorator: names of lock objects aren't known."""
        _kept = redis_lock("invoice:{number}")(lambda number: number)
        names = {"invoice:{nummer}": {"EXPIRE": 5}, "parcel": {"WAIT": 1, "STATUS": 423}, "letter": {"WAIT": 1}}
        settings.REDIS_LOCKS = {"default": {"LOCATION": URL, "LOCKS": names}}
        found = [message for message in run_checks(tags=["redis_locks"]) if message.id == "redis_locks.W060"]
        assert "Did you mean 'invoice:{number}'? If lock objects have this name" in (found[0].hint or "")
        assert "'parcel']: no @redis_lock has this name, and only @redis_lock uses STATUS" in found[1].msg
        settings.REDIS_LOCKS = {"default": {"LOCATION": URL, "LOCKS": {"invoice:{number}": {"STATUS": 423}}}}
        assert not [message for message in run_checks(tags=["redis_locks"]) if message.id == "redis_locks.W060"]

    def test_aliases_with_one_database_and_prefix_are_W061(self, settings: Any) -> None:
        """[D5] [F23]"""
        own = {"LOCATION": URL, "KEY_PREFIX": "own"}
        settings.REDIS_LOCKS = {"default": {"LOCATION": URL}, "own": own, "twin": {"LOCATION": URL + "?db=3"}}
        found = [message for message in run_checks(tags=["redis_locks"]) if message.id == "redis_locks.W061"]
        assert "REDIS_LOCKS['default'] and ['twin'] have the same database" in only_message(found).msg


class TestWarnings:
    def test_memory_backend_is_W004_per_alias(self, settings: Any) -> None:
        """Not under DEBUG."""
        memory = {"here": {"BACKEND": MEMORY}, "too": {"BACKEND": MEMORY}}
        settings.REDIS_LOCKS = {"default": {"LOCATION": URL}, **memory}
        found = messages()
        assert [(message.id, message.msg.partition(" ")[0]) for message in found] == [
            ("redis_locks.W004", "REDIS_LOCKS['here']"),
            ("redis_locks.W004", "REDIS_LOCKS['too']"),
        ]
        assert "They don't exclude other processes. Use a Redis server" in (found[0].hint or "")
        settings.DEBUG, settings.REDIS_LOCKS = True, {"default": {"LOCATION": URL}, **memory}
        assert messages() == []

    def test_cache_in_the_same_database_is_W010(self, settings: Any) -> None:
        """[D31] Because `cache.clear()` is FLUSHDB. Also with another spelling of the URL; not with another database or
        server."""
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
        settings.CACHES = {"default": {"BACKEND": CORE_CACHE, "LOCATION": "redis://127.0.0.1:port/3"}}
        assert messages() == []

    def test_open_on_backend_error_is_W026_under_deploy_only(self, settings: Any) -> None:
        settings.DEBUG = True
        for entry in ({"ON_BACKEND_ERROR": "open"}, {"LOCKS": {"order": {"ON_BACKEND_ERROR": "open"}}}):
            settings.REDIS_LOCKS = {"default": {"BACKEND": MEMORY}, "cache": {"BACKEND": MEMORY, **entry}}
            assert messages() == []
            message = only_message(messages(deploy=True))
            assert message.id == "redis_locks.W026"
            assert message.msg.startswith("REDIS_LOCKS['cache']")
            assert "without a lock while the store is down" in message.msg
            assert "'closed'" in (message.hint or "")
        for table in (None, 5, {"default": 5}, {"default": {"LOCKS": {"a": 5}}}):
            settings.REDIS_LOCKS = table
            assert "redis_locks.W026" not in [message.id for message in messages(deploy=True)], table


class TestWithoutTheSetting:
    """[F19]"""

    def test_alias_default_borrows_the_connection_of_the_redis_cache(self, settings: Any, redis_url: str) -> None:
        """[F19] Without REDIS_LOCKS; with W010."""
        del settings.REDIS_LOCKS
        settings.CACHES = {"default": {"BACKEND": CORE_CACHE, "LOCATION": redis_url}}
        message = only_message(messages())
        assert message.id == "redis_locks.W010"
        assert message.msg == "REDIS_LOCKS isn't set: locks are in the database of the cache 'default'."
        assert "cache.clear() deletes the locks" in (message.hint or "")
        assert list(locks) == ["default"]
        with locks.lock("order:1") as grant:
            assert grant.held

    def test_project_without_settings_and_redis_cache_has_W003_and_raises_at_first_use(self, settings: Any) -> None:
        """[F19] InvalidLockBackend at the first use. Decorating functions works."""
        from django_redis_locks import redis_lock

        del settings.REDIS_LOCKS
        settings.CACHES = {"default": {"BACKEND": LOCMEM_CACHE}}
        message = only_message(messages())
        assert message.id == "redis_locks.W003"
        assert "the cache 'default' isn't on Redis: locks can't be used" in message.msg
        assert "'LOCATION': 'redis://127.0.0.1:6379/0'" in (message.hint or "")
        decorated = redis_lock("order")(lambda: None)
        for use in (decorated, lambda: locks.lock("order"), lambda: locks["default"]):
            with pytest.raises(InvalidLockBackend, match=r"set REDIS_LOCKS = \{'default'"):
                use()


def test_wrong_or_unknown_alias_raises_at_its_first_use(settings: Any) -> None:
    """[F19] With message and hint. Other aliases work, and warnings don't raise."""
    for _, entry, message, hint in [*AT_BOTH_LEVELS[:1], *IN_ALIAS_ONLY[:2], *IN_ALIAS_ONLY[5:9]]:
        settings.REDIS_LOCKS = {"default": {"BACKEND": MEMORY}, "payments": {"LOCATION": URL, **entry}}
        locks.lock("order")
        with pytest.raises(InvalidLockBackend) as raised:
            locks["payments"]
        assert message in str(raised.value)
        assert hint in str(raised.value)
    memory = {"BACKEND": MEMORY}
    settings.REDIS_LOCKS = {"default": {**memory, "EXPIRE": 0.5, "WAIT": -1}, "payments": memory}
    assert locks.lock("order").options.wait == inf
    with pytest.raises(InvalidLockBackend, match="no alias 'payment' in REDIS_LOCKS; there is 'default', 'payments'"):
        locks["payment"]


class TestPasswords:
    def test_password_is_in_no_message(self, settings: Any) -> None:
        """[D54] Neither of a check nor of the exception."""
        url = f"redis://user:{PASSWORD}@host/0"
        for entry in (
            {"LOCATION": f"http://user:{PASSWORD}@host:6379/0"},
            {"LOCATION": f"redis://user:{PASSWORD}@host:port/0"},
            {"LOCATION": f"{url}?unknown={PASSWORD}"},
            {"LOCATION": [url]},
            {"LOCATION": url, "CACHE": "default"},
            {"LOCATION": url, "OPTIONS": {"passwort": PASSWORD}},
            {"LOCATION": url, "OPTIONS": (PASSWORD,)},
            {"BACKEND": MEMORY, "OPTIONS": {"passwort": PASSWORD}},
        ):
            settings.REDIS_LOCKS = {"default": {"LOCATION": URL}, "bad": entry}
            message = only_message(messages())
            assert PASSWORD not in f"{message!r} {message} {message.hint}"
            with pytest.raises(InvalidLockBackend) as raised:
                locks["bad"]
            assert PASSWORD not in str(raised.value)

    def test_password_is_in_no_repr(self, settings: Any) -> None:
        """[D54] Host and user are shown."""
        location = f"redis://user:{PASSWORD}@example.org:6380/1"
        settings.REDIS_LOCKS = {"default": {"LOCATION": location}}
        client = locks["default"]
        shown = f"{locks!r} {client!r} {client.engine.backend!r} {client.lock('x')!r} {client.settings!r}"
        assert PASSWORD not in shown
        assert "redis://user:***@example.org:6380/1" in shown
        assert PASSWORD not in client.engine.backend.identity


# CACHE: the connection settings of a cache are borrowed, its client isn't


DJANGO_REDIS = "django_redis.cache.RedisCache"
OTHER = "redis://127.0.0.1:6380/2"


def borrow(settings: Any, **cache: Any) -> Any:
    """The settings of an alias that borrows from this cache."""
    settings.CACHES = {"default": {"BACKEND": LOCMEM_CACHE}, "shared": cache}
    settings.REDIS_LOCKS = {"default": {"CACHE": "shared"}}
    return locks["default"].settings


@pytest.mark.parametrize("backend", [CORE_CACHE, DJANGO_REDIS])
class TestWhatIsBorrowed:
    def test_first_server_of_a_cache_with_replicas_is_borrowed(self, settings: Any, backend: str) -> None:
        """[D33] The first one is the primary; the others are replicas."""
        for location in (URL, [URL], [URL, OTHER], (URL, OTHER), f"{URL},{OTHER}", f"{URL};{OTHER}"):
            assert borrow(settings, BACKEND=backend, LOCATION=location).location == URL, location

    def test_options_of_the_alias_win_over_those_of_the_cache(self, settings: Any, backend: str) -> None:
        options = {"client_name": "cache"}
        options = options if backend == CORE_CACHE else {"CONNECTION_POOL_KWARGS": options}
        assert borrow(settings, BACKEND=backend, LOCATION=URL, OPTIONS=options).options == {"client_name": "cache"}
        own = {"client_name": "locks", "socket_timeout": 1}
        settings.REDIS_LOCKS = {"default": {"CACHE": "shared", "OPTIONS": own}}
        assert locks["default"].settings.options == own

    def test_lock_over_a_borrowed_connection_excludes_others(
        self, settings: Any, backend: str, make_server: Callable[..., RedisServer]
    ) -> None:
        """With W010, and without django-redis installed. A password among the options is borrowed. [D36] The pool
        isn't: two locks work at a time even if the pool of the cache has one connection."""
        server = make_server(requirepass="hunter2")
        pool = {"pool_class": "redis.BlockingConnectionPool", "timeout": 1, "max_connections": 1}
        options = {"password": "hunter2", **pool} if backend == CORE_CACHE else {"PASSWORD": "hunter2"}
        borrow(settings, BACKEND=backend, LOCATION=f"redis://127.0.0.1:{server.port}/0", OPTIONS=options)
        assert [message.id for message in run_checks(tags=["redis_locks"])] == ["redis_locks.W010"]
        with locks.lock("order:1"):
            assert in_thread(lambda: locks.lock("order:1").acquire(blocking=False)) is None
            in_thread(lambda: locks.lock("order:2").acquire().release())
        assert "hunter2" not in repr(locks["default"])


class TestOptions:
    def test_connection_options_of_djangos_cache_are_borrowed(self, settings: Any) -> None:
        """[D36] Pool, parser and serializer aren't."""
        url = URL.replace("redis:", "rediss:")
        for options, expected in (
            ({"username": "u", "password": "p"}, {"username": "u", "password": "p"}),
            ({"ssl_ca_certs": "/ca.pem", "socket_timeout": 3}, {"ssl_ca_certs": "/ca.pem", "socket_timeout": 3}),
            ({"pool_class": "redis.BlockingConnectionPool", "timeout": 5, "max_connections": 9}, {}),
            ({"parser_class": "x.Y", "serializer": "x.Z"}, {}),
        ):
            assert borrow(settings, BACKEND=CORE_CACHE, LOCATION=url, OPTIONS=options).options == expected

    def test_connection_options_of_django_redis_are_borrowed(self, settings: Any) -> None:
        """[D34] They have other names there. IGNORE_EXCEPTIONS isn't borrowed."""
        for options, expected in (
            ({"PASSWORD": "p", "SOCKET_TIMEOUT": 3}, {"password": "p", "socket_timeout": 3}),
            ({"USERNAME": "u", "SOCKET_TIMEOUT": None}, {"username": "u"}),
            ({"SOCKET_CONNECT_TIMEOUT": 4}, {"socket_connect_timeout": 4}),
            ({"CONNECTION_POOL_KWARGS": {"max_connections": 9, "username": "u"}}, {"username": "u"}),
            ({"CONNECTION_POOL_CLASS": "redis.BlockingConnectionPool", "IGNORE_EXCEPTIONS": True}, {}),
            ({"CLIENT_CLASS": "django_redis.client.DefaultClient", "SERIALIZER": "x.Y", "PARSER_CLASS": "x.Z"}, {}),
            ({"COMPRESSOR": "x.Y", "LOG_IGNORED_EXCEPTIONS": True, "CLOSE_CONNECTION": True}, {}),
        ):
            assert borrow(settings, BACKEND=DJANGO_REDIS, LOCATION=URL, OPTIONS=options).options == expected


class OwnCache(RedisCache):
    """A project's subclass of Django's Redis cache."""


class TestRefusals:
    def test_cache_that_is_no_plain_redis_cache_is_refused(self, settings: Any) -> None:
        """For a sharded client the server of a lock is unknown."""
        clients = [f"django_redis.client.{name}" for name in ("ShardClient", "SentinelClient", "HerdClient")]
        for cache in (
            {"BACKEND": LOCMEM_CACHE},
            {"BACKEND": "django.core.cache.backends.dummy.DummyCache", "LOCATION": URL},
            {"BACKEND": "nowhere.Cache", "LOCATION": URL},
            {"BACKEND": "pathlib.Path", "LOCATION": URL},
            {"LOCATION": URL},
            {"BACKEND": CORE_CACHE},
            {"BACKEND": CORE_CACHE, "LOCATION": []},
            *({"BACKEND": DJANGO_REDIS, "LOCATION": URL, "OPTIONS": {"CLIENT_CLASS": name}} for name in clients),
        ):
            with pytest.raises(
                InvalidLockBackend, match=r"CACHE 'shared' isn't a plain Redis cache\. Set LOCATION instead"
            ):
                borrow(settings, **cache)

    def test_url_of_a_cache_is_checked_and_its_password_is_hidden(self, settings: Any) -> None:
        """Also of a project's subclass of Django's cache."""
        own = f"{OwnCache.__module__}.{OwnCache.__qualname__}"
        assert borrow(settings, BACKEND=own, LOCATION=URL).location == URL
        with pytest.raises(InvalidLockBackend) as raised:
            borrow(settings, BACKEND=CORE_CACHE, LOCATION="http://user:hunter2@example.org/0")
        assert "isn't the URL of a Redis server" in str(raised.value)
        assert "hunter2" not in str(raised.value)

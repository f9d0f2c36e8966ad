"""The rights of a user, as read from error replies."""

from __future__ import annotations

import re
from pathlib import Path

from django_redis_locks.backends.redis import server_info
from django_redis_locks.backends.redis.resp import ServerError


def test_denied_command_key_or_channel_is_read_from_the_answers_of_all_versions() -> None:
    for answer, right in (
        ("this user has no permissions to run the 'zadd' command or its subcommand", "+zadd"),
        ("this user has no permissions to access one of the keys used as arguments", "~lock:*"),
        ("this user has no permissions to access one of the channels used as arguments", "&lock:*"),
        ("User key has no permissions to run the 'zadd' command", "+zadd"),
        ("User channel has no permissions to access the 'lock:{0}:channel' key", "~lock:*"),
        ("No permissions to access a channel", "&lock:*"),
    ):
        replies = [ServerError(f"NOPERM {answer}") if command == "zadd" else 0 for command in server_info.PROBES]
        assert [*server_info._denied(server_info.PROBES, replies, "lock")] == [right], answer


def test_commands_of_the_scripts_are_those_that_the_check_tries() -> None:
    sources = [path.read_text() for path in Path(server_info.__file__).with_name("lua").rglob("*.lua")]
    used = {command.lower() for source in sources for command in re.findall(r"redis\.p?call\('\$?(\w+)'", source)}
    assert used | {"eval", "evalsha", "ping", "subscribe"} == set(server_info.PROBES)

"""The Lua scripts as the Redis backend sends them."""

from __future__ import annotations

import re
from pathlib import Path

from django_redis_locks.backends.redis import scripts

FOLDER = Path(scripts.__file__).parent / "lua"
NAMES = [
    path.relative_to(FOLDER).with_suffix("").as_posix()
    for path in sorted(FOLDER.rglob("*.lua"))
    if path.parent.name != "shared"  # parts of scripts
]


def source_of(name: str) -> str:
    return scripts.script(name).source


def sha_of(name: str) -> str:
    return scripts.script(name).sha


def commands_of(name: str) -> set[str]:
    """The Redis commands that a script calls."""
    return set(re.findall(r"redis\.p?call\('(\w+)'", source_of(name)))

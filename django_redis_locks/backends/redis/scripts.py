"""Loads the Lua scripts and packs the requests that call them. Each command has a file of its name under ``lua/``. A
line ``-- uses wake`` includes the function of ``lua/shared/wake.lua``. ``$INDEX_RETENTION`` and ``$RESERVED_FENCES``
are constants, in milliseconds if they are times."""

from __future__ import annotations

import hashlib
import re
from functools import cache, lru_cache
from importlib import resources
from typing import TYPE_CHECKING, Any, NamedTuple

from ...core.tuning import INDEX_RETENTION, RESERVED_FENCES
from .resp import pack, pack_value, packed

if TYPE_CHECKING:
    from ...core.commands import Command

_uses = re.compile(r"^-- uses (.+)$", re.MULTILINE)
_comment = re.compile(r"^\s*--.*\n", re.MULTILINE)


class Script(NamedTuple):
    """A Lua script and its SHA-1 digest."""

    source: str
    sha: str


@cache
def script(name: str) -> Script:
    """The script of a command, such as ``lock/acquire``."""
    text = _read(name)
    parts = [_read(f"shared/{part}") for names in _uses.findall(text) for part in names.split()]
    source = _comment.sub("", "".join([*parts, text]))
    source = source.replace("$INDEX_RETENTION", str(int(INDEX_RETENTION * 1000)))
    source = source.replace("$RESERVED_FENCES", str(RESERVED_FENCES))
    return Script(source, hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest())


def _read(name: str) -> str:
    return resources.files(__package__).joinpath("lua", f"{name}.lua").read_text()


def by_sha(command: Command[Any]) -> bytes:
    """Pack the request that calls a command's script by its hash. A server that doesn't know it replies NOSCRIPT."""
    args = command.args
    head_of = _known_heads.get(command.name[:4])
    if head_of is None:
        return _head(command.name, command.keys, len(args)) + b"".join(map(pack_value, args))
    head = head_of(command.name, command.keys, len(args))
    if not args:
        return head
    first = str(args[0]).encode()  # a token, as a rule: no two are alike
    head = b"%b$%d\r\n%b\r\n" % (head, len(first), first)
    rest = args[1:]
    return head + b"".join(map(packed, rest)) if rest else head


def by_source(command: Command[Any]) -> bytes:
    """Pack the request that sends a command's script as source, which the server caches."""
    return pack("EVAL", script(command.name).source, len(command.keys), *command.keys, *command.args)


PLAIN = {"load/get": "GET"}
"""Steps that are plain Redis commands."""


def _head(name: str, keys: tuple[str, ...], args: int) -> bytes:
    """Pack what is equal for all calls of a script with these keys; for a plain command, the whole request."""
    if name in PLAIN:
        return pack(PLAIN[name], *keys)
    values: tuple[str | int, ...] = "EVALSHA", script(name).sha, len(keys), *keys
    return b"*%d\r\n" % (len(values) + args) + b"".join(map(pack_value, values))


_known_heads = {"lock": lru_cache(1024)(_head), "load": lru_cache(1024)(_head)}
"""Cached heads by kind of step, for kinds whose keys recur. Records have none: usually each is a new job."""

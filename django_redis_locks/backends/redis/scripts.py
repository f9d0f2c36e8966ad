"""Loads the Lua scripts and packs the requests that call them.

The script of a command is the file with its name under ``lua/``. A line ``-- uses wake`` is replaced by the function of
``lua/shared/wake.lua``. It stands where the function is needed, because each call of a script creates the functions that
it comes by. ``$INDEX_RETENTION`` and ``$SET_LIMIT_RETENTION`` (in milliseconds), ``$RESERVED_FENCES`` and ``$MOST_LISTED`` are
replaced by constants, ``$PUBLISH`` and ``$NUMSUB`` by the commands for messages.
"""

from __future__ import annotations

import hashlib
import pkgutil
import re
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from ...core.steps import UNGROUPED, positional, ungrouped_arguments
from ...core.tuning import INDEX_RETENTION, MOST_LISTED, RESERVED_FENCES, SET_LIMIT_RETENTION
from .resp import pack, pack_values, packed

if TYPE_CHECKING:
    from ...core.commands import Command

_uses = re.compile(r"^ *-- uses (.+)$", re.MULTILINE)
_comment = re.compile(r"^\s*--.*\n", re.MULTILINE)


class Script(NamedTuple):
    """A Lua script and its SHA-1 digest."""

    source: str
    sha: str


@cache
def script(name: str, sharded: bool = False) -> Script:
    """Return the script of a command, such as ``lock/acquire``, without comments and with the functions that it
    uses.

    Args:
        name: the name of the command.
        sharded: publish to the subscribers of this node of a Cluster, so that their number is right.
    """
    text = _uses.sub(lambda uses: "".join(_read(f"shared/{part}") for part in uses[1].split()), _read(name))
    source = _comment.sub("", text)
    source = source.replace("$INDEX_RETENTION", str(int(INDEX_RETENTION * 1000)))
    source = source.replace("$RESERVED_FENCES", str(RESERVED_FENCES)).replace("$MOST_LISTED", str(MOST_LISTED))
    source = source.replace("$SET_LIMIT_RETENTION", str(int(SET_LIMIT_RETENTION * 1000)))
    source = source.replace("$PUBLISH", "SPUBLISH" if sharded else "PUBLISH")
    source = source.replace("$NUMSUB", "SHARDNUMSUB" if sharded else "NUMSUB")
    return Script(source, hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest())


def _read(name: str) -> str:
    # importlib.resources would import modules here. A signal handler that raises during an import may leave it locked
    return (pkgutil.get_data(__package__, f"lua/{name}.lua") or b"").decode()


def by_sha(command: Command[Any], sharded: bool = False) -> bytes:
    """Pack the request that calls a command's script by its hash. A server that doesn't know it replies NOSCRIPT."""
    args = command.args
    if args and args[-1].__class__ not in UNGROUPED:  # saves a call
        args = positional(args)
    cached_head = _cached_heads.get(command.name[:4])
    if cached_head is None:
        return _head(command.name, command.keys, len(args), sharded) + pack_values(args)
    head = cached_head(command.name, command.keys, len(args), sharded)
    if not args:
        return head
    first = str(args[0]).encode()  # usually a token, which never recurs
    head = b"%b$%d\r\n%b\r\n" % (head, len(first), first)
    rest = args[1:]
    return head + b"".join(map(packed, rest)) if rest else head


def prepared_head(name: str, keys: tuple[str, ...], sharded: bool = False) -> bytes:
    """Pack the beginning of a request that calls a script by its hash, without an optional group of arguments."""
    return _head(name, keys, ungrouped_arguments(name), sharded)


class PackedArguments(NamedTuple):
    """Arguments of a command, and their bytes in a request."""

    values: tuple[str | int, ...]
    data: bytes


def pack_arguments_once(*values: str | int) -> PackedArguments:
    """Pack arguments that don't recur, such as the fields of a record."""
    return PackedArguments(values, pack_values(values))


pack_arguments = lru_cache(1024)(pack_arguments_once)
"""Packs arguments that recur, such as a lease and a holder."""


def by_source(command: Command[Any], sharded: bool = False) -> bytes:
    """Pack the request that sends a command's script as source, which the server caches."""
    source = script(command.name, sharded).source
    return pack("EVAL", source, len(command.keys), *command.keys, *positional(command.args))


PLAIN = {"load/get": "GET", "record/peek": "GET"}
"""Commands that are plain Redis commands instead of scripts."""


def _head(name: str, keys: tuple[str, ...], args: int, sharded: bool) -> bytes:
    """Pack the beginning of a request, which is equal for all calls of a script with these keys. For a plain command,
    pack the whole request."""
    if name in PLAIN:
        return pack(PLAIN[name], *keys)
    return _call(name, len(keys), args, sharded) + pack_values(keys)


@cache
def _call(name: str, keys: int, args: int, sharded: bool) -> bytes:
    """Pack what is before the keys."""
    values: tuple[str | int, ...] = "EVALSHA", script(name, sharded).sha, keys
    return b"*%d\r\n" % (len(values) + keys + args) + pack_values(values)


_cached_heads = {"lock": lru_cache(1024)(_head), "load": lru_cache(1024)(_head)}
"""``_head`` with a cache, by primitive. The keys of records rarely recur, because most records are new jobs."""

"""The scripts: one file per step under ``lua/``, named as the command is. A line ``-- uses wake`` in one puts the
functions of ``lua/shared/wake.lua`` before it."""

from __future__ import annotations

import hashlib
import re
from functools import cache
from importlib import resources
from typing import NamedTuple

_uses = re.compile(r"^-- uses (.+)$", re.MULTILINE)
_comment = re.compile(r"^\s*--.*\n", re.MULTILINE)


class Script(NamedTuple):
    source: str
    sha: str


@cache
def script(name: str) -> Script:
    """The script of a command, such as ``lock/acquire``."""
    text = _read(name)
    parts = [_read(f"shared/{part}") for names in _uses.findall(text) for part in names.split()]
    source = _comment.sub("", "".join([*parts, text]))
    return Script(source, hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest())


def _read(name: str) -> str:
    return resources.files(__package__).joinpath("lua", f"{name}.lua").read_text()

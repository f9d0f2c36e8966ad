"""The scripts: one file per step under ``lua/``, named as the command is."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib import resources
from typing import NamedTuple


class Script(NamedTuple):
    source: str
    sha: str


@cache
def script(name: str) -> Script:
    """The script of a command, such as ``lock/acquire``."""
    source = resources.files(__package__).joinpath("lua", f"{name}.lua").read_text()
    return Script(source, hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest())

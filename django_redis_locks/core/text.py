"""Escapes untrusted text for the log, terminals and the admin."""

from __future__ import annotations

import re

_unseen_space = re.compile(r"^ | $| (?= )|(?<= ) ")


def escape_unprintable(text: str) -> str:
    """Escape all unprintable characters: line ends, control characters and bidirectional controls."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def distinct(text: str) -> str:
    """Escape as ``escape_unprintable``, and make different texts look different: escape spaces at both ends or in a row
    too, and double backslashes."""
    return _unseen_space.sub(r"\\x20", escape_unprintable(text.replace("\\", "\\\\")))

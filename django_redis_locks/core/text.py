"""Text of strangers, shown to people: in the log, on a terminal, in the admin."""

from __future__ import annotations

import re

_unseen_space = re.compile(r"^ | $| (?= )|(?<= ) ")


def escape_unprintable(text: str) -> str:
    """With escapes for characters that aren't seen, or act: it neither ends a line, nor colours it, nor turns it around."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def distinct(text: str) -> str:
    """As ``escape_unprintable``, and no two texts look alike: spaces at both ends or in a row are escaped too, backslashes doubled."""
    return _unseen_space.sub(r"\\x20", escape_unprintable(text.replace("\\", "\\\\")))

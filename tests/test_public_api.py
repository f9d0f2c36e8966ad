"""The public API is the reviewed one: `tests/public_api.txt`, written by `tools/public_api.py`."""

from __future__ import annotations

from tools import public_api


def test_public_api_equals_the_reviewed_file() -> None:
    """[Y 17] An addition, a removal or a changed signature is a decision: its line changes in the file, and is reviewed."""
    found = public_api.difference()
    assert not found, f"the public API differs from the reviewed one:\n{found}\nIf that is meant: make public-api"

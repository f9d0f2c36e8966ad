"""Validation of REDIS_LOCKS: the check and the first use refuse the same values."""

from __future__ import annotations

from contextlib import nullcontext
from itertools import product
from math import inf, nan
from typing import Any

import pytest

from django_redis_locks import InvalidLockBackend, conf

URL = "redis://127.0.0.1:6379/3"
VALUES: list[Any] = [None, -1, 0, 5, 10**400, nan, inf, True, "x", "", b"x", [], ["x"], [[]], {}, {"a": 1}, {"x"}]


def test_check_and_first_use_agree_on_any_value() -> None:
    """The check never raises; a value that it accepts can be used, one that it reports can't."""
    for key, value in product(conf.DEFAULTS, [*VALUES, object()]):
        entry = {key: value} if key in ("LOCATION", "CACHE") else {"LOCATION": URL, key: value}
        refused = any(problem.serious for problem in conf.problems("default", entry))
        with pytest.raises(InvalidLockBackend) if refused else nullcontext():
            conf.read("default", entry)

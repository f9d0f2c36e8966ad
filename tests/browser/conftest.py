from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.servers import unavailable
from tools.browser import Browser, find_browser
from tools.processes import ServerNotFound


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Chromium; skips, or fails in CI, where there is none."""
    try:
        find_browser()
    except ServerNotFound as error:
        unavailable(str(error))
    with Browser() as found:
        yield found

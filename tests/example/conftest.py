from __future__ import annotations

from collections.abc import Iterator

import pytest

from example_project.buyers import post
from tests.example.helpers import Shop, close_shop, open_shop
from tools.redis_server import RedisServer


@pytest.fixture(scope="session")
def site(redis_server: RedisServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    process, url = open_shop(redis_server.url(), tmp_path_factory.mktemp("shop"))
    yield url
    close_shop(process)


@pytest.fixture
def shop(site: str, redis_url: str) -> Shop:
    """Open, restocked, and nobody holds a lock."""
    assert post(f"{site}/restock")[0] == 302
    return Shop(site)

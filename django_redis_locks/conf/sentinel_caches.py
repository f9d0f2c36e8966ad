"""Translates the settings of a django-redis cache with sentinels to a LOCATION and options of locks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from ..backends.redis.server_list import join_address


def has_sentinels(entry: Mapping[str, Any]) -> bool:
    """Return whether the cache finds its servers by sentinels, at addresses that can be read."""
    sentinels = entry.get("OPTIONS", {}).get("SENTINELS")
    return bool(sentinels) and all(
        isinstance(sentinel, Sequence) and not isinstance(sentinel, str) and len(sentinel) == 2
        for sentinel in sentinels
    )


def locations(entry: Mapping[str, Any], urls: Sequence[str]) -> list[str]:
    """Return the LOCATION of the master. The cache has it as ``redis://service/database``; with ``is_master=0`` that is
    the URL of a replica.

    Args:
        entry: the cache in ``CACHES``.
        urls: its locations.
    """
    sentinels = entry["OPTIONS"]["SENTINELS"]
    hosts = ",".join(join_address(str(host), int(port)) for host, port in sentinels)
    found = []
    for url in urls:
        parts = urlsplit(url)
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        if query.pop("is_master", "1").lower() not in {"0", "f", "false", "n", "no"}:
            login, at, service = parts.netloc.rpartition("@")
            service = service.partition(":")[0]
            options = f"?{urlencode(query)}" if query else ""
            found.append(
                f"{parts.scheme}+sentinel://{login}{at}{hosts}/{quote(service)}{parts.path.rstrip('/')}{options}"
            )
    return found


def options(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options for the connections to the sentinels. As in the cache, only ``SENTINEL_KWARGS`` encrypts them."""
    return {"sentinel_kwargs": {"ssl": False, **(entry["OPTIONS"].get("SENTINEL_KWARGS") or {})}}

"""Groups of values, which are invalidated together. A group has a stamp, a random text under a key of its own in the
cache, and a value is stored with the stamps that its load began with. It is served only while they are the same, so an
invalidation of a group deletes one key, whatever the number of its values.

A stamp that the cache has dropped never returns, so it can't make an old value valid again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

from ...core import clock
from ...core.errors import LockBackendError
from ...core.tokens import mint_token
from ...primitives.shared.load_commands import read_command
from ...primitives.shared.retry import retry_command
from .. import metrics
from ..results import MISSING
from ..values import NOT_FOUND, CachedValue, read_envelope
from .effects import Add, FetchMany

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...core.commands import Program
    from ...primitives.load import Claim
    from .coordinator import CacheCoordinator
    from .request import LoadRequest

STAMP_LIFETIME: Final = 30 * 24 * 3600
"""Seconds after which a stamp expires, and with it the values of its group."""

STAMP_ATTEMPTS: Final = 2
"""How often a load gives its groups stamps, which may be evicted at once. Without stamps its value isn't stored, and the
callers that wait for it load all at once."""

Stamps: TypeAlias = tuple[Any, ...]
"""The stamps of the groups of a value, as the cache returns them; None: it has none."""


def read_values(requests: Sequence[LoadRequest]) -> Program[list[CachedValue]]:
    """Read values of one cache and version, and in the same step the stamps of their groups. A value with other stamps
    counts as absent, and so do all if the store is down.

    Returns:
        For each request its value, with the stamps that its groups have now.
    """
    coordinator = requests[0].coordinator
    keys = {key: stored_key for request in requests for key, stored_key in request.group_keys}
    keys |= {request.user_key: request.key for request in requests}
    try:
        found = yield from _read(coordinator, keys, requests[0].version)
    except LockBackendError as failure:
        coordinator.record_failure(failure)
        return [NOT_FOUND] * len(requests)
    return [_value_of(request, found) for request in requests]


def _value_of(request: LoadRequest, found: dict[str, tuple[int, Any]]) -> CachedValue:
    remaining_ms, data = found[request.user_key]
    same_server = request.coordinator.same_server
    cached = request.decode(remaining_ms, data) if same_server else read_envelope(data)
    if not request.group_keys:
        return cached
    stamps = tuple(found[key][1] or None for key, _ in request.group_keys)
    is_valid = cached.stamps == stamps and None not in stamps
    return (cached if is_valid else NOT_FOUND)._replace(stamps=stamps)


def read_stamps(request: LoadRequest) -> Program[Stamps]:
    """Read the stamps of the groups of a value."""
    found = yield from _read(request.coordinator, dict(request.group_keys), request.version)
    return tuple(stamp or None for _, stamp in found.values())


def _read(
    coordinator: CacheCoordinator, keys: dict[str, str], version: int | None
) -> Program[dict[str, tuple[int, Any]]]:
    """Read keys in one step. Returns the milliseconds until each of them expires, if known, and what it holds."""
    if not coordinator.same_server:
        found = yield FetchMany(keys, version)
        return {key: (-1, found.get(key, MISSING)) for key in keys}
    if coordinator.down:
        return dict.fromkeys(keys, (-2, None))
    replies, _, _ = yield from retry_command(read_command(tuple(keys.values())), clock.now())
    return dict(zip(keys, replies, strict=True))


def begin_load(request: LoadRequest, claim: Claim, before: CachedValue) -> Program[Stamps]:
    """Return the stamps with which a value that is loaded now is stored. Groups without a stamp get one. If the cache
    fails, stamps are missing, and the value can't be stored.

    Args:
        request: what is loaded.
        claim: the claim, which ends if this is interrupted.
        before: the value as it was read before, perhaps with stamps.
    """
    try:
        stamps = before.stamps or (yield from read_stamps(request))
        for _ in range(STAMP_ATTEMPTS):
            if None not in stamps:
                break
            for (key, stored_key), stamp in zip(request.group_keys, stamps, strict=True):
                if stamp is None:
                    yield Add(key, request.version, stored_key, mint_token(), STAMP_LIFETIME)
            stamps = yield from read_stamps(request)  # another caller's stamp, if that was first
        return stamps
    except GeneratorExit:
        raise
    except BaseException as failure:
        if isinstance(failure, Exception):
            metrics.log.warning("A value of %r isn't stored: its groups have no stamps: %r", request.name, failure)
            return (None,)
        yield request.load.abandoning(claim.token, claim.hold, request.lease)
        raise

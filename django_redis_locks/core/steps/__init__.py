"""The steps of a store. A step is one atomic change or read, and each backend implements all of them: the memory backend
by a function of its arguments, Redis by the script with its name.

The arguments of a step are a named tuple of the classes in this package, in the order of the script's ARGV. An
optional group of arguments, or a number of equal ones or equal groups, is a tuple in the last place: ``positional`` puts its
values behind the others. The keys are a plain tuple; each class documents them. Times are in milliseconds.
"""

from __future__ import annotations

from functools import cache
from itertools import chain
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from . import indexes, latches, loads, locks, multi, permits, records

if TYPE_CHECKING:
    from collections.abc import Mapping

STEPS: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "lock/acquire": locks.AcquireLock,
        "lock/acquire_fair": locks.AcquireFair,
        "lock/release": locks.ReleaseLock,
        "lock/renew": locks.RenewLocks,
        "lock/adopt": locks.AdoptLock,
        "lock/transfer": locks.TransferLock,
        "lock/inspect": locks.InspectLock,
        "lock/force_release": locks.ForceReleaseLock,
        "waiters/unregister": locks.UnregisterWaiter,
        "fence/raise": locks.RaiseFence,
        "multi/acquire": multi.AcquireLocks,
        "multi/release": multi.ReleaseLocks,
        "permits/acquire": permits.AcquirePermits,
        "permits/release": permits.ReleasePermits,
        "permits/renew": permits.RenewPermits,
        "permits/adopt": permits.AdoptPermits,
        "permits/downgrade": permits.DowngradePermits,
        "permits/transfer": locks.TransferLock,
        "permits/inspect": permits.InspectPermits,
        "permits/set_limit": permits.SetLimit,
        "permits/force_release": permits.ForceReleasePermits,
        "permits/unregister": permits.UnregisterPermits,
        "index/page": indexes.ReadIndex,
        "index/inspect": indexes.InspectLocks,
        "record/get": records.GetRecord,
        "record/peek": records.PeekRecord,
        "record/put": records.PutRecord,
        "record/touch": records.TouchRecord,
        "record/drop": records.DropRecord,
        "latch/set": latches.SetLatch,
        "latch/count_down": latches.CountDown,
        "latch/get": latches.GetLatch,
        "load/get": loads.GetValue,
        "load/read": loads.ReadValues,
        "load/claim": loads.ClaimLoad,
        "load/renew": loads.RenewLoad,
        "load/store": loads.StoreValue,
        "load/defer": loads.DeferStore,
        "load/give_up": loads.GiveUpLoad,
        "load/invalidate": loads.InvalidateValue,
        "load/put": loads.PutValue,
        "load/block": loads.BlockLoads,
        "load/unblock": loads.UnblockLoads,
        "load/clear": loads.ClearLoads,
    }
)
"""All steps: the class of the arguments, by the name of the step."""


UNGROUPED: Final = frozenset({str, int, bytes, float})
"""The types of a last argument that is no group."""


def positional(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the arguments of a step as a script gets them: the values of a group in the last place follow the others,
    and a group that is None is left out."""
    last = args[-1] if args else ""
    if last is None:
        return args[:-1]
    if not isinstance(last, tuple):
        return args
    return args[:-1] + (tuple(chain.from_iterable(last)) if last and isinstance(last[0], tuple) else last)


@cache
def ungrouped_arguments(name: str) -> int:
    """Return the number of arguments that a step has without its optional group."""
    fields, defaults = STEPS[name]._fields, STEPS[name]._field_defaults
    return len(fields) - (bool(fields) and defaults.get(fields[-1], "") is None)

"""The steps of permits, those of semaphores and read-write locks, for the memory backend. They do the same as the scripts
under ``lua/permits``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from ...core.clock import monotonic
from ...core.queue_values import LAST
from ...core.steps.permits import PermitWaiter
from ...core.tuning import MOST_LISTED, SET_LIMIT_RETENTION
from .store import StoredValue, micros

if TYPE_CHECKING:
    from ...core.steps import permits as steps
    from ...core.steps.locks import TransferLock
    from .store import Store

NOT_WAITING: Final = PermitWaiter("", 0, 0)


@dataclass(slots=True)
class Permits(StoredValue):
    """The permits under a key. ``ends`` is the end of the last lease, or of the time for which a set limit is kept.

    Attributes:
        limit: the smallest limit of the holders.
        set_limit: the limit that was set for all clients; None for none.
        holds: the holds by token; the ``fence``, ``since``, ``holder``, ``ends`` and ``unclaimed`` of each.
        permits: for each token the number of its permits.
    """

    limit: int = 0
    set_limit: int | None = None
    holds: dict[str, StoredValue] = field(default_factory=dict)
    permits: dict[str, int] = field(default_factory=dict)

    @property
    def used(self) -> int:
        """The permits in use."""
        return sum(self.permits.values())

    @property
    def exhausted(self) -> bool:
        """Whether no permit is free, whatever limit a request names."""
        return bool(self.holds) and self.used >= self.limit_for(self.limit)

    def limit_for(self, limit: int) -> int:
        """Return the limit for a request."""
        if self.set_limit is not None:
            return self.set_limit
        return min(self.limit, limit) if self.holds else limit

    def add(self, kind: str, limit: int, permits: int, token: str, hold: StoredValue) -> None:
        """Add a hold."""
        self.kind, self.limit = kind, self.limit_for(limit)
        self.holds[token], self.permits[token] = hold, permits

    def drop(self, token: str) -> None:
        """Drop a hold."""
        del self.holds[token], self.permits[token]

    def drop_ended(self) -> None:
        """Drop the holds with an ended lease."""
        for token in [token for token, hold in self.holds.items() if hold.ends <= monotonic()]:
            self.drop(token)

    def first(self) -> str | None:
        """Return the token of the hold with the first end of a lease."""
        return min(self.holds, key=lambda token: (self.holds[token].ends, token), default=None)

    def described(self, token: str) -> list[Any]:
        """Return the description of a hold in a reply."""
        _, left, fence, since, holder = self.holds[token].busy()
        return [left, fence, since, self.permits[token], holder]


def _read(store: Store, keys: tuple[str, ...], kind: str | None = None) -> Permits | list[Any]:
    """Return the permits of a key, without ended holds; or what else it holds."""
    found = store.find(keys[0])
    if found is None:
        return Permits(kind or "", "", 0, 0, "", 0.0)
    if not isinstance(found, Permits) or kind not in (None, found.kind):
        return [-1, found.description()]
    found.drop_ended()
    return found


def _save(store: Store, keys: tuple[str, ...], permits: Permits) -> None:
    """Store the permits after a step has changed them."""
    lock, listing = keys[0], keys[5:]
    kept_until = monotonic() + SET_LIMIT_RETENTION if permits.set_limit is not None else 0.0
    last = max((hold.ends for hold in permits.holds.values()), default=0.0)
    permits.ends = max(last, kept_until)
    store.records.pop(lock, None)
    if permits.ends:
        store.records[lock] = permits
    if not permits.holds:
        store.remove_from_index(listing, lock)
    for name in listing if permits.holds else ():
        store.indexes.setdefault(name, {})[lock] = last


def _grant(store: Store, keys: tuple[str, ...], permits: Permits, own: str = "", place: int = 0) -> tuple[int, bool]:
    """Grant permits to the waiters as long as they fit. Return the number of notified processes, and whether the waiter
    ``own``, or one at this place, is the first now."""
    lock, _, waiters, heartbeats, counter = keys[:5]
    silent = [address for address, until in store.heartbeats.get(heartbeats, {}).items() if until <= monotonic()]
    for address in silent:
        _forget(store, keys, address)
    notified = 0
    while queue := store.queues.get(waiters):
        address = min(queue, key=lambda address: (queue[address], address))
        if address == own or 0 < place < queue[address]:
            return notified, True
        channel, number, *terms = address.split(" ", 4)
        on_message = store.inboxes.get(channel)
        token, asked, holder = terms if len(terms) == 3 else ("", "", "")
        lease, kind, limit, wanted = (*asked.split("/"), "", "", "")[:4] if "/" in asked else ("", "", "", "")
        grantable = bool(kind) and permits.kind in ("", kind) and token not in permits.holds
        if permits.set_limit is not None and grantable and int(wanted) > permits.set_limit:
            grantable = False
        if grantable:
            free = permits.limit_for(int(limit)) - permits.used
            if int(wanted) > free and (on_message is not None or permits.exhausted):
                return notified, False
        _forget(store, keys, address)
        if on_message is None:
            continue
        notified += 1
        word = number
        if grantable:
            fence, ends = store.next_fence(counter), monotonic() + int(lease) / 1000
            hold = StoredValue(kind, token, fence, micros() // 1000, holder, ends, unclaimed=True)
            permits.add(kind, int(limit), int(wanted), token, hold)
            word = f"{number},{token},{fence}"
        on_message(word, lock)
    return notified, True


def _forget(store: Store, keys: tuple[str, ...], address: str) -> None:
    """Remove a waiter."""
    store.dequeue(keys[2], address)
    store.heartbeats.get(keys[3], {}).pop(address, None)


def _pass_on(store: Store, keys: tuple[str, ...], permits: Permits) -> bool:
    """Grant permits to waiters after a step has changed them. Return whether a process was notified."""
    notified, _ = _grant(store, keys, permits)
    _save(store, keys, permits)
    return notified > 0


def acquire(store: Store, keys: tuple[str, ...], args: steps.AcquirePermits) -> list[Any] | int:
    """``permits/acquire``: acquire permits that are free, or return a holder and register the waiter."""
    permits = _read(store, keys, args.kind)
    if not isinstance(permits, Permits):
        return permits
    waiters, counter = keys[2], keys[4]
    other = permits.limit if permits.holds and permits.set_limit is None and permits.limit != args.limit else 0
    own = _claim(permits, args)
    too_many = permits.set_limit is not None and args.permits > permits.set_limit
    waiter = args.waiter or NOT_WAITING
    keeps_place = own is None and not too_many and waiter.place != LAST
    place = _register(store, keys, waiter, keeps_place)
    _, first = _grant(store, keys, permits, waiter.address, place)
    first = first and args.token not in permits.holds
    if own is None and not too_many and first and args.permits <= permits.limit_for(args.limit) - permits.used:
        fence, ends = store.next_fence(counter), monotonic() + args.lease / 1000
        own = StoredValue(args.kind, args.token, fence, micros() // 1000, args.holder, ends)
        permits.add(args.kind, args.limit, args.permits, args.token, own)
    if waiter.address and (own is not None or not keeps_place):
        _forget(store, keys, waiter.address)
        _grant(store, keys, permits)
    _save(store, keys, permits)
    if own is not None:
        return [1, own.fence, other] if other else own.fence
    if too_many:
        return [-2, permits.set_limit]
    registered = place if waiter.address and keeps_place else 0
    if not waiter.address and place == 0:
        registered = store.place_in_line(waiters, "")
    soonest = permits.first()
    holder = [1000, 0, 0, 1, ""] if soonest is None else permits.described(soonest)
    return [0, *holder, store.fences.get(counter, 0), other, registered]


def _claim(permits: Permits, args: steps.AcquirePermits) -> StoredValue | None:
    """Return the hold that the token has already. If it was granted to a waiter, it gets the holder of the request."""
    own = permits.holds.get(args.token)
    if own is not None:
        own.extend(args.lease)
        if own.unclaimed:
            own.unclaimed, own.holder = False, args.holder
    return own


def _register(store: Store, keys: tuple[str, ...], waiter: steps.PermitWaiter, keeps_place: bool) -> int:
    """Register the address of a request, or remove it. Return its place."""
    place = waiter.place
    if waiter.address and keeps_place:
        place = store.enqueue(keys[2], waiter.address, place or store.place_in_line(keys[2], waiter.address))
        store.heartbeats.setdefault(keys[3], {})[waiter.address] = monotonic() + waiter.waiter_ttl / 1000
    elif waiter.address and place != LAST:
        _forget(store, keys, waiter.address)
    return place


def release(store: Store, keys: tuple[str, ...], args: steps.ReleasePermits) -> int:
    """``permits/release``: give the permits of a token back, and grant them to the waiters."""
    permits = _read(store, keys)
    if not isinstance(permits, Permits):
        return 0
    held = args.token in permits.holds
    if held:
        permits.drop(args.token)
    passed_on = _pass_on(store, keys, permits)
    return 1 + passed_on if held else 0


def renew(store: Store, keys: tuple[str, ...], args: steps.RenewPermits) -> list[int]:
    """``permits/renew``: extend the leases of the holds with these tokens, each only its own."""
    renewed = []
    for number, token in enumerate(args.tokens):
        permits = store.find(keys[2 * number])
        hold = permits.holds.get(token) if isinstance(permits, Permits) else None
        held = hold is not None and hold.ends > monotonic()
        renewed.append(int(held))
        if held and isinstance(permits, Permits) and hold is not None:
            hold.extend(args.lease)
            _extend(store, keys[2 * number], keys[2 * len(args.tokens) :], permits)
    return renewed


def _extend(store: Store, lock: str, listing: tuple[str, ...], permits: Permits) -> None:
    """Let the key and its entry in the index end with the last lease."""
    last = max(hold.ends for hold in permits.holds.values())
    permits.ends = last if permits.set_limit is None else max(last, monotonic() + SET_LIMIT_RETENTION)
    for name in listing:
        if lock in store.indexes.get(name, {}):
            store.indexes[name][lock] = last


def adopt(store: Store, keys: tuple[str, ...], args: steps.AdoptPermits) -> list[int]:
    """``permits/adopt``: describe the holder of permits that were granted to a waiter, and extend the lease."""
    permits = store.find(keys[0])
    hold = permits.holds.get(args.token) if isinstance(permits, Permits) else None
    if hold is None or not isinstance(permits, Permits) or hold.ends <= monotonic():
        return [0]
    hold.extend(args.lease)
    _extend(store, keys[0], keys[2:], permits)
    if hold.unclaimed and hold.fence == args.fence:
        hold.unclaimed, hold.since, hold.holder = False, micros() // 1000 - args.age, args.holder
    return [1]


def downgrade(store: Store, keys: tuple[str, ...], args: steps.DowngradePermits) -> int:
    """``permits/downgrade``: give all permits of a token back but one."""
    permits = _read(store, keys)
    if not isinstance(permits, Permits):
        return 0
    held = args.token in permits.holds
    if held:
        permits.permits[args.token] = 1
    passed_on = _pass_on(store, keys, permits)
    return 1 + passed_on if held else 0


def transfer(store: Store, keys: tuple[str, ...], args: TransferLock) -> int:
    """``permits/transfer``: give a hold of permits another token."""
    permits = store.find(keys[0])
    if not isinstance(permits, Permits):
        return 0
    permits.drop_ended()
    hold = permits.holds.get(args.next_token)
    if hold is None:
        hold = permits.holds.pop(args.token, None)
        if hold is None:
            return 0
        if args.may_shorten:
            hold.ends = 0.0
        hold.token, hold.fence, hold.holder = args.next_token, args.fence or hold.fence, args.holder
        hold.since, hold.unclaimed = micros() // 1000 - args.age, False
        permits.holds[args.next_token], permits.permits[args.next_token] = hold, permits.permits.pop(args.token)
    hold.extend(args.lease)
    _extend(store, keys[0], keys[2:], permits)
    return hold.fence


def set_limit(store: Store, keys: tuple[str, ...], args: steps.SetLimit) -> int | list[Any]:
    """``permits/set_limit``: set the limit for all clients."""
    permits = _read(store, keys, args.kind)
    if not isinstance(permits, Permits):
        return permits
    permits.kind, permits.set_limit = args.kind, args.limit
    _pass_on(store, keys, permits)
    return 1


def inspect(store: Store, keys: tuple[str, ...], args: steps.InspectPermits) -> list[Any]:
    """``permits/inspect``: list the holds."""
    found = store.find(keys[0])
    if found is None:
        return []
    if not isinstance(found, Permits) or found.kind != args.kind:
        return [-1, found.description()]
    return listed(found)


def listed(permits: Permits) -> list[Any]:
    """Return the reply that lists the holds of permits."""
    tokens = [token for token, hold in permits.holds.items() if hold.ends > monotonic()]
    tokens.sort(key=lambda token: (permits.holds[token].ends, token))
    limit = permits.limit if permits.set_limit is None else permits.set_limit
    used = sum(permits.permits[token] for token in tokens)
    listed_holds = map(permits.described, tokens[:MOST_LISTED])
    return [permits.kind, used, limit, int(permits.set_limit is not None), *listed_holds]


def force_release(store: Store, keys: tuple[str, ...], args: steps.ForceReleasePermits) -> int:
    """``permits/force_release``: drop the holds with these fences, or all of them."""
    permits = _read(store, keys)
    if not isinstance(permits, Permits):
        return 0
    dropped = [token for token, hold in permits.holds.items() if not args.fences or hold.fence in args.fences]
    for token in dropped:
        permits.drop(token)
    if dropped:
        store.broadcast(keys[0], args.channel)
    passed_on = _pass_on(store, keys, permits)
    return 1 + passed_on if dropped else 0


def unregister(store: Store, keys: tuple[str, ...], args: steps.UnregisterPermits) -> int:
    """``permits/unregister``: remove a waiter, give back what was granted to it, and grant permits to the next ones."""
    if args.address:
        _forget(store, keys, args.address)
    _, _, of_address, *_ = *args.address.split(" ", 3), "", "", ""
    token = of_address if args.grant is None else args.grant.token
    permits = _read(store, keys)
    if not isinstance(permits, Permits):
        return 0
    hold = permits.holds.get(token)
    freed = hold is not None and (args.grant is None or (hold.unclaimed and hold.fence == args.grant.fence))
    if freed:
        permits.drop(token)
    return 2 if _pass_on(store, keys, permits) else int(freed)

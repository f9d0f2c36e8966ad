"""Which of Django's transactions ``@redis_lock`` begins itself.

Under ``ATOMIC_REQUESTS`` Django opens the transaction around the view and all its decorators, so that a lock taken by one
of them would be free before COMMIT. So a decorated view tells Django to leave that alone, and its innermost lock begins
the same transactions, once it is acquired. Where nothing of ours is what the URL leads to, nothing is begun.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from django.db import connections, transaction

from . import callables

if TYPE_CHECKING:
    from django.http import HttpRequest

NON_ATOMIC = "_non_atomic_requests"
"""Where Django looks for the aliases that a view opted out of, and where ``transaction.non_atomic_requests`` adds one."""

_BEGUN = "_redis_lock_begun"


class NonAtomic(set[str]):
    """``_non_atomic_requests`` of a decorated view: to Django every alias is in it. A set all the same, so that
    ``non_atomic_requests`` adds to it, above us as below."""

    def __contains__(self, alias: object) -> bool:
        return True

    def opted_out(self, alias: str) -> bool:
        """Whether the user opted out."""
        return super().__contains__(alias)


def marker(target: Any) -> NonAtomic:
    """What the wrapper of this target is to be marked with; stacked ones share it."""
    found = getattr(target, NON_ATOMIC, ())
    return found if isinstance(found, NonAtomic) else NonAtomic(found)


def mark(wrapper: Any, own: NonAtomic) -> None:
    """Have Django leave a view's transactions to us. Not those of an asynchronous view: it refuses them, rightly."""
    setattr(wrapper, NON_ATOMIC, set(own) if callables.iscoroutinefunction(wrapper) else own)


def aliases_to_begin(request: HttpRequest | None, target: Any, own: NonAtomic) -> list[str]:
    """The aliases whose transactions this call has to begin, because Django was told not to.

    Raises:
        RuntimeError: as Django's, which it can't see coming where ``dispatch`` of asynchronous handlers is decorated.
    """
    match = None if request is None or getattr(request, _BEGUN, False) else request.resolver_match
    found = None if match is None else getattr(match.func, NON_ATOMIC, None)
    if match is None or not isinstance(found, NonAtomic):
        return []
    if found is not own and callables.bound_to(target) is None:  # method_decorator decorates anew for each call
        return []
    aliases = [alias for alias, entry in connections.settings.items() if entry["ATOMIC_REQUESTS"]]
    aliases = [alias for alias in aliases if not found.opted_out(alias)]
    if aliases and callables.iscoroutinefunction(match.func):
        raise RuntimeError("You cannot use ATOMIC_REQUESTS with async views.")
    return aliases


def transactions_begun(request: HttpRequest | None, aliases: list[str]) -> AbstractContextManager[None]:
    """Run a call in the transactions that it has to begin."""
    return _transactions_begun(request, aliases) if aliases else nullcontext()


@contextmanager
def _transactions_begun(request: HttpRequest | None, aliases: list[str]) -> Iterator[None]:
    """What it calls begins none; a second try of the call does."""
    setattr(request, _BEGUN, True)
    try:
        with ExitStack() as stack:
            for alias in reversed(aliases):  # as Django, whose last one is the outermost
                stack.enter_context(transaction.atomic(using=alias))
            yield
    finally:
        setattr(request, _BEGUN, False)

"""Transactions of ``ATOMIC_REQUESTS`` that ``@redis_lock`` begins instead of Django.

Django opens these transactions around the view and all its decorators, so a lock acquired by a decorator would be free
before COMMIT. A decorated view therefore opts out, and its innermost lock begins the same transactions once it is
acquired. If the view of the URL isn't decorated, Django begins them as usual.
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
"""The attribute of a view with the aliases it opted out of. ``transaction.non_atomic_requests`` adds to it."""

_BEGUN = "_redis_lock_begun"


class NonAtomic(set[str]):
    """``_non_atomic_requests`` of a decorated view. It contains every alias, as Django sees it. The set itself has
    those that ``non_atomic_requests`` added, above or below ``@redis_lock``."""

    def __contains__(self, alias: object) -> bool:
        return True

    def opted_out(self, alias: str) -> bool:
        """Whether the project opted out of this alias."""
        return super().__contains__(alias)


def marker(target: Any) -> NonAtomic:
    """The value for the wrapper of this target. Stacked decorators share it."""
    found = getattr(target, NON_ATOMIC, ())
    return found if isinstance(found, NonAtomic) else NonAtomic(found)


def mark(wrapper: Any, own: NonAtomic) -> None:
    """Opt a view out of Django's transactions. Not an asynchronous one, for which Django raises an error."""
    setattr(wrapper, NON_ATOMIC, set(own) if callables.iscoroutinefunction(wrapper) else own)


def aliases_to_begin(request: HttpRequest | None, target: Any, own: NonAtomic) -> list[str]:
    """The aliases for which this call has to begin a transaction, because the view opted out.

    Raises:
        RuntimeError: the handlers are asynchronous, as Django raises it. Django itself can't see it at a decorated
            ``dispatch``.
    """
    match = None if request is None or getattr(request, _BEGUN, False) else request.resolver_match
    found = None if match is None else getattr(match.func, NON_ATOMIC, None)
    if match is None or not isinstance(found, NonAtomic):
        return []
    if found is not own and callables.bound_to(target) is None:  # method_decorator decorates at each call
        return []
    aliases = [alias for alias, entry in connections.settings.items() if entry["ATOMIC_REQUESTS"]]
    aliases = [alias for alias in aliases if not found.opted_out(alias)]
    if aliases and callables.iscoroutinefunction(match.func):
        raise RuntimeError("You cannot use ATOMIC_REQUESTS with async views.")
    return aliases


def transactions_begun(request: HttpRequest | None, aliases: list[str]) -> AbstractContextManager[None]:
    """Run a call inside transactions of these aliases."""
    return _transactions_begun(request, aliases) if aliases else nullcontext()


@contextmanager
def _transactions_begun(request: HttpRequest | None, aliases: list[str]) -> Iterator[None]:
    """Inner calls begin none. A repeated call of the view does."""
    setattr(request, _BEGUN, True)
    try:
        with ExitStack() as stack:
            for alias in reversed(aliases):  # the last one is the outermost, as in Django
                stack.enter_context(transaction.atomic(using=alias))
            yield
    finally:
        setattr(request, _BEGUN, False)

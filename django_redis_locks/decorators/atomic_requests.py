"""``ATOMIC_REQUESTS``: ``@redis_lock`` begins these transactions instead of Django, to acquire the lock before them.

Django begins them around the view and all its decorators, so a lock of a decorator would be released before COMMIT. A
decorated view is therefore marked as non-atomic, and its innermost lock begins the same transactions once it is
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
"""The attribute of a view with the aliases for which Django begins no transaction. The decorator
``transaction.non_atomic_requests`` adds to it."""

_BEGUN = "_redis_lock_begun"


class NonAtomic(set[str]):
    """``_non_atomic_requests`` of a decorated view. ``in``, which Django uses, is true for every alias; the elements
    are those that ``non_atomic_requests`` added, above or below ``@redis_lock``."""

    def __contains__(self, alias: object) -> bool:
        return True

    def opted_out(self, alias: str) -> bool:
        """Whether the project used ``non_atomic_requests`` for this alias."""
        return super().__contains__(alias)


def marker(target: Any) -> NonAtomic:
    """The ``_non_atomic_requests`` for the wrapper of this target. Stacked decorators share it."""
    found = getattr(target, NON_ATOMIC, ())
    return found if isinstance(found, NonAtomic) else NonAtomic(found)


def mark(wrapper: Any, own: NonAtomic) -> None:
    """Let Django begin no transactions around a view. An async view isn't marked, so that Django raises its error."""
    setattr(wrapper, NON_ATOMIC, set(own) if callables.iscoroutinefunction(wrapper) else own)


def aliases_to_begin(request: HttpRequest | None, target: Any, own: NonAtomic) -> list[str]:
    """The aliases for which this call has to begin a transaction, because Django begins none for a marked view.

    Raises:
        RuntimeError: the view's handlers are asynchronous. It is Django's own error, which Django doesn't raise for a
            decorated ``dispatch``.
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
    """``transactions_begun`` for one alias or more. Decorated calls inside begin none; a later call of the view
    does."""
    setattr(request, _BEGUN, True)
    try:
        with ExitStack() as stack:
            for alias in reversed(aliases):  # the last one is the outermost, as in Django
                stack.enter_context(transaction.atomic(using=alias))
            yield
    finally:
        setattr(request, _BEGUN, False)

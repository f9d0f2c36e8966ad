"""The filters of the list: alias and state. The list shows one alias at a time, since each is sorted and counted by its
own store."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.contrib.admin.options import IncorrectLookupParameters
from django.utils.translation import gettext_lazy as _

from .formatting import STATES
from .queryset import aliases

if TYPE_CHECKING:
    from django.http import HttpRequest

    from .queryset import LockQuerySet


class RequiredChoiceFilter(admin.SimpleListFilter):
    """A filter that always has one choice selected, the first one by default."""

    def chosen(self) -> str:
        """The value of the selected choice.

        Raises:
            IncorrectLookupParameters: there is no such choice.
        """
        known = [value for value, label in self.lookup_choices]
        value = self.value()
        if value is not None and value not in known:
            raise IncorrectLookupParameters(f"{self.parameter_name}={value}")
        return str(known[0] if value is None else value)

    def choices(self, changelist: Any) -> Iterator[Any]:
        chosen, default = self.chosen(), self.lookup_choices[0][0]
        for value, label in self.lookup_choices:
            change = {} if value == default else {self.parameter_name: value}
            link = changelist.get_query_string(change, [self.parameter_name])
            yield {"selected": value == chosen, "query_string": link, "display": label}


class AliasFilter(RequiredChoiceFilter):
    """Filter by alias."""

    title = _("alias")
    parameter_name = "alias"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(alias, alias) for alias in aliases()]

    def has_output(self) -> bool:
        """Whether the filter is shown: if there are several aliases, or if the request has the parameter, which is then
        validated."""
        return len(self.lookup_choices) > 1 or self.value() is not None

    def queryset(self, request: HttpRequest, rows: LockQuerySet) -> LockQuerySet:  # type: ignore[override]
        return rows.of(self.chosen())


class StateFilter(RequiredChoiceFilter):
    """Filter by state."""

    title = _("state")
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return [
            *((state, STATES[state][0]) for state in ("held", "overdue", "expired", "queued")),
            ("all", _("all of these")),
        ]

    def queryset(self, request: HttpRequest, rows: LockQuerySet) -> LockQuerySet:  # type: ignore[override]
        state: Any = self.chosen()  # the values of its lookups are states
        return rows.in_state(state)

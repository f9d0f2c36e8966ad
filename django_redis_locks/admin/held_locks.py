"""``HeldLockAdmin``: the list of held locks and the page of one lock. Nothing can be added, changed or deleted.

The list is Django's own change list; only its rows come from ``queryset.py``. So themes and overridden templates of the
admin work for it, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.contrib.admin.views.main import PAGE_VAR, ChangeList
from django.utils.translation import gettext_lazy as _

from .. import diagnosis
from ..core.text import distinct, escape_unprintable
from ..inspection import LONGEST_PAGE
from ..topology_text import describe
from . import formatting
from .filters import AliasFilter, StateFilter
from .force_release import ForceReleaseMixin
from .holds import holds_of
from .queryset import PAGE, LockQuerySet, aliases, find

if TYPE_CHECKING:
    from django.core.paginator import Paginator
    from django.http import HttpRequest, HttpResponse
    from django.utils.safestring import SafeString

    from ..models import HeldLock

    Base = admin.ModelAdmin[HeldLock]
else:
    Base = admin.ModelAdmin

SORTED_BY = ("shown_key", "shown_holder", "shown_held_for", "shown_lease_left", "waiting")


class LockChangeList(ChangeList):
    """The list. Its title names the shown alias if there are several; the total is shown only if a search or filter is
    set."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.title = str(_("Held locks"))
        if len(aliases()) > 1:
            self.title = _("Held locks of the alias %(alias)s") % {"alias": self.queryset.using}

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        if not self.query and not self.has_active_filters:
            self.full_result_count = self.result_count


class HeldLockAdmin(ForceReleaseMixin, Base):
    """Held locks. Viewing needs the permission ``view_heldlock``; releasing, ``force_release_heldlock`` too."""

    list_display = (
        "shown_key",
        "shown_state",
        "shown_holder",
        "shown_held_for",
        "shown_lease_left",
        "waiting",
    )
    sortable_by = SORTED_BY
    ordering = ("lease_left",)
    list_filter = (AliasFilter, StateFilter)
    list_per_page = PAGE
    list_max_show_all = PAGE
    search_fields = ("key",)
    search_help_text = _("A part of the key, all of it with * and ?, or a digest from the log")
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER
    view_on_site = False

    fieldsets = (
        (
            None,
            {
                "fields": (
                    "whole_key",
                    "alias",
                    "store",
                    "shown_name",
                    "kind",
                    "digest",
                    "task",
                    "shown_state",
                    "foreign",
                    "left",
                    "permits",
                )
            },
        ),
        (
            _("Holder"),
            {"fields": ("host", "pid", "thread", "note", "since", "shown_held_for", "shown_lease_left", "shown_fence")},
        ),
        (None, {"fields": ("shown_waiting", "command")}),
    )
    readonly_fields = (*fieldsets[0][1]["fields"], *fieldsets[1][1]["fields"], *fieldsets[2][1]["fields"])

    class Media:
        css = {"all": ("django_redis_locks/admin.css",)}  # noqa: RUF012 - Django's way to declare it

    # Permissions

    def has_add_permission(self, request: HttpRequest, *of: Any) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: HeldLock | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: HeldLock | None = None) -> bool:
        return False

    # Rows

    def get_queryset(self, request: HttpRequest) -> Any:
        return LockQuerySet(aliases()[0])

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> HeldLock | None:
        """Return the lock of an id, held or free."""
        return find(object_id)

    def get_search_results(self, request: HttpRequest, queryset: Any, search_term: str) -> tuple[Any, bool]:
        return queryset.matching(search_term.strip()), False

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return LockChangeList

    def get_paginator(
        self, request: HttpRequest, queryset: Any, per_page: int, *args: Any, **kwargs: Any
    ) -> Paginator[Any]:
        """Let the queryset read the page that is shown, which also has the count."""
        queryset.limit = min(max(per_page, self.list_max_show_all), LONGEST_PAGE)
        number = request.GET.get(PAGE_VAR, "1")
        if number.isascii() and number.isdigit() and len(number) < 9:
            queryset.start = max(0, int(number) - 1) * per_page
        return super().get_paginator(request, queryset, per_page, *args, **kwargs)

    # Page of one lock

    def get_fieldsets(self, request: HttpRequest, obj: HeldLock | None = None) -> Any:
        if obj is None or obj.info is None:
            return []
        lock, holder, more = self.fieldsets
        wanted: dict[Any, bool] = {
            "foreign": bool(obj.info.foreign),
            "left": obj.info.left is not None,
            "task": obj.info.task_id is not None,
            "permits": obj.info.has_permits,
        }
        fields = [field for field in lock[1]["fields"] if wanted.get(field, True)]
        # The template lists the holders of permits
        known = (obj.info.holder is not None or obj.info.lease_left is not None) and not obj.info.has_permits
        of_holder = [field for field in holder[1]["fields"] if field != "note" or _of_holder(obj, "note")]
        return [(lock[0], {"fields": fields}), *([(holder[0], {"fields": of_holder})] if known else []), more]

    def render_change_form(
        self,
        request: HttpRequest,
        context: dict[str, Any],
        add: bool = False,
        change: bool = False,
        form_url: str = "",
        obj: HeldLock | None = None,
    ) -> HttpResponse:
        """Add the link to the forced release, and remove the subtitle, which would be wider than the page."""
        context["title"], context["subtitle"] = _("Lock"), None
        if obj is not None and obj.fence is not None and self.has_force_release_permission(request):
            context["force_release_url"] = self.force_release_url(request, obj)
        if obj is not None and obj.info is not None and obj.info.has_permits:
            context["holds"] = [
                hold._replace(url=self.force_release_url(request, obj, hold.fence)) for hold in holds_of(obj)
            ]
        return super().render_change_form(request, context, add, change, form_url, obj)

    # Columns and fields

    @admin.display(description=_("key"), ordering="key")
    def shown_key(self, lock: HeldLock) -> SafeString | None:
        return formatting.key(lock.info) if lock.info else None

    @admin.display(description=_("store"))
    def store(self, lock: HeldLock) -> str:
        return escape_unprintable(describe(diagnosis.topology(lock.alias, lock.key)))

    @admin.display(description=_("key"))
    def whole_key(self, lock: HeldLock) -> str:
        return distinct(lock.key)

    @admin.display(description=_("name"), ordering="name")
    def shown_name(self, lock: HeldLock) -> str:
        return escape_unprintable(lock.name)

    @admin.display(description=_("state"))
    def shown_state(self, lock: HeldLock) -> SafeString | None:
        return formatting.badge(lock.info.state) if lock.info else None

    @admin.display(description=_("holder"), ordering="holder")
    def shown_holder(self, lock: HeldLock) -> SafeString | None:
        info = lock.info
        return formatting.holder(info.holder, len(info.holders) - 1) if info and info.holder else None

    @admin.display(description=_("held for"), ordering="held_for")
    def shown_held_for(self, lock: HeldLock) -> str | None:
        return None if lock.held_for is None else formatting.duration(lock.held_for)

    @admin.display(description=_("lease left"), ordering="lease_left")
    def shown_lease_left(self, lock: HeldLock) -> str | None:
        return None if lock.lease_left is None else formatting.lease(lock.lease_left)

    @admin.display(description=_("fence"), ordering="fence")
    def shown_fence(self, lock: HeldLock) -> str | None:
        return None if lock.fence is None else str(lock.fence)

    @admin.display(description=_("waiting"))
    def shown_waiting(self, lock: HeldLock) -> str:
        return formatting.waiting(lock.info) if lock.info else ""

    @admin.display(description=_("value found"))
    def foreign(self, lock: HeldLock) -> str:
        return lock.info.foreign if lock.info else ""

    @admin.display(description=_("left to count down"))
    def left(self, lock: HeldLock) -> str | None:
        return None if lock.info is None or lock.info.left is None else str(lock.info.left)

    @admin.display(description=_("in use"))
    def permits(self, lock: HeldLock) -> str | None:
        return formatting.permits_in_use(lock.info) or None if lock.info else None

    @admin.display(description=_("in the log"))
    def digest(self, lock: HeldLock) -> SafeString | None:
        return formatting.digest(lock.info) if lock.info else None

    @admin.display(description=_("task"))
    def task(self, lock: HeldLock) -> str | None:
        return escape_unprintable(lock.info.task_id) if lock.info and lock.info.task_id is not None else None

    @admin.display(description=_("host"))
    def host(self, lock: HeldLock) -> str | None:
        return _of_holder(lock, "host")

    @admin.display(description=_("process"))
    def pid(self, lock: HeldLock) -> str | None:
        return _of_holder(lock, "pid")

    @admin.display(description=_("thread or task"))
    def thread(self, lock: HeldLock) -> str | None:
        return _of_holder(lock, "thread")

    @admin.display(description=_("note"))
    def note(self, lock: HeldLock) -> str | None:
        return _of_holder(lock, "note")

    @admin.display(description=_("since"))
    def since(self, lock: HeldLock) -> SafeString | None:
        return formatting.since(lock.info) if lock.info else None

    @admin.display(description=_("on the command line"))
    def command(self, lock: HeldLock) -> SafeString | None:
        return formatting.command(lock.info) if lock.info else None


def _of_holder(lock: HeldLock, field: str) -> str | None:
    holder = lock.info.holder if lock.info else None
    value = None if holder is None else getattr(holder, field)
    return None if value is None else escape_unprintable(str(value))

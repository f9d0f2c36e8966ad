"""``HeldLockAdmin``: the list of held locks and the page of one lock. Nothing can be added, changed or deleted.

The list is Django's own; only its rows come from ``rows.py``. So themes, and templates that override the admin's, see what
they know.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.contrib.admin.utils import quote
from django.contrib.admin.views.main import PAGE_VAR, ChangeList
from django.urls import path, reverse
from django.utils.translation import gettext_lazy as _

from ..core.text import distinct, escape_unprintable
from ..inspection import LONGEST_PAGE
from . import force_release as release
from . import formatting as shown
from . import queryset as rows
from .filters import AliasFilter, StateFilter

if TYPE_CHECKING:
    from django.core.paginator import Paginator
    from django.http import HttpRequest, HttpResponse
    from django.utils.safestring import SafeString

    from ..models import HeldLock

    Base = admin.ModelAdmin[HeldLock]
else:
    Base = admin.ModelAdmin

SORTED_BY = ("shown_key", "shown_holder", "shown_held_for", "shown_lease_left", "waiting")


class LockList(ChangeList):
    """Says in its title which alias it shows, if there are several; and how many results there are only of a choice."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.title = str(_("Held locks"))
        if len(rows.aliases()) > 1:
            self.title = _("Held locks of the alias %(alias)s") % {"alias": self.queryset.using}

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        if not self.query and not self.has_active_filters:
            self.full_result_count = self.result_count


class HeldLockAdmin(Base):
    """Held locks. Who may look has ``view_heldlock``; who may also free them, ``force_release_heldlock``."""

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
    list_per_page = rows.PAGE
    list_max_show_all = rows.PAGE
    search_fields = ("key",)
    search_help_text = _("A part of the key, all of it with * and ?, or a digest from the log")
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER
    view_on_site = False
    actions = ("force_release",)

    fieldsets = (
        (None, {"fields": ("whole_key", "alias", "shown_name", "kind", "digest", "task", "shown_state", "foreign")}),
        (
            _("Holder"),
            {"fields": ("host", "pid", "thread", "since", "shown_held_for", "shown_lease_left", "shown_fence")},
        ),
        (None, {"fields": ("shown_waiting", "command")}),
    )
    readonly_fields = (*fieldsets[0][1]["fields"], *fieldsets[1][1]["fields"], *fieldsets[2][1]["fields"])

    class Media:
        css = {"all": ("django_redis_locks/admin.css",)}  # noqa: RUF012 - Django's way to say so

    # Who may what

    def has_add_permission(self, request: HttpRequest, *of: Any) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: HeldLock | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: HeldLock | None = None) -> bool:
        return False

    def has_force_release_permission(self, request: HttpRequest) -> bool:
        """Whoever frees a lock has to see first what he frees."""
        user: Any = request.user
        return self.has_view_permission(request) and user.has_perm(f"{self.opts.app_label}.force_release_heldlock")

    # Rows

    def get_queryset(self, request: HttpRequest) -> Any:
        return rows.Rows(rows.aliases()[0])

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> HeldLock | None:
        """A lock that is free by now is shown as such."""
        return rows.find(object_id)

    def get_search_results(self, request: HttpRequest, queryset: Any, search_term: str) -> tuple[Any, bool]:
        return queryset.matching(search_term.strip()), False

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return LockList

    def get_paginator(
        self, request: HttpRequest, queryset: Any, per_page: int, *args: Any, **kwargs: Any
    ) -> Paginator[Any]:
        """Counting reads a page; let it be the one that is shown."""
        queryset.limit = min(max(per_page, self.list_max_show_all), LONGEST_PAGE)
        number = request.GET.get(PAGE_VAR, "1")
        if number.isascii() and number.isdigit() and len(number) < 9:
            queryset.start = max(0, int(number) - 1) * per_page
        return super().get_paginator(request, queryset, per_page, *args, **kwargs)

    # Pages

    def get_urls(self) -> list[Any]:
        view = self.admin_site.admin_view(self.force_release_view)
        return [path("force-release/", view, name=release.URL), *super().get_urls()]

    def force_release_view(self, request: HttpRequest) -> HttpResponse:
        return release.view(self, request)

    @admin.action(permissions=["force_release"], description=_("Release by force…"))
    def force_release(self, request: HttpRequest, queryset: Any) -> HttpResponse | None:
        return release.of_selected(self, request, queryset)

    def get_fieldsets(self, request: HttpRequest, obj: HeldLock | None = None) -> Any:
        if obj is None or obj.info is None:
            return []
        lock, holder, more = self.fieldsets
        wanted: dict[Any, bool] = {"foreign": bool(obj.info.foreign), "task": obj.info.task_id is not None}
        fields = [field for field in lock[1]["fields"] if wanted.get(field, True)]
        known = obj.info.holder is not None or obj.info.lease_left is not None
        return [(lock[0], {"fields": fields}), *([holder] if known else []), more]

    def render_change_form(
        self,
        request: HttpRequest,
        context: dict[str, Any],
        add: bool = False,
        change: bool = False,
        form_url: str = "",
        obj: HeldLock | None = None,
    ) -> HttpResponse:
        """Links to the forced release. The key stands in its row; as a subtitle it would be wider than the page."""
        context["title"], context["subtitle"] = _("Lock"), None
        if obj is not None and obj.fence is not None and self.has_force_release_permission(request):
            context["force_release_url"] = release.url_of(self, request, obj)
        return super().render_change_form(request, context, add, change, form_url, obj)

    def url(self, name: str, *args: str) -> str:
        """Of a page of this model on this site."""
        view = f"admin:{self.opts.app_label}_{self.opts.model_name}_{name}"
        return reverse(view, args=[quote(arg) for arg in args], current_app=self.admin_site.name)

    # Columns and fields

    @admin.display(description=_("key"), ordering="key")
    def shown_key(self, lock: HeldLock) -> SafeString:
        return shown.key(lock.key, lock.info.task_id if lock.info else None)

    @admin.display(description=_("key"))
    def whole_key(self, lock: HeldLock) -> str:
        return distinct(lock.key)

    @admin.display(description=_("name"), ordering="name")
    def shown_name(self, lock: HeldLock) -> str:
        return escape_unprintable(lock.name)

    @admin.display(description=_("state"))
    def shown_state(self, lock: HeldLock) -> SafeString | None:
        return shown.badge(lock.info.state) if lock.info else None

    @admin.display(description=_("holder"), ordering="holder")
    def shown_holder(self, lock: HeldLock) -> SafeString | None:
        return shown.holder(lock.info.holder) if lock.info and lock.info.holder else None

    @admin.display(description=_("held for"), ordering="held_for")
    def shown_held_for(self, lock: HeldLock) -> str | None:
        return None if lock.held_for is None else shown.duration(lock.held_for)

    @admin.display(description=_("lease left"), ordering="lease_left")
    def shown_lease_left(self, lock: HeldLock) -> str | None:
        return None if lock.lease_left is None else shown.lease(lock.lease_left)

    @admin.display(description=_("fence"), ordering="fence")
    def shown_fence(self, lock: HeldLock) -> str | None:
        return None if lock.fence is None else str(lock.fence)

    @admin.display(description=_("waiting"))
    def shown_waiting(self, lock: HeldLock) -> str:
        return shown.waiting(lock.waiting)

    @admin.display(description=_("what is there"))
    def foreign(self, lock: HeldLock) -> str:
        return lock.info.foreign if lock.info else ""

    @admin.display(description=_("in the log"))
    def digest(self, lock: HeldLock) -> SafeString | None:
        return shown.digest(lock.info) if lock.info else None

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

    @admin.display(description=_("since"))
    def since(self, lock: HeldLock) -> SafeString | None:
        return shown.since(lock.info) if lock.info else None

    @admin.display(description=_("on the command line"))
    def command(self, lock: HeldLock) -> SafeString | None:
        return shown.command(lock.info) if lock.info else None


def _of_holder(lock: HeldLock, field: str) -> str | None:
    holder = lock.info.holder if lock.info else None
    value = None if holder is None else getattr(holder, field)
    return None if value is None else escape_unprintable(str(value))

"""Forced release in the admin, in two steps: a page that shows the chosen locks, and a POST that releases exactly
those.

The page contains the fence of each lock, the POST sends it back, and the store compares it: a lock that has another
holder by then isn't released.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

from django import VERSION, forms
from django.contrib import admin, messages
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.admin.utils import quote
from django.core.exceptions import ImproperlyConfigured, PermissionDenied
from django.db import router, transaction
from django.http import HttpResponseNotAllowed, HttpResponseRedirect, QueryDict
from django.template.response import TemplateResponse
from django.urls import path, reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from .. import inspection
from ..core.errors import LockError
from ..core.text import distinct
from .holds import holds_of
from .queryset import aliases, find, find_all

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse

    from ..models import HeldLock

    Base = admin.ModelAdmin[HeldLock]
else:
    Base = object

_log = logging.getLogger("django_redis_locks.admin")

URL: Final = "django_redis_locks_heldlock_force_release"
CHANGELIST: Final = "django_redis_locks_heldlock_changelist"
LOCK, FENCE = "lock", "fence"
"""The parameters of the page, one of each per lock."""

FILTERS: Final = "_changelist_filters"
"""The parameter in which Django's pages carry the list's search, filters and page."""

KEYS_IN_MESSAGE: Final = 5
"""A message names at most this number of keys."""


class ReasonForm(forms.Form):
    """The form of the page: why the locks are released."""

    reason = forms.CharField(
        label=gettext_lazy("Reason"),
        max_length=200,
        help_text=gettext_lazy("The reason, for the log."),
        widget=forms.TextInput(attrs={"class": "vTextField"}),
    )


class ForceReleaseMixin(Base):
    """The action of a list of held locks, its page, and their permission."""

    actions = ("force_release",)

    def has_force_release_permission(self, request: HttpRequest) -> bool:
        """Return whether the user may release locks. That needs the permission to view, too: the page shows the locks.

        Args:
            request: a request of the user.
        """
        user: Any = request.user
        return self.has_view_permission(request) and user.has_perm(f"{self.opts.app_label}.force_release_heldlock")

    def get_urls(self) -> list[Any]:
        view = self.admin_site.admin_view(self.force_release_view)
        return [path("force-release/", view, name=URL), *super().get_urls()]

    def url(self, name: str, *args: str) -> str:
        """The address of a page of this model on this site."""
        view = f"admin:{self.opts.app_label}_{self.opts.model_name}_{name}"
        return reverse(view, args=[quote(arg) for arg in args], current_app=self.admin_site.name)

    def force_release_url(self, request: HttpRequest, lock: HeldLock, fence: int | None = None) -> str:
        """The page for one lock, or for its hold with this fence, with the filters of the request."""
        filters = list_filters(request)
        query = {LOCK: lock.pk, FENCE: fence, FILTERS: filters}
        given = {name: value for name, value in query.items() if value not in (None, "")}
        return f"{self.url('force_release')}?{urlencode(given)}"

    @admin.action(permissions=["force_release"], description=gettext_lazy("Release by force…"))
    def force_release(self, request: HttpRequest, queryset: Any) -> HttpResponse | None:
        """The action of the list: show the page for the selected locks. It releases nothing.

        Args:
            request: the request of the list.
            queryset: the selected locks.

        Returns:
            The page, or None if all locks of several pages are selected, which is refused with a message.
        """
        if request.POST.get("select_across") not in (None, "", "0"):
            self.message_user(request, _("Locks are released page by page, not all at once."), messages.ERROR)
            return None
        return self._confirmation(request, list(queryset), queryset.problem)

    def force_release_view(self, request: HttpRequest) -> HttpResponse:
        """GET shows the locks, POST releases them."""
        if not self.has_force_release_permission(request):
            raise PermissionDenied
        if request.method in ("GET", "HEAD"):
            return self._confirmation(request, *find_all(request.GET.getlist(LOCK)))
        if request.method != "POST":
            return HttpResponseNotAllowed(["GET", "HEAD", "POST"])
        form = ReasonForm(request.POST)
        ids, fences = request.POST.getlist(LOCK), request.POST.getlist(FENCE)
        if not form.is_valid():
            return self._confirmation(request, *find_all(ids), form)
        return self._release(request, list(zip(ids, fences, strict=False)), form.cleaned_data["reason"])

    def _list_url(self, filters: str) -> str:
        return self.url("changelist") + (f"?{filters}" if filters else "")

    def _confirmation(
        self, request: HttpRequest, found: list[HeldLock], problem: str, form: ReasonForm | None = None
    ) -> HttpResponse:
        """The page that shows the current state of the locks to be released."""
        fences = (request.POST if request.method == "POST" else request.GET).getlist(FENCE)
        holds = [hold for lock in found for hold in holds_of(lock, fences)]
        found = [lock for lock in found if lock.fence is not None]
        filters = list_filters(request)
        list_url = self._list_url(filters)
        if not found and not problem:
            self.message_user(request, _("None of these locks is held any more."), messages.WARNING)
            return HttpResponseRedirect(list_url)
        filter_query = f"?{urlencode({FILTERS: filters})}" if filters else ""
        context = {
            **self.admin_site.each_context(request),
            "title": _("Release by force"),
            "opts": self.opts,
            "media": self.media,
            "form": form or ReasonForm(),
            "problem": problem,
            "several_aliases": len({lock.alias for lock in found}) > 1,
            "force_release_url": self.url("force_release"),
            "back_url": self.url("change", found[0].pk) + filter_query if len(found) == 1 else list_url,
            "list_url": list_url,
            "filters": filters,
            "breadcrumb_list": VERSION >= (6, 1),
            "locks": holds,
            "has_permits": any(hold.permits for hold in holds),
        }
        return TemplateResponse(request, "admin/django_redis_locks/heldlock/force_release.html", context)

    def _release(self, request: HttpRequest, holds: list[tuple[str, str]], reason: str) -> HttpResponse:
        """Release each hold if the lock still has the fence that was shown, report the outcomes, and return to the list.

        Args:
            holds: for each hold the id of the lock, and the fence.
        """
        outcomes: defaultdict[str, list[HeldLock]] = defaultdict(list)
        locks: dict[str, HeldLock | None] = {}
        for id, fence in dict.fromkeys(holds):
            if id not in locks:
                locks[id] = find(id)
            lock = locks[id]
            if lock is None:
                continue
            outcome = (lock.problem and "problem") or _release_one(lock, fence, reason, request.user.get_username())
            if lock not in outcomes[outcome]:
                outcomes[outcome].append(lock)
            if outcome == "problem":
                break  # each further lock would wait as long for the store that is down
            if outcome == "freed":
                self._log_release(request, lock, fence, reason)
        self._report(request, outcomes)
        using = next((lock.alias for locks in outcomes.values() for lock in locks), None)
        default_filters = urlencode({"alias": using}) if using not in (None, aliases()[0]) else ""
        return HttpResponseRedirect(self._list_url(list_filters(request) or default_filters))

    def _log_release(self, request: HttpRequest, lock: HeldLock, fence: str, reason: str) -> None:
        """Write to the admin's log. If the database fails, a warning is shown beside the message of the release."""
        user_id: Any = request.user.pk
        message = _("Released by force (fence %(fence)s): %(reason)s") % {"fence": fence, "reason": reason}
        try:
            # A savepoint, if the view runs in a transaction: only this part fails
            with transaction.atomic(using=router.db_for_write(LogEntry)):
                LogEntry.objects.log_actions(user_id, [lock], CHANGE, message, single_object=True)
        except Exception:  # noqa: BLE001 - any failure of the database
            _log.exception("The forced release of lock %s couldn't be written to the admin's log", lock.name)
            self.message_user(request, _("The admin's log couldn't be written."), messages.WARNING)

    def _report(self, request: HttpRequest, outcomes: dict[str, list[HeldLock]]) -> None:
        """One message for each kind of outcome."""
        for outcome, level in (
            ("freed", messages.SUCCESS),
            ("gone", messages.WARNING),
            ("changed", messages.ERROR),
            ("problem", messages.ERROR),
        ):
            locks = outcomes.get(outcome, [])
            if locks:
                keys = ", ".join(distinct(lock.key) for lock in locks[:KEYS_IN_MESSAGE])
                values = {
                    "count": len(locks),
                    "keys": f"{keys}, …" if len(locks) > KEYS_IN_MESSAGE else keys,
                    "problem": locks[0].problem,
                }
                self.message_user(request, _message(outcome, len(locks)) % values, level)
        if not any(outcomes.values()):
            self.message_user(request, _("Nothing was released."), messages.WARNING)


def list_filters(request: HttpRequest) -> str:
    """The search, filters and page of the list that the request comes from. The action is a request of the list
    itself."""
    if request.resolver_match is not None and request.resolver_match.url_name == CHANGELIST:
        return request.GET.urlencode()
    return QueryDict(request.POST.get(FILTERS) or request.GET.get(FILTERS, "")).urlencode()


def _release_one(lock: HeldLock, fence: str, reason: str, actor: str) -> str:
    """Return the outcome: "freed", "gone" (free already), "changed" (another holder) or "problem" (unknown)."""
    if lock.fence is None:
        return "gone"
    if not (fence.isascii() and fence.isdigit() and len(fence) < 20):
        return "changed"
    try:
        freed = inspection.force_release(lock.key, using=lock.alias, fence=int(fence), reason=reason, actor=actor)
    except (LockError, ImproperlyConfigured) as error:
        lock.problem = str(error)
        return "problem"
    return "freed" if freed else "changed"


def _message(outcome: str, count: int) -> str:
    if outcome == "freed":
        return ngettext("Released: %(keys)s.", "%(count)d locks were released: %(keys)s.", count)
    if outcome == "gone":
        return ngettext("It was free already: %(keys)s.", "%(count)d locks were free already: %(keys)s.", count)
    if outcome == "changed":
        return ngettext(
            "Nothing was released: %(keys)s isn't held by the holder that you saw any more.",
            "%(count)d locks weren't released, because they aren't held by the holders that you saw any more: %(keys)s.",
            count,
        )
    return _("Locks can't be reached, and it isn't known whether %(keys)s was released: %(problem)s")

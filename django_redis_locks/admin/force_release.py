"""Freeing locks by force, in two steps: a page that shows what would be freed, and a POST that frees just that.

What the page showed of each lock, its fence, comes back with the POST, and the store compares: a lock that has another
holder by now isn't freed.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

from django import VERSION, forms
from django.contrib import messages
from django.contrib.admin.models import CHANGE, LogEntry
from django.core.exceptions import ImproperlyConfigured, PermissionDenied
from django.db import router, transaction
from django.http import HttpResponseNotAllowed, HttpResponseRedirect, QueryDict
from django.template.response import TemplateResponse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from .. import inspection
from ..core.errors import LockError
from ..core.text import distinct
from . import formatting as shown
from . import queryset as rows

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse

    from ..models import HeldLock
    from .held_locks import HeldLockAdmin

_log = logging.getLogger("django_redis_locks.admin")

URL: Final = "django_redis_locks_heldlock_force_release"
CHANGELIST: Final = "django_redis_locks_heldlock_changelist"
LOCK, FENCE = "lock", "fence"
"""The parameters of the page: one of each per lock."""

FILTERS: Final = "_changelist_filters"
"""What the list showed, as Django's own pages carry it: search, filters and page."""

NAMED: Final = 5
"""So many keys are named in a message."""


class ReasonForm(forms.Form):
    reason = forms.CharField(
        label=gettext_lazy("Reason"),
        max_length=200,
        help_text=gettext_lazy("For the log: who reads it later wants to know why."),
        widget=forms.TextInput(attrs={"class": "vTextField"}),
    )


def url_of(page: HeldLockAdmin, request: HttpRequest, lock: HeldLock) -> str:
    filters = _filters(request)
    return f"{page.url('force_release')}?{urlencode({LOCK: lock.pk, **({FILTERS: filters} if filters else {})})}"


def _filters(request: HttpRequest) -> str:
    """What the list showed from which the request comes: of an action, the list's own address."""
    if request.resolver_match is not None and request.resolver_match.url_name == CHANGELIST:
        return request.GET.urlencode()
    return QueryDict(request.POST.get(FILTERS) or request.GET.get(FILTERS, "")).urlencode()


def _list_url(page: HeldLockAdmin, filters: str) -> str:
    return page.url("changelist") + (f"?{filters}" if filters else "")


def of_selected(page: HeldLockAdmin, request: HttpRequest, selected: Any) -> HttpResponse | None:
    """The action of the list: it frees nothing, it leads to the page."""
    if request.POST.get("select_across") not in (None, "", "0"):
        page.message_user(request, _("Locks are released page by page, not all at once."), messages.ERROR)
        return None
    return _ask(page, request, list(selected), selected.problem)


def view(page: HeldLockAdmin, request: HttpRequest) -> HttpResponse:
    """GET shows, POST frees."""
    if not page.has_force_release_permission(request):
        raise PermissionDenied
    if request.method in ("GET", "HEAD"):
        return _ask(page, request, *rows.find_all(request.GET.getlist(LOCK)))
    if request.method != "POST":
        return HttpResponseNotAllowed(["GET", "HEAD", "POST"])
    form = ReasonForm(request.POST)
    ids, fences = request.POST.getlist(LOCK), request.POST.getlist(FENCE)
    if not form.is_valid():
        return _ask(page, request, *rows.find_all(ids), form)
    return _free(page, request, list(zip(ids, fences, strict=False)), form.cleaned_data["reason"])


def _ask(
    page: HeldLockAdmin,
    request: HttpRequest,
    found: list[HeldLock],
    problem: str,
    form: ReasonForm | None = None,
) -> HttpResponse:
    """The page: what would be freed, as it is now."""
    found = [lock for lock in found if lock.fence is not None]
    if not found and not problem:
        page.message_user(request, _("None of these locks is held any more."), messages.WARNING)
        return HttpResponseRedirect(_list_url(page, _filters(request)))
    filters = _filters(request)
    list_url = _list_url(page, filters)
    of_one = f"?{urlencode({FILTERS: filters})}" if filters else ""
    context = {
        **page.admin_site.each_context(request),
        "title": _("Release by force"),
        "opts": page.opts,
        "media": page.media,
        "form": form or ReasonForm(),
        "problem": problem,
        "several_aliases": len({lock.alias for lock in found}) > 1,
        "force_release_url": page.url("force_release"),
        "back_url": page.url("change", found[0].pk) + of_one if len(found) == 1 else list_url,
        "list_url": list_url,
        "filters": filters,
        "breadcrumb_list": VERSION >= (6, 1),
        "locks": [
            {
                "lock": lock,
                "key": distinct(lock.key),
                "holder": shown.holder(lock.info.holder) if lock.info and lock.info.holder else "",
                "held_for": shown.duration(lock.held_for or 0.0),
                "waiting": shown.waiting(lock.waiting),
            }
            for lock in found
        ],
    }
    return TemplateResponse(request, "admin/django_redis_locks/heldlock/force_release.html", context)


def _free(page: HeldLockAdmin, request: HttpRequest, shown_ones: list[tuple[str, str]], reason: str) -> HttpResponse:
    """Each as far as it is the one that was shown; then what became of them, and back to the list."""
    outcomes: defaultdict[str, list[HeldLock]] = defaultdict(list)
    for id, fence in dict(shown_ones).items():
        lock = rows.find(id)
        if lock is None:
            continue
        outcome = (lock.problem and "problem") or _free_one(lock, fence, reason, request.user.get_username())
        outcomes[outcome].append(lock)
        if outcome == "problem":
            break  # the next one would wait as long
    for lock in outcomes["freed"]:
        _remember(page, request, lock, reason)
    _tell(page, request, outcomes)
    using = next((lock.alias for locks in outcomes.values() for lock in locks), None)
    usual = urlencode({"alias": using}) if using not in (None, rows.aliases()[0]) else ""
    return HttpResponseRedirect(_list_url(page, _filters(request) or usual))


def _free_one(lock: HeldLock, fence: str, reason: str, actor: str) -> str:
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


def _remember(page: HeldLockAdmin, request: HttpRequest, lock: HeldLock, reason: str) -> None:
    """In the admin's log. The lock is free already: a database that fails can't change that, and must not hide it."""
    who: Any = request.user.pk
    about = _("Released by force (fence %(fence)s): %(reason)s") % {"fence": lock.fence, "reason": reason}
    try:
        with transaction.atomic(using=router.db_for_write(LogEntry)):  # in a view's transaction, only this part fails
            LogEntry.objects.log_actions(who, [lock], CHANGE, about, single_object=True)
    except Exception:  # noqa: BLE001 - whatever it is
        _log.exception("The forced release of lock %s couldn't be written to the admin's log", lock.name)
        page.message_user(request, _("The admin's log couldn't be written."), messages.WARNING)


def _tell(page: HeldLockAdmin, request: HttpRequest, outcomes: dict[str, list[HeldLock]]) -> None:
    for outcome, level in (
        ("freed", messages.SUCCESS),
        ("gone", messages.WARNING),
        ("changed", messages.ERROR),
        ("problem", messages.ERROR),
    ):
        locks = outcomes.get(outcome, [])
        if locks:
            keys = ", ".join(distinct(lock.key) for lock in locks[:NAMED])
            about = {"count": len(locks), "keys": f"{keys}, …" if len(locks) > NAMED else keys}
            page.message_user(request, _sentence(outcome, len(locks)) % {**about, "problem": locks[0].problem}, level)
    if not any(outcomes.values()):
        page.message_user(request, _("Nothing was released."), messages.WARNING)


def _sentence(outcome: str, count: int) -> str:
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

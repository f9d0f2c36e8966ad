"""Formats values for the admin, as text or HTML: keys, states, holders, durations. Keys may contain any characters."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.utils import timezone
from django.utils.formats import date_format
from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext, pgettext_lazy

from ..core.text import distinct, escape_unprintable
from ..handler import DEFAULT

if TYPE_CHECKING:
    from django.utils.safestring import SafeString

    from ..core.holder import Holder
    from ..inspection import LockInfo

LONGEST = 80
"""Characters of a key in the list. Its tooltip and its page show the whole key."""

STATES: dict[str, tuple[Any, Any]] = {
    "held": (pgettext_lazy("lock", "held"), gettext_lazy("Its lease is renewed, or hasn't ended yet.")),
    "overdue": (
        pgettext_lazy("lock", "overdue"),
        gettext_lazy("Held for longer than MAX_HOLD allows. Its lease isn't renewed any more."),
    ),
    "expired": (
        pgettext_lazy("lock", "lease ended"),
        gettext_lazy("Its lease ended without a release: its holder crashed, or was too slow. It is free."),
    ),
    "queued": (pgettext_lazy("lock", "queued"), gettext_lazy("A job that waits to begin.")),
    "done": (pgettext_lazy("lock", "done"), gettext_lazy("A job that is done. Its record is kept for a while.")),
    "closed": (pgettext_lazy("latch", "closed"), gettext_lazy("A latch that isn't counted down yet.")),
    "open": (pgettext_lazy("latch", "open"), gettext_lazy("A latch that was counted down to 0.")),
    "free": (pgettext_lazy("lock", "free"), gettext_lazy("No process holds it.")),
    "unclear": (
        pgettext_lazy("lock", "unclear"),
        gettext_lazy("A minority of the servers of a Redlock has it. No process holds it."),
    ),
    "foreign": (pgettext_lazy("lock", "not a lock"), gettext_lazy("The store has something else under its key.")),
}
"""The label and the explanation of each state."""


def key(info: LockInfo) -> SafeString:
    """A key in the list. Below it is the task id of a job, or the use of permits."""
    text = info.key
    whole = distinct(text)
    short = whole if len(whole) <= LONGEST else whole[: LONGEST - 1] + "…"
    shown = format_html('<span class="redis-lock-key" title="{}">{}</span>', whole, short)
    more = permits_in_use(info)
    if info.task_id is not None:
        more = _("task %(id)s") % {"id": escape_unprintable(info.task_id)}
    return format_html('{} <span class="redis-lock-thread">{}</span>', shown, more) if more else shown


def permits_in_use(info: LockInfo) -> str:
    """The use of the permits of a semaphore or read-write lock; "" for other locks."""
    if not info.has_permits or not info.holders:
        return ""
    if info.limit is not None:
        used = sum(holder.permits for holder in info.holders)
        return _("%(used)d of %(limit)d permits") % {"used": used, "limit": info.limit}
    if info.holders[0].has_all_permits:
        return _("a writer")
    return ngettext("%(count)d reader", "%(count)d readers", len(info.holders)) % {"count": len(info.holders)}


def permits(holder: Holder) -> str:
    """The permits of one holder."""
    return _("all") if holder.has_all_permits else str(holder.permits)


def badge(state: str) -> SafeString:
    """The state of a lock as a coloured label."""
    label, meaning = STATES[state]
    return format_html('<span class="redis-lock-state" data-state="{}" title="{}">{}</span>', state, meaning, label)


def holder(found: Holder, others: int = 0) -> SafeString:
    """A holder in the list: the host, and below it the process, the thread or task, and its note; and the number of other
    holders."""
    process = str(found).removeprefix(found.host or "").strip()
    if others > 0:
        process += f" (+{others})"
    return format_html(
        '<span class="redis-lock-host">{}</span> <span class="redis-lock-thread">{}</span>',
        escape_unprintable(found.host or ""),
        escape_unprintable(process),
    )


def digest(info: LockInfo) -> SafeString:
    """The digest that stands for the key in log records."""
    return format_html("<code>{}</code>", info.digest)


def duration(seconds: float) -> str:
    """A duration in its two largest units."""
    whole = max(0, int(seconds))
    minutes, hours, days = whole // 60, whole // 3600, whole // 86400
    if days:
        return _("%(days)d d %(hours)d h") % {"days": days, "hours": hours % 24}
    if hours:
        return _("%(hours)d h %(minutes)d min") % {"hours": hours, "minutes": minutes % 60}
    if minutes:
        return _("%(minutes)d min %(seconds)d s") % {"minutes": minutes, "seconds": whole % 60}
    return _("%(seconds)d s") % {"seconds": whole}


def lease(seconds: float) -> str:
    """The time that is left of a lease, or the time since it ended."""
    if seconds >= 0:
        return duration(seconds)
    return _("ended %(time)s ago") % {"time": duration(-seconds)}


def since(info: LockInfo) -> SafeString | None:
    """The time of acquisition in the current time zone."""
    if info.since is None:
        return None
    if settings.USE_TZ:
        local = info.since.astimezone(timezone.get_current_timezone())
        zone = local.strftime("%Z")
    else:
        local, zone = timezone.make_naive(info.since), ""
    text = f"{date_format(local, 'DATE_FORMAT')}, {local:%H:%M:%S} {zone}".strip()
    return format_html('<time datetime="{}">{}</time>', info.since.isoformat(timespec="seconds"), text)


def waiting(info: LockInfo) -> str:
    """The number of processes, or of callers, that wait for the lock."""
    count = info.waiting
    if info.has_permits:
        if not count:
            return _("no caller")
        return ngettext("%(count)d caller", "%(count)d callers", count) % {"count": count}
    if not count:
        return _("no process")
    return ngettext("%(count)d process", "%(count)d processes", count) % {"count": count}


def command(info: LockInfo) -> SafeString:
    """The command that shows the lock in a terminal."""
    words = ["python", "manage.py", "redis_locks", "show"]
    if info.alias != DEFAULT:
        words += ["--alias", info.alias]
    words += ["--", info.key] if info.key.startswith("-") else [info.key]
    return format_html("<code>{}</code>", escape_unprintable(shlex.join(words)))

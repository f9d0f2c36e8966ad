"""``release``: free a lock whoever holds it, once somebody has seen who that is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.utils.translation import gettext as _

from .. import dead_holders as dead
from .. import inspection
from ..core.tuning import RESERVED_FENCES
from . import as_json as documents
from .console import NO, OK, Console, Options, UsageError, actor, alias_of, has_terminal
from .listing import described

if TYPE_CHECKING:
    from ..inspection import LockInfo


def release(console: Console, options: Options) -> int:
    """Free the hold that was shown, or the one with ``fence``, and no other that came since."""
    if not options["yes"] and (console.json or not has_terminal()):
        raise UsageError(_("Nobody can be asked here: say --yes to release it all the same. Nothing was released."))
    alias, key = alias_of(options), options["key"]
    info = inspection.find(key, alias)
    refusal = _refusal(info, options["fence"])
    if refusal:
        return _end(console, info, refusal, released=False)
    console.say(*described(info), "")
    console.say(_warning(info))
    if not options["yes"] and not console.asked(_("Release it? [y/N] ")):
        return _end(console, info, _("Nothing was released."), released=False)
    fence = info.fence if options["fence"] is None else options["fence"]
    if inspection.force_release(key, using=alias, fence=fence, reason=options["reason"], actor=actor()):
        return _end(console, info, _("It was released."), released=True)
    return _end(console, info, _changed(inspection.find(key, alias)), released=False)


def release_dead(console: Console, options: Options) -> int:
    """Free what processes of this machine hold that don't run any more."""
    if not options["yes"] and (console.json or not has_terminal()):
        raise UsageError(_("Nobody can be asked here: say --yes to release it all the same. Nothing was released."))
    found = dead.dead(alias_of(options))
    for info in found:
        console.say(*described(info), "")
    asked = found and (options["yes"] or console.asked(_("Release them? [y/N] ")))
    freed = dead.free(found, actor()) if asked else []
    if console.json:
        console.document({"released": [documents.of_lock(info) for info in freed]})
    else:
        console.say(_("%(number)d of %(found)d were released.") % {"number": len(freed), "found": len(found)})
    return OK if freed else NO


def _refusal(info: LockInfo, fence: int | None) -> str:
    """Why there is nothing to release; "" if there is."""
    if info.state == "free":
        return _("Nobody holds it. Nothing was released.")
    if info.state == "done":
        return _("That job is done: there is nothing to release. Nothing was released.")
    spare = RESERVED_FENCES if info.version is None else 0  # a record has one version at a time
    if fence is not None and (info.fence is None or not 0 <= fence - info.fence <= spare):
        return _(
            "Its hold doesn't have the fence %(fence)d but %(present)s: that hold is over, or there never was one. "
            "Nothing was released."
        ) % {"fence": fence, "present": info.fence}
    return ""


def _warning(info: LockInfo) -> str:
    if info.state == "foreign":
        return _("That is no lock as it should be. It is deleted only if it was one.")
    if info.state == "queued":
        return _("It hasn't begun. Its message isn't taken back: a worker that gets it decides anew.")
    return _(
        "Its holder runs on, beside the next one: he isn't stopped, and learns of it at his next renewal, or when he "
        "releases. If he hangs, end his process instead."
    )


def _changed(now: LockInfo) -> str:
    if now.state == "foreign":
        return _("That is no lock: it stays. Nothing was released.")
    if now.state == "free":
        return _("It has been released meanwhile, not by this command.")
    return _("It is another hold by now. Nothing was released.")


def _end(console: Console, info: LockInfo, text: str, *, released: bool) -> int:
    if console.json:
        console.document({"released": released, "lock": documents.of_lock(info), "message": text})
    else:
        console.say(text)
    return OK if released else NO

"""``release`` and ``release-dead``: release locks of other holders, after a confirmation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.utils.translation import gettext as _

from .. import dead_holders, inspection
from ..core.tuning import RESERVED_FENCES
from . import as_json
from .console import NO, OK, Console, Options, UsageError, actor, alias_of, has_terminal
from .listing import described

if TYPE_CHECKING:
    from ..inspection import LockInfo


def release(console: Console, options: Options) -> int:
    """Release a lock if it is still held as it was shown, or with the fence ``--fence``; never a later holder's."""
    if not options["yes"] and (console.json or not has_terminal()):
        raise UsageError(
            _("There is no terminal to ask on: add --yes to release it without a question. Nothing was released.")
        )
    alias, key = alias_of(options), options["key"]
    info = inspection.find(key, alias)
    refusal = _refusal(info, options["fence"])
    if refusal:
        return _finish(console, info, refusal, released=False)
    console.say(*described(info), "")
    console.say(_warning(info))
    if not options["yes"] and not console.confirmed(_("Release it? [y/N] ")):
        return _finish(console, info, _("Nothing was released."), released=False)
    shown: list[int | None] = [holder.fence for holder in info.holders]
    fences = (shown or [info.fence]) if options["fence"] is None else [options["fence"]]
    freed = [
        inspection.force_release(key, using=alias, fence=fence, reason=options["reason"], actor=actor())
        for fence in fences
    ]
    if any(freed):
        return _finish(console, info, _("It was released."), released=True)
    return _finish(console, info, _changed(inspection.find(key, alias)), released=False)


def release_dead(console: Console, options: Options) -> int:
    """Release the locks of processes of this machine that have ended."""
    if not options["yes"] and (console.json or not has_terminal()):
        raise UsageError(
            _("There is no terminal to ask on: add --yes to release it without a question. Nothing was released.")
        )
    found = dead_holders.find_dead(alias_of(options))
    for info in found:
        console.say(*described(info), "")
    confirmed = found and (options["yes"] or console.confirmed(_("Release them? [y/N] ")))
    freed = dead_holders.release_found(found, actor()) if confirmed else []
    if console.json:
        console.document({"released": [as_json.of_lock(info) for info in freed]})
    else:
        console.say(_("%(number)d of %(found)d were released.") % {"number": len(freed), "found": len(found)})
    return OK if freed else NO


def _refusal(info: LockInfo, fence: int | None) -> str:
    """Why the lock can't be released; "" if it can."""
    if info.state == "free":
        return _("No process holds it. Nothing was released.")
    if info.kind == "latch":
        return _("That is a latch, which no process holds. Nothing was released.")
    if info.state == "done":
        return _("That job is done: there is nothing to release. Nothing was released.")
    # A lock may have handed out fences that it had reserved; others have the fences that are shown
    spare = RESERVED_FENCES if info.kind == "lock" else 0
    present: list[int | None] = [holder.fence for holder in info.holders] or [info.fence]
    if fence is not None and not any(known is not None and 0 <= fence - known <= spare for known in present):
        return _(
            "Its hold doesn't have the fence %(fence)d but %(present)s: that hold is over, or there never was one. "
            "Nothing was released."
        ) % {"fence": fence, "present": ", ".join(map(str, present))}
    return ""


def _warning(info: LockInfo) -> str:
    if info.state == "foreign":
        return _("The value under this key isn't a valid lock. It is deleted only if it is a damaged one.")
    if info.state == "queued":
        return _("It hasn't begun. Its message stays in the queue: the worker that receives it decides again.")
    return _(
        "Its holder isn't stopped: it runs beside the next one until it notices, usually at once, otherwise at its next "
        "renewal or release. If it hangs, end its process instead."
    )


def _changed(now: LockInfo) -> str:
    if now.state == "foreign":
        return _("The key holds something else than a lock. Nothing was released.")
    if now.state == "free":
        return _("It was released in the meantime, not by this command.")
    return _("Another holder has the lock by now. Nothing was released.")


def _finish(console: Console, info: LockInfo, text: str, *, released: bool) -> int:
    if console.json:
        console.document({"released": released, "lock": as_json.of_lock(info), "message": text})
    else:
        console.say(text)
    return OK if released else NO

"""Refresh jobs: loads that are claimed in this process and carried out in another one, such as a Celery worker.

The claim's token travels with the job. A lost job costs no more than its lease; a job that arrives twice, or too late,
finds that the claim is no longer in force.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from asgiref.sync import async_to_sync
from django.utils.module_loading import import_string

from ...core.hold import State
from ...core.owners import running_loop
from ...core.runner import arun, run
from ...primitives.load import CLAIMED, OVERRIDE_CLAIM
from .. import metrics
from . import background
from .run import claim_load, read_cache, run_load
from .singleflight import InflightLoad

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...core.commands import Program
    from ...primitives.load import Claim
    from .request import LoadRequest

CELERY = "celery_locks.cache_refresh.submit"
"""The callable behind ``refresh="celery"``."""


@dataclass(frozen=True, slots=True)
class Job:
    """A claimed load that is carried out later, by ``run()``. It carries neither language nor time zone.

    Attributes:
        path: import path of the loader, or of the function with ``@cached``: ``"package.module:name"``; "" if it has
            none.
        args: positional arguments of that function.
        kwargs: keyword arguments of that function.
        token: token of the claim; a secret.
        expire: seconds for which the claim is kept. A job that runs later does nothing.
    """

    path: str
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] | None = None
    token: str = field(default="", repr=False)
    expire: float = 30.0
    request: Any = field(default=None, repr=False)

    def run(self) -> bool:
        """Carry the load out in this process. Returns False if the claim is no longer in force, or the load failed."""
        performer = self.request.coordinator.performer
        if self.request.asynchronous or self.request.in_task:
            return async_to_sync(arun)(carry_out(self.request, self.token), performer)
        return run(carry_out(self.request, self.token), performer)


def path_of(loader: Any) -> str:
    """Return ``module:qualname`` of a loader, or "" if it can't be imported by that."""
    module, name = getattr(loader, "__module__", None), getattr(loader, "__qualname__", "")
    if not module or not name or "<" in name:
        return ""
    return f"{module}:{name}"


def carry_out(request: LoadRequest, token: str) -> Program[bool]:
    """Carry out a load that another process claimed and handed over; False if the claim is no longer in force."""
    request.token = token
    owned, _ = yield from request.load.checking(token, request.lease)
    if not owned:
        return False
    before = yield from read_cache(request)
    claim = yield from claim_load(
        request, request.claim(0.0, take=OVERRIDE_CLAIM)
    )  # with a token of its own: a job may arrive twice
    if claim is None or claim.verdict != CLAIMED:
        return False
    outcome = yield from run_load(request, InflightLoad(), claim, before)
    return outcome.error is None and not outcome.leader_only


def hand_over(request: LoadRequest, claim: Claim) -> None:
    """Submit a claimed load as a job. If that fails, a thread of this process carries it out."""
    request.in_task = running_loop() is not None
    job = request.job if isinstance(request.job, Job) else Job(path_of(request.loader))
    job = replace(job, token=request.token, expire=request.options.start_within, request=request)
    if claim.hold is not None:
        request.coordinator.performer.unwatch(claim.hold)
        claim.hold.state = State.GONE
    if request.options.refresh == "celery" and running_loop() is not None:
        background.in_thread(partial(_submit, job, _do))  # publishing a message would block the loop
    else:
        _submit(job, _do_in_thread)


def _submit(job: Job, otherwise: Callable[[Job], None]) -> None:
    how: Any = job.request.options.refresh
    try:
        submit = import_string(CELERY) if how == "celery" else how
        submit(job)
    except Exception as error:  # noqa: BLE001 - whatever a broker or a callable raises
        _warn(job, error)
        otherwise(job)


def _do_in_thread(job: Job) -> None:
    background.in_thread(partial(_do, job))


def _do(job: Job) -> None:
    try:
        job.run()
    except Exception:  # noqa: BLE001 - without a free thread it runs in the caller, which has a value
        metrics.log.exception("The refresh of %r failed", job.request.name)


_warned: set[str] = set()
"""Paths of functions that can never be handed over, which are logged once."""


def _warn(job: Job, error: Exception) -> None:
    of_code = job.request.options.refresh == "celery" and isinstance(error, TypeError | LookupError)
    if of_code and job.path in _warned:
        return
    if of_code:
        _warned.add(job.path)
    why = str(error) if of_code else repr(error)
    metrics.log.warning("The refresh of %r can't be handed over, and is done here: %s", job.request.name, why)

"""Refresh jobs: loads that are claimed in this process and carried out in another one, such as a Celery worker.

The job carries the token of the claim. If a job is lost, its claim ends with the lease; a job that arrives twice, or
too late, finds that its claim is void, and does nothing.
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
from .run import read_cache, run_load, send_claim
from .singleflight import InflightLoad

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...core.commands import Program
    from ...primitives.load import Claim
    from .request import LoadRequest

CELERY = "celery_locks.cache_refresh.submit"
"""The function that submits jobs for ``refresh="celery"``."""


@dataclass(frozen=True, slots=True)
class Job:
    """A claimed load that is carried out later, by ``run()``, without the caller's language and time zone.

    Attributes:
        path: import path of the loader, or of the function with ``@cached``: ``"package.module:name"``; "" if it has
            none.
        args: positional arguments of that function.
        kwargs: keyword arguments of that function.
        token: token of the claim; a secret.
        expire: seconds for which the claim is kept. A job that runs after that does nothing.
    """

    path: str
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] | None = None
    token: str = field(default="", repr=False)
    expire: float = 30.0
    request: Any = field(default=None, repr=False)

    def run(self) -> bool:
        """Carry out the load in this process.

        Returns:
            Whether a value was loaded. False if the claim is void, or the load failed.
        """
        performer = self.request.coordinator.performer
        if self.request.asynchronous:
            return async_to_sync(arun)(carry_out(self.request, self.token), performer)
        return run(carry_out(self.request, self.token), performer)


def path_of(loader: Any) -> str:
    """Return the import path ``module:qualname`` of a loader, or "" if it has none."""
    module, name = getattr(loader, "__module__", None), getattr(loader, "__qualname__", "")
    if not module or not name or "<" in name:
        return ""
    return f"{module}:{name}"


def carry_out(request: LoadRequest, token: str) -> Program[bool]:
    """Carry out a load that another process claimed and handed over. Returns False if the claim is void, or the load
    failed."""
    owned, _ = yield from request.load.checking(token, request.lease)
    if not owned:
        return False
    before = yield from read_cache(request)
    # Claim it again with a new token: the job may arrive twice
    claim = yield from send_claim(request, request.claim(0.0, override=OVERRIDE_CLAIM))
    if claim is None or claim.verdict != CLAIMED:
        return False
    outcome = yield from run_load(request, InflightLoad(), claim, before)
    return outcome.error is None and not outcome.leader_only


def hand_over(request: LoadRequest, claim: Claim) -> None:
    """Submit a claimed load as a job. If that fails, a thread of this process carries it out."""
    in_loop = running_loop() is not None
    request = replace(request, asynchronous=True) if in_loop else request
    job = request.job if isinstance(request.job, Job) else Job(path_of(request.loader))
    job = replace(job, token=claim.token, expire=request.options.start_within, request=request)
    if claim.hold is not None:
        request.coordinator.engine.unwatch(claim.hold)
        claim.hold.state = State.GONE
    if request.options.refresh == "celery" and in_loop:
        background.in_thread(partial(_submit, job, _run))  # publishing a message would block the loop
    else:
        _submit(job, _run_in_thread)


def _submit(job: Job, fallback: Callable[[Job], None]) -> None:
    refresh: Any = job.request.options.refresh
    try:
        submit = import_string(CELERY) if refresh == "celery" else refresh
        submit(job)
    except Exception as error:  # noqa: BLE001 - whatever a broker or a callable raises
        _warn(job, error)
        fallback(job)


def _run_in_thread(job: Job) -> None:
    background.in_thread(partial(_run, job))


def _run(job: Job) -> None:
    try:
        job.run()
    except Exception:  # noqa: BLE001 - it may run in the caller's thread, and the caller has a value to return
        metrics.log.exception("The refresh of %r failed", job.request.name)


_warned: set[str] = set()
"""Paths of functions that can never be handed over, each of which is logged once."""


def _warn(job: Job, error: Exception) -> None:
    permanent = job.request.options.refresh == "celery" and isinstance(error, TypeError | LookupError)
    if permanent and job.path in _warned:
        return
    if permanent:
        _warned.add(job.path)
    why = str(error) if permanent else repr(error)
    metrics.log.warning("The refresh of %r can't be handed over, and runs in this process: %s", job.request.name, why)

"""Names in stored or sent data, which other versions of this project must find."""

from __future__ import annotations

import pickle
from importlib import import_module

from celery_locks import header
from celery_locks.header import Header
from celery_locks.job import Job
from django_redis_locks import LockBackendError
from django_redis_locks.cache import MISSING
from django_redis_locks.cache.pages.storage import FRESH_UNTIL
from django_redis_locks.cache.values import Envelope

PATHS = {
    "celery_locks.errors": ("DuplicateTask", "IdempotencyKeyReused"),
    "django_redis_locks.cache.backend.stampede": ("StampedeCache",),
    "django_redis_locks.cache.errors": ("LoadError", "LoadFailed", "LoadTimeout"),
    "django_redis_locks.cache.results": ("MISSING", "LoadResult"),
    "django_redis_locks.cache.values": ("Envelope",),
    "django_redis_locks.core.errors": (
        *(
            "_rebuild",
            "LockAlreadyHeld",
            "LockBackendError",
            "LockError",
            "LockKeyError",
            "LockLost",
            "LockNotAcquired",
        ),
        *("LockNotOwned", "StaleGrant"),
    ),
    "django_redis_locks.core.holder": ("Holder",),
    "django_redis_locks.decorators.drf_errors": ("Locked", "LocksUnavailable"),
}
"""Classes that are pickled: in a cache, a result backend, or the pipe of a worker pool."""


def test_pickled_paths_resolve_to_the_present_classes() -> None:
    """Pickles of this version contain the listed path, and pickles of older versions are found there."""
    for module, names in PATHS.items():
        for name in names:
            value = getattr(import_module(module), name)
            assert pickle.loads(f"c{module}\n{name}\n.".encode()) is value
            assert pickle.dumps(value, 0).startswith(f"c{module}\n{name}\n".encode()), f"{module}.{name}"


ERROR = (
    b"cdjango_redis_locks.core.errors\n_rebuild\n(cdjango_redis_locks.core.errors\nLockBackendError\n(Vdown\nt"
    b"(dVkey\nVorder:1\nsVname\nVorder\nsValias\nVdefault\nsVoutcome_unknown\nI01\nsVtransient\nI00\n"
    b"sVon_reused_connection\nI00\nstR."
)
ENVELOPE = (
    b"ccopy_reg\n_reconstructor\n(cdjango_redis_locks.cache.values\nEnvelope\nc__builtin__\ntuple\n(Vvalue\nF1.5\nttR."
)


def test_pickles_of_version_0_1_load_as_they_were_dumped() -> None:
    error = pickle.loads(ERROR)
    assert type(error) is LockBackendError
    today = LockBackendError(outcome_unknown=True, key="order:1", name="order", alias="default")
    assert vars(error) | {"unreachable": error.unreachable, "awaits_failover": error.awaits_failover} == vars(today)
    assert error.args == ("down",)
    envelope = pickle.loads(ENVELOPE)
    assert type(envelope) is Envelope
    assert (envelope.value, envelope.until) == ("value", 1.5)
    assert pickle.loads(b"cdjango_redis_locks.cache.results\nMISSING\n.") is MISSING


def test_cached_page_has_its_end_of_freshness_in_the_documented_attribute() -> None:
    """A stored page is a pickled response with this attribute, also from another version."""
    assert FRESH_UNTIL == "_redis_locks_fresh_until"


def test_fields_of_jobs_and_headers_have_the_documented_names() -> None:
    values = (
        "done",
        "i",
        "r",
        2,
        5,
        3,
        "t",
        4,
        "f",
        "s",
        ("h", 7, "m", "n"),
        60.0,
        5.0,
        6.0,
        "success",
        7.0,
        8.0,
        True,
        9.0,
    )
    stored = "state id run n res from twin past args spot holder keep rest ttl outcome due until counted late"
    assert Job(*values).fields() == {"v": 1, **dict(zip(stored.split(), values, strict=True))}
    assert header.HEADER == "celery_locks"
    values = ("k", "i", 5, "a", "f", True, 3, True, "p")
    sent = "key id reserved after follow line turns copy fingerprint"
    assert Header(*values).as_dict() == {"v": 1, **dict(zip(sent.split(), values, strict=True))}

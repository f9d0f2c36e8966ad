"""Defects that the simulation finds, and fixed defects that it found.

Random seeds run without these triggers. ``make simulate WORLD=… SEED=… ARGS="--triggers …"`` prints the trace of one.
"""

from __future__ import annotations

from typing import NamedTuple


class KnownDefect(NamedTuple):
    """A defect that a trigger reproduces with a seed.

    Attributes:
        number: in the list of defects; also the name of its trigger.
        why: a part of the message of the violated rule.
        sentence: the defect.
    """

    number: str
    world: str
    seed: int
    why: str
    sentence: str


KNOWN_DEFECTS: list[KnownDefect] = []

FIXED_DEFECTS = [
    KnownDefect("E15", "lock", 1, "is forced", "a forced release by fence frees later holds, too"),
    KnownDefect(
        "hand-over",
        "lock",
        1,
        "reported as lost",
        "a grant that was released by hand-over is reported as lost if the lock is taken before the next one asks",
    ),
    KnownDefect("L4", "lock", 1, "another thread", "a block that ends in another thread doesn't release"),
    KnownDefect("E11", "lock", 1, "gives up although", "two exceptions leave a dead waiter at the head of a queue"),
    KnownDefect("E17", "lock", 1, "after its loss", "a record is extended after its loss was reported"),
    KnownDefect("E13", "lock", 1, "a fixed lease is renewed", "an inner entry turns a fixed lease into a renewed one"),
    KnownDefect("L2", "lock", 1, "says that it is held", "a released grant says that it is held"),
    KnownDefect("K7", "job", 1, "doesn't expire", "a duplicate inherits the times of the first submission"),
    KnownDefect("L3", "lock", 1, "a refused release", "a refused synchronous release releases all the same"),
    KnownDefect("K4", "job", 2, "two are enough", "a message without header lets replaced jobs run"),
    KnownDefect("K5", "job", 1, "revoked before", "a submission returns a job that was just revoked"),
    KnownDefect("E3", "lock", 1, "leases that are over", "leases that end unreleased are remembered by their thread"),
    KnownDefect("K2", "job", 1, "has no result", "a worker that dies before the result is stored leaves none, ever"),
    KnownDefect("S3a", "cache", 1, "has waited", "a dead loader is waited for until a lease of 30 s ends, or raises"),
    KnownDefect("S3b", "cache", 1, "is an error", "a slow loader raises LoadTimeout in the waiting callers"),
    KnownDefect("S3d", "cache", 1, "has waited", "max_hold doesn't end the waits in the process of the loader"),
    KnownDefect("S3e", "cache", 1, "has waited", "callers wait for a loader of their process with an invalid claim"),
    KnownDefect("S6", "cache", 1, "is lost", "an invalidation that failed is never repeated"),
    KnownDefect("S3c", "cache", 1, "a fresh value is waited for", "a hung loader delays hits on fresh values"),
    KnownDefect("E12", "lock", 1, "one lost answer", "a re-entry raises over one lost answer"),
    KnownDefect("E16", "lock", 1, "and has no holder", "a reply that took longer than the lease counts as busy"),
    KnownDefect("E18", "lock", 1, "the second caller", "each caller waits to detect that the server is down"),
    KnownDefect("S2a", "cache", 1, "has replaced what was written", "writes aren't fenced after one silence"),
    KnownDefect("K1", "job", 1, "without its key", "a __call__ that calls run() bypasses the lock"),
    KnownDefect("L1", "lock", 1, "is entered", "a released grant can be entered"),
    KnownDefect("E2", "lock", 1, "a receiver takes its time", "a slow receiver of a signal stops all renewals"),
]

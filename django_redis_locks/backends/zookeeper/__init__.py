"""The backend for ZooKeeper: locks as ephemeral sequential nodes.

It executes the steps of a fair lock, so queues, renewal, events and lists are those of every other store. A waiter's
request leaves its node in line, which is its registration; when the node before it is deleted, this process looks at the
line once and notifies the waiter, as Redis does with the message of a grant. No waiter polls, and no other one is woken.

The lease is the session's: its timeout is four thirds of ``EXPIRE``. So the process ends a hold, ``EXPIRE`` after the last
answer, before the servers can give the lock away, also if they heard of that answer late. The fence is the transaction
that created the node.
"""

from __future__ import annotations

from .backend import ZooKeeperBackend

__all__ = ["ZooKeeperBackend"]

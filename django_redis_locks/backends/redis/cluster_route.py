"""``Route``: where a command goes on a Cluster, after each redirection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ...core.clock import system_now as now
from ...core.commands import PARSE_ERRORS
from .cluster_node import code_of
from .slot_table import slot_of

if TYPE_CHECKING:
    from ...core.commands import Command
    from ...core.errors import LockBackendError
    from .cluster_node import ClusterNode
    from .resp import ServerError
    from .slot_table import SlotTable

MOST_REDIRECTIONS: Final = 16
"""The largest number of times that a command is redirected. Nodes that disagree could do that for ever."""

FIRST_PAUSE: Final = 0.005
LONGEST_PAUSE: Final = 0.1
"""Seconds before a command with keys on two nodes is repeated, because their slot is moving. Each pause is twice
as long as the one before."""


class Route:
    """Where a command goes next.

    Args:
        table: the slots.
        command: the command.
        deadline: until when the command is sent again, on the machine's clock; after it only to the next node.
        node: the first node; by default the one that has the slot.

    Attributes:
        node: the next node.
        asking: the slot is moving to that node.

    Raises:
        LockBackendError: no node can be asked, or the slot has none.
    """

    __slots__ = ("_deadline", "_pause", "_redirections", "_relocated", "_slot", "_table", "asking", "node")

    def __init__(
        self, table: SlotTable, command: Command[Any], deadline: float, node: ClusterNode | None = None
    ) -> None:
        self._table = table
        self._slot = slot_of(command.keys[0])
        self._deadline = deadline
        self._redirections = 0
        self._relocated = False
        self._pause = FIRST_PAUSE
        self.node = node or table.owner(self._slot)
        self.asking = False

    def after(self, error: LockBackendError) -> float | None:
        """Return the seconds to wait before the command is sent again, because it wasn't executed. None: only if
        ``relocate`` says so, after the table was read.

        Raises:
            LockBackendError: the error. The command isn't sent again.
        """
        code = code_of(error)
        self.asking = False
        if code in {"MOVED", "ASK"} and self._may_follow():
            self._redirections += 1
            cause: ServerError = error.__cause__  # type: ignore[assignment]
            try:
                slot, self.node = self._table.redirected(cause, self.node)
            except PARSE_ERRORS:
                raise error from cause
            if code == "MOVED":
                self._table.move(slot, self.node)
            else:
                self.asking = True
            return 0.0
        if code == "TRYAGAIN" and (left := self._deadline - now()) > 0:
            pause, self._pause = self._pause, min(2 * self._pause, LONGEST_PAUSE)
            self.node = self._table.owners[self._slot] or self.node
            self._redirections = 0  # the target of a slot that moves answers so, too
            return min(pause, left)
        if error.unreachable:
            if not error.outcome_unknown and not self._relocated and now() < self._deadline:
                self._relocated = True
                return None
            self._table.refresh_soon()
        raise error

    def _may_follow(self) -> bool:
        return not self._redirections or (self._redirections < MOST_REDIRECTIONS and now() < self._deadline)

    def relocate(self) -> bool:
        """Return whether another node has the slot now."""
        before, self.node = self.node, self._table.owners[self._slot] or self.node
        return self.node is not before

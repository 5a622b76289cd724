"""Brings a step's scalars from a CUDA device to the host without making the training wait for them.

The training's thread starts one copy into page-locked memory behind the step's own work and records an event; the
agent's thread reads the row once the event has passed. A row still unread when its turn comes again is not waited for:
that step's scalars are not known.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import torch

ROWS: Final = 256
"""Steps that may be under way at once; a training loop runs a few ahead of its device."""
WIDTH: Final = 24
"""Loss, gradient norm and 16 series of the user's own, with room."""


class Ticket:
    """Scalars under way."""

    __slots__ = ("_count", "_ring", "_row")

    def __init__(self, ring: PinnedRing, row: int | None, count: int) -> None:
        self._ring = ring
        self._row = row
        self._count = count

    def values(self) -> Sequence[float | None] | None:
        """The scalars in the order they were put, None for each if there was no room; None while they are under way.

        To be asked until it is not None: that frees the row.
        """
        return [None] * self._count if self._row is None else self._ring.read(self._row, self._count)


class PinnedRing:
    """Rows of page-locked memory, used in turn.

    ``put`` is for the training's thread, tickets are for the agent's.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._host = torch.empty((ROWS, WIDTH), dtype=torch.float32, pin_memory=True)
        self._copied = [torch.cuda.Event() for _ in range(ROWS)]  # type: ignore[no-untyped-call]
        self._unread = [False] * ROWS
        self._next = 0

    def put(self, scalars: Sequence[torch.Tensor]) -> Ticket:
        """Starts the copy of at most ``WIDTH`` scalar tensors."""
        row = self._next
        if self._unread[row] or not scalars:
            return Ticket(self, None, len(scalars))
        gathered = torch.stack(
            [scalar.detach().reshape(()).to(self._device, torch.float32, non_blocking=True) for scalar in scalars]
        )
        self._host[row, : len(scalars)].copy_(gathered, non_blocking=True)
        self._copied[row].record(torch.cuda.current_stream(self._device))
        self._unread[row] = True
        self._next = (row + 1) % ROWS
        return Ticket(self, row, len(scalars))

    def read(self, row: int, count: int) -> list[float] | None:
        """The row's values once its copy has passed, and frees it; None before."""
        if not self._copied[row].query():  # type: ignore[no-untyped-call]
            return None
        values: list[float] = self._host[row, :count].tolist()
        self._unread[row] = False
        return values

"""How long forward passes take on a CUDA device, read from events in its stream; nobody waits for them."""

from __future__ import annotations

from time import perf_counter
from typing import Any, Final

import torch

EVERY_S: Final = 0.5
"""The least between two steps that are timed: two events cost microseconds, and a rank's mean needs few of them."""


class Span:
    """A stretch of a stream."""

    __slots__ = ("_began", "_ended")

    def __init__(self, began: Any, ended: Any) -> None:
        self._began = began
        self._ended = ended

    def seconds(self) -> float | None:
        """How long the device took; None while it is at it."""
        return self._began.elapsed_time(self._ended) / 1e3 if self._ended.query() else None


class ForwardTimer:
    """Times the forward passes of some steps; every method is called by the training's thread.

    Args:
        device: a CUDA device.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._timed_at = -EVERY_S
        self._is_timed = False
        self._began: Any = None

    def began(self, *, is_first: bool) -> None:
        """A forward pass begins, the first of its step or another."""
        if is_first:
            now = perf_counter()
            self._is_timed = now - self._timed_at >= EVERY_S
            if self._is_timed:
                self._timed_at = now
        self._began = self._mark() if self._is_timed else None

    def ended(self) -> Span | None:
        """It has been put on the stream; None where it is not timed."""
        began, self._began = self._began, None
        return None if began is None else Span(began, self._mark())

    def _mark(self) -> Any:
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(self._device))
        return event

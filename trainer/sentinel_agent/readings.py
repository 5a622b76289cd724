"""One optimizer step as the training's thread sees it: stamps, references and counts, nothing that waits.

``StepReading`` gathers over the micro-batches of a step; ``report`` turns a finished one into what the daemon is told,
in the agent's thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter, time
from typing import Any

import torch

from sentinel.protocol.decoding import MAX_KEY, MAX_SERIES
from sentinel.protocol.observations import StepReport
from sentinel_agent.batch_facts import fingerprint, first_tensor, token_count
from sentinel_agent.forward_timer import ForwardTimer, Span
from sentinel_agent.pinned_ring import PinnedRing, Ticket
from sentinel_agent.text import plain


class StepReading:
    """What one optimizer step showed. Durations are in seconds, summed over its micro-batches.

    The loss is the sum of ``losses``, or ``loss`` where it is a number already.
    """

    __slots__ = (
        "at", "backward_s", "batches", "data_wait_s", "extra", "fingerprint", "forward_s", "grad_norm", "loss",
        "losses", "lr", "optimizer_s", "samples", "segment", "spans", "step", "step_s", "ticket", "tokens",
    )  # fmt: skip

    def __init__(self) -> None:
        self.at = self.step_s = self.data_wait_s = self.forward_s = self.backward_s = self.optimizer_s = 0.0
        self.step = self.segment = self.batches = 0
        self.losses: list[torch.Tensor] = []
        self.loss: float | None = None
        self.grad_norm: float | torch.Tensor | None = None
        self.lr: float | torch.Tensor | None = None
        self.samples: int | None = None
        self.tokens: int | None = None
        self.fingerprint: int | None = None
        self.extra: dict[str, float | torch.Tensor] = {}
        self.ticket: Ticket | None = None
        self.spans: list[Span] | None = None
        """On CUDA the forward passes that were timed on the device."""

    def scalars(self) -> list[torch.Tensor]:
        """The tensors among the readings, in the order in which ``report`` takes their values; the loss as one."""
        found = [self.losses[0] if len(self.losses) == 1 else torch.stack(self.losses).sum()] if self.losses else []
        others = (self.grad_norm, self.lr, *self.extra.values())
        return found + [value for value in others if isinstance(value, torch.Tensor)]


class StepClock:
    """Follows the training through its steps; every method is called by the training's thread and costs microseconds.

    Args:
        device: where the training computes. On CUDA scalars come to the host through a pinned ring.
    """

    def __init__(self, device: torch.device) -> None:
        self._ring = PinnedRing(device) if device.type == "cuda" else None
        self._timer = ForwardTimer(device) if device.type == "cuda" else None
        self.restart()

    def restart(self) -> None:
        """Forgets the step under way."""
        self.reading = StepReading()
        self._fetch_at: float | None = None
        self._batch_at = self._mark = perf_counter()
        self._backward_seen = False

    def fetch_began(self) -> None:
        """The loop asks its loader for a batch."""
        self._fetch_at = perf_counter()

    def fetch_ended(self) -> None:
        """The loader gave it."""
        if self._fetch_at is not None:
            self.reading.data_wait_s += perf_counter() - self._fetch_at

    def batch_began(self, batch: Any) -> None:
        """A micro-batch is about to be computed."""
        reading = self.reading
        tensor = first_tensor(batch)
        if tensor is not None and tensor.dim():
            reading.samples = (reading.samples or 0) + tensor.shape[0]
            tokens = token_count(batch)
            reading.tokens = None if tokens is None else (reading.tokens or 0) + tokens
            reading.fingerprint = fingerprint(tensor, reading.fingerprint or 0)
        reading.batches += 1
        self._backward_seen = False
        if self._timer is not None:
            self._timer.began(is_first=reading.batches == 1)
        self._batch_at = perf_counter()

    def backward_began(self) -> None:
        """The loss is computed."""
        self._mark = now = perf_counter()
        self.reading.forward_s += now - self._batch_at
        if self._timer is not None and (span := self._timer.ended()) is not None:
            self.reading.spans = [*(self.reading.spans or ()), span]

    def backward_ended(self) -> None:
        """The gradients are computed."""
        now = perf_counter()
        self.reading.backward_s += now - self._mark
        self._mark, self._backward_seen = now, True

    def batch_ended(self, loss: torch.Tensor | None) -> None:
        """A micro-batch is done; ``loss`` is its share of the step's mean."""
        reading = self.reading
        now = perf_counter()
        reading.step_s += now - (self._batch_at if self._fetch_at is None else self._fetch_at)
        self._fetch_at = None
        if loss is not None:
            reading.losses.append(loss.detach())

    def step_ended(self, step: int, segment: int) -> StepReading:
        """The optimizer has stepped; returns what was gathered and begins anew."""
        reading = self.reading
        if self._backward_seen:
            reading.optimizer_s = perf_counter() - self._mark
        reading.at, reading.step, reading.segment = time(), step, segment
        if self._ring is not None:
            reading.ticket = self._ring.put(reading.scalars())
        self.reading = StepReading()
        return reading

    def record(self, name: str, value: float | torch.Tensor) -> None:
        """A value of the user's own for this step; beyond 16 names it is not kept."""
        name, extra = plain(name, MAX_KEY), self.reading.extra
        if name not in extra and len(extra) >= MAX_SERIES:
            return
        if isinstance(value, torch.Tensor) and value.is_cuda:
            extra[name] = value.detach().clone()
        else:
            extra[name] = float(value.detach() if isinstance(value, torch.Tensor) else value)


def report(reading: StepReading, peak_memory_bytes: int | None) -> StepReport | None:
    """What the daemon is told of a step; None while its scalars are under way. For the agent's thread."""
    scalars = _scalars_on_host(reading)
    if scalars is None:
        return None
    values = iter(scalars)
    loss = next(values) if reading.losses else reading.loss
    grad_norm = next(values) if isinstance(reading.grad_norm, torch.Tensor) else reading.grad_norm
    lr = next(values) if isinstance(reading.lr, torch.Tensor) else reading.lr
    extra = {name: next(values) if isinstance(value, torch.Tensor) else value for name, value in reading.extra.items()}
    return StepReport(
        at=reading.at,
        step=reading.step,
        segment=reading.segment,
        loss=loss,
        grad_norm=grad_norm,
        lr=lr,
        step_s=reading.step_s,
        data_wait_s=reading.data_wait_s or None,  # a loop that is not stamped there has 0.0
        forward_s=reading.forward_s or None,
        backward_s=reading.backward_s or None,
        optimizer_s=reading.optimizer_s or None,
        tokens=reading.tokens,
        samples=reading.samples,
        peak_memory_bytes=peak_memory_bytes,
        batch_fingerprint=None if reading.fingerprint is None else f"{reading.fingerprint:08x}",
        extra={name: value for name, value in extra.items() if value is not None},
    )


def work_s(reading: StepReading) -> float | None:
    """The rank's own work in a step, without what waits for other ranks; None where it was not measured.

    That is the forward passes, on CUDA as the device took them and in some of the steps: the host's times say little
    there. The backward pass is not counted, since DDP's all-reduce waits within it, nor what follows it, since the
    first rank has callbacks that others have not. What ranks do together in the forward pass (a metric logged with
    ``sync_dist``, buffers that DDP broadcasts, SyncBatchNorm) is counted, waiting included; then the ranks look
    alike, and a slow one is missed.
    """
    if reading.ticket is None:
        return reading.forward_s or None
    seconds = [span.seconds() for span in reading.spans or ()]
    known = [each for each in seconds if each is not None]
    return sum(known) if known and len(known) == len(seconds) else None


def _scalars_on_host(reading: StepReading) -> Sequence[float | None] | None:
    if reading.ticket is not None:
        return reading.ticket.values()
    return [float(scalar) for scalar in reading.scalars()]

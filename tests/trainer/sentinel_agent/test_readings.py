from __future__ import annotations

import pytest
import torch

from sentinel.protocol.observations import StepReport
from sentinel_agent.readings import StepClock, report


def a_step(clock: StepClock, *losses: float, step: int = 1) -> StepReport:
    """One optimizer step over micro-batches with these losses."""
    for loss in losses:
        clock.fetch_began()
        clock.fetch_ended()
        clock.batch_began(torch.ones(4, 3, dtype=torch.int64))
        clock.backward_began()
        clock.backward_ended()
        clock.batch_ended(torch.tensor(loss))
    told = report(clock.step_ended(step, 2), 1000)
    assert told is not None
    return told


def test_micro_batches_are_summed() -> None:
    """The loss is the sum of the shares, as are samples, tokens and times; one report comes of a step."""
    clock = StepClock(torch.device("cpu"))
    told = a_step(clock, 0.5, 0.25, 0.25)
    assert (told.step, told.segment, told.loss, told.samples, told.tokens) == (1, 2, 1.0, 12, 36)
    assert told.peak_memory_bytes == 1000
    times = (told.data_wait_s, told.forward_s, told.backward_s, told.optimizer_s, told.step_s)
    assert all(seconds is not None and seconds > 0 for seconds in times)
    assert told.data_wait_s + told.forward_s + told.backward_s < told.step_s


def test_step_begins_anew() -> None:
    """Nothing of one step shows in the next."""
    clock = StepClock(torch.device("cpu"))
    clock.record("entropy", 3.0)
    first, second = a_step(clock, 0.5), a_step(clock, 0.25, step=2)
    assert (first.extra, second.extra) == ({"entropy": 3.0}, {})
    assert (second.loss, second.samples) == (0.25, 4)


def test_unknown_is_none() -> None:
    """Without a loss, a norm and a tensor in the batch the report says None, never zero or NaN."""
    clock = StepClock(torch.device("cpu"))
    clock.batch_began("text")
    clock.batch_ended(None)
    told = report(clock.step_ended(1, 0), None)
    assert told is not None
    assert (told.loss, told.grad_norm, told.lr, told.samples, told.tokens, told.batch_fingerprint) == (None,) * 6


def test_sixteen_series_of_the_users_own() -> None:
    """Numbers and tensors are kept as they are at that moment, under clean names; the seventeenth is left out."""
    clock = StepClock(torch.device("cpu"))
    value = torch.tensor(1.5, requires_grad=True)
    clock.record("tensor\0", value)
    with torch.no_grad():
        value.fill_(9.0)
    for index in range(20):
        clock.record(f"series {index}", index)
    clock.record("series 0", float("nan"))
    told = a_step(clock, 0.5)
    assert list(told.extra) == ["tensor", *(f"series {index}" for index in range(15))]
    assert told.extra["tensor"] == 1.5
    assert told.extra["series 0"] != told.extra["series 0"]


def test_rate_may_be_a_tensor() -> None:
    """A learning rate kept in a tensor is read as a number."""
    clock = StepClock(torch.device("cpu"))
    clock.reading.lr = torch.tensor(0.125)
    clock.reading.grad_norm = torch.tensor(2.0)
    clock.record("other", torch.tensor(7.0))
    told = a_step(clock, 0.5)
    assert (told.loss, told.grad_norm, told.lr, told.extra) == (0.5, 2.0, pytest.approx(0.125), {"other": 7.0})

"""Public loss-spike rules at their default parameters, as functions from losses to the rows at which they alarm.

Lightning's and river's are the installed libraries. The others are re-implemented from what their projects publish: the
class that each docstring names.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from statistics import fmean

Rule = Callable[[Sequence[float]], Iterator[int]]


def lightning_spike_detection(losses: Sequence[float]) -> Iterator[int]:
    """Lightning Fabric's SpikeDetection (installed): window 10, rtol 2.0; NaN counts as a spike."""
    import torch  # noqa: PLC0415
    from lightning.fabric.utilities.spike import SpikeDetection, TrainingSpikeException  # noqa: PLC0415

    class Local(SpikeDetection):
        def _handle_spike(self, _fabric: object, batch_idx: int) -> None:
            raise TrainingSpikeException(batch_idx=batch_idx)

    class Alone:
        device, global_rank = torch.device("cpu"), 0

        class strategy:  # noqa: N801
            root_device = torch.device("cpu")
            reduce_boolean_decision = staticmethod(lambda decision, **_: decision)
            barrier = staticmethod(lambda: None)

    rule = Local(exclude_batches_path="")
    for row, loss in enumerate(losses):
        try:
            rule.on_train_batch_end(Alone(), torch.tensor(loss), None, row)  # type: ignore[arg-type]
        except TrainingSpikeException:
            yield row


def kill_loss_spike(losses: Sequence[float]) -> Iterator[int]:
    """KillLossSpike of llm-foundry: five rows at twice the mean of max(100, 5 %) rows, or a loss that stays high."""
    size = max(100, len(losses) // 20)
    window: deque[float] = deque(maxlen=size)
    outliers, cap = 0, math.inf
    for row, loss in enumerate(losses):
        if len(window) == size:
            outliers = outliers + 1 if loss >= 2 * fmean(window) else 0
            cap = min(10.0, max(window)) if math.isinf(cap) else cap
            if outliers > 4 or (row >= 2 * size and sum(value >= cap for value in window) >= size / 2):
                yield row
        window.append(loss)


def olmo_skip_step(losses: Sequence[float]) -> Iterator[int]:
    """OLMo-core's SkipStepOptimizer: more than 6 standard deviations above the mean of the last 128."""
    window: deque[float] = deque(maxlen=128)
    for row, loss in enumerate(losses):
        if len(window) >= 64 and not loss - fmean(window) <= 6 * _deviation(window, degrees=1):
            yield row
        window.append(loss)


def olmo_stability(losses: Sequence[float]) -> Iterator[int]:
    """OLMo-core's StabilityMonitorCallback: above mean + 6 population deviations of a full window of 128."""
    window: deque[float] = deque(maxlen=128)
    for row, loss in enumerate(losses):
        if len(window) == 128:
            mean, deviation = fmean(window), _deviation(window, degrees=0)
            if deviation >= 1e-10 and loss > mean + 6 * deviation:
                yield row
        window.append(loss)


def megatron_large(losses: Sequence[float]) -> Iterator[int]:
    """Megatron-LM's is_unexpectedly_large: ten times the largest of the first 100."""
    largest = max((abs(loss) for loss in losses[:100]), default=math.inf)
    for row, loss in enumerate(losses[100:], start=100):
        if abs(loss) >= 10 * largest:
            yield row


def metaseq_ratio(losses: Sequence[float]) -> Iterator[int]:
    """The metaseq spike option at 1.5 (off by default): 1.5 times the loss before."""
    for row in range(1, len(losses)):
        if losses[row] > 1.5 * losses[row - 1]:
            yield row


def wandb_z(losses: Sequence[float]) -> Iterator[int]:
    """Weights & Biases' z-score alert: 3 deviations from the mean of the last 30 (emulated: a server runs it)."""
    window: deque[float] = deque(maxlen=30)
    for row, loss in enumerate(losses):
        if len(window) == 30:
            deviation = _deviation(window, degrees=0)
            if deviation > 0 and loss - fmean(window) > 3 * deviation:
                yield row
        window.append(loss)


def river_page_hinkley(losses: Sequence[float]) -> Iterator[int]:
    """PageHinkley of river (installed), defaults."""
    from river.drift import PageHinkley  # noqa: PLC0415

    return _river(PageHinkley(), losses)


def river_adwin(losses: Sequence[float]) -> Iterator[int]:
    """ADWIN of river (installed), defaults."""
    from river.drift import ADWIN  # noqa: PLC0415

    return _river(ADWIN(), losses)


def _river(detector: object, losses: Sequence[float]) -> Iterator[int]:
    for row, loss in enumerate(losses):
        detector.update(loss)  # type: ignore[attr-defined]
        if detector.drift_detected:  # type: ignore[attr-defined]
            yield row


def _deviation(window: Collection[float], *, degrees: int) -> float:
    mean = fmean(window)
    return math.sqrt(sum((value - mean) ** 2 for value in window) / (len(window) - degrees))


RULES: dict[str, Rule] = {
    "Lightning SpikeDetection": lightning_spike_detection,
    "KillLossSpike*": kill_loss_spike,
    "OLMo SkipStep*": olmo_skip_step,
    "OLMo Stability*": olmo_stability,
    "Megatron x10*": megatron_large,
    "metaseq 1.5*": metaseq_ratio,
    "W&B z(30, 3)*": wandb_z,
    "river Page-Hinkley": river_page_hinkley,
    "river ADWIN": river_adwin,
}
"""A star: re-implemented."""

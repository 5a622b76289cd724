"""The training of the language model, as Lightning wants it told: the loss of a batch, the optimizer, its schedule.

AdamW (Loshchilov & Hutter, arXiv:1711.05101) decays every weight, since all of them are matrices; the learning rate
rises linearly, then falls along half a cosine. Nothing is logged here: `self.log` costs hundreds of microseconds a
step, and the agent reads the returned loss as it is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch.nn.functional as F
from lightning.pytorch import LightningModule
from lightning.pytorch.utilities.types import OptimizerLRScheduler
from torch import Tensor
from torch.optim import AdamW
from torch.optim.lr_scheduler import LambdaLR

from sentinel_reference.config import OptimizationConfig, Preset
from sentinel_reference.model import LanguageModel


def learning_rate_ratio(step: int, config: OptimizationConfig) -> float:
    """Return the share of the peak learning rate that the optimizer step after ``step`` others takes."""
    if step < config.warm_up_steps:
        return (step + 1) / config.warm_up_steps
    way = min(1.0, (step - config.warm_up_steps) / max(1, config.steps - config.warm_up_steps))
    floor = config.final_learning_rate_ratio
    return floor + (1 - floor) * (1 + math.cos(math.pi * way)) / 2


class LanguageModeling(LightningModule):
    """Learns to tell the next token."""

    def __init__(self, preset: Preset) -> None:
        super().__init__()
        self.model = LanguageModel(preset.model)
        self.optimization = preset.optimization

    def training_step(
        self,
        batch: Mapping[str, Tensor],  # tokens (B, T), targets (B, T), position (B,)
    ) -> Tensor:  # ()
        logits = self.model(batch["tokens"])
        return F.cross_entropy(logits.flatten(0, 1).float(), batch["targets"].flatten())

    def configure_optimizers(self) -> OptimizerLRScheduler:
        config = self.optimization
        optimizer = AdamW(
            self.parameters(),
            lr=config.peak_learning_rate,
            betas=(config.beta1, config.beta2),
            weight_decay=config.weight_decay,
            fused=True,
        )
        # Lightning refuses to clip under bf16-mixed because this optimizer could unscale gradients itself; bfloat16 has
        # float32's range, so nothing is ever scaled.
        optimizer._step_supports_amp_scaling = False
        schedule = LambdaLR(optimizer, lambda step: learning_rate_ratio(step, config))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

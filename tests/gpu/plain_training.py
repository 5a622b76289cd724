"""A training loop on a device, in plain PyTorch, with dropout and a schedule."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from sentinel_agent import Agent


class Training:
    """A model, its optimizer and schedule, and what each step computed."""

    def __init__(self, device: torch.device, *, width: int = 64) -> None:
        torch.manual_seed(3)
        self.device = device
        layers = (nn.Linear(16, width), nn.Dropout(0.2), nn.GELU(), nn.Linear(width, width), nn.GELU())
        self.model = nn.Sequential(*layers, nn.Linear(width, 1)).to(device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01, fused=True)
        self.schedule = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda step: 1.0 / (1.0 + 0.01 * step))
        self.losses: list[torch.Tensor] = []
        self.norms: list[torch.Tensor] = []

    def agent(self, folder: Path, *, kind: Callable[..., Agent] = Agent, **options: Any) -> Agent:
        """One for this training."""
        return kind(self.model, self.optimizer, also=[self.schedule], folder=folder, **options)

    def compute(self) -> None:
        """One optimizer step on a batch that is drawn on the device."""
        inputs = torch.randn(32, 16, device=self.device)
        loss = nn.functional.mse_loss(self.model(inputs), inputs.sum(dim=1, keepdim=True))
        self.optimizer.zero_grad()
        loss.backward()
        self.norms.append(nn.utils.clip_grad_norm_(self.model.parameters(), 1.0))
        self.optimizer.step()
        self.schedule.step()
        self.losses.append(loss.detach())

    def run(self, steps: int, sentinel: Agent | None = None) -> None:
        """Some steps; each is told to the agent, if there is one."""
        for _ in range(steps):
            self.compute()
            if sentinel is not None:
                sentinel.record("twice", 2.0 * self.losses[-1])
                sentinel.step(loss=self.losses[-1], grad_norm=self.norms[-1])

    def state(self) -> list[Any]:
        """All that the training has come to, its device's generator too."""
        generator = torch.cuda.get_rng_state(self.device)
        return [self.model.state_dict(), self.optimizer.state_dict(), self.schedule.state_dict(), generator]

"""A training loop without a framework, watched by Sentinel."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from sentinel_agent import Agent

torch.manual_seed(0)
features = torch.randn(8192, 16)
targets = features.sum(dim=1, keepdim=True).sin()
loader = DataLoader(TensorDataset(features, targets), batch_size=32, shuffle=True)
model = nn.Sequential(nn.Linear(16, 512), nn.GELU(), nn.Linear(512, 512), nn.GELU(), nn.Linear(512, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0 / (1.0 + step / 1000))

with Agent(model, optimizer, also=[schedule], checkpoint_every=50) as sentinel:
    for _ in range(3):
        for inputs, wanted in sentinel.batches(loader):
            loss = nn.functional.mse_loss(model(inputs), wanted)
            optimizer.zero_grad()
            loss.backward()
            norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            sentinel.step(loss=loss, grad_norm=norm)

torch.save(model.state_dict(), "model.pt")

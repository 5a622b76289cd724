"""A small language model trained by the Hugging Face Trainer, watched by Sentinel."""

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed

from sentinel_agent.transformers import SentinelCallback

set_seed(0)
model = GPT2LMHeadModel(GPT2Config(vocab_size=64, n_positions=32, n_embd=64, n_layer=2, n_head=2))
samples = [
    {"input_ids": row, "labels": row} for row in torch.arange(32).repeat(512, 1) + torch.arange(512)[:, None] % 32
]
arguments = TrainingArguments(
    "out",
    max_steps=120,
    per_device_train_batch_size=4,
    gradient_accumulation_steps=2,
    logging_steps=10,
    save_steps=40,
    report_to="none",
)
Trainer(model, arguments, train_dataset=samples, callbacks=[SentinelCallback()]).train()

torch.save(model.state_dict(), "model.pt")

"""What a batch tells at a glance, without a copy to or from a device."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any, Final

import torch

TOKEN_KEYS: Final = ("input_ids", "tokens", "inputs", "x")
FINGERPRINT_VALUES: Final = 256
"""Of the first sample: enough to tell batches apart, and read in a microsecond."""
_INTEGERS: Final = frozenset({torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64})


def first_tensor(batch: Any) -> torch.Tensor | None:
    """The first tensor in the usual nestings of mappings, lists and tuples; None for others."""
    for _ in range(4):  # deeper nestings are not looked into
        if isinstance(batch, torch.Tensor):
            return batch
        if isinstance(batch, Mapping):
            batch = next(iter(batch.values()), None)
        elif isinstance(batch, list | tuple) and batch:
            batch = batch[0]
        else:
            return None
    return None


def token_count(batch: Any) -> int | None:
    """Tokens where the batch is plainly of token ids: a 2-D integer tensor (samples, positions); else None."""
    if isinstance(batch, Mapping):
        batch = next((batch[key] for key in TOKEN_KEYS if key in batch), None)
    elif isinstance(batch, list | tuple) and batch:
        batch = batch[0]
    if isinstance(batch, torch.Tensor) and batch.dim() == 2 and batch.dtype in _INTEGERS:
        return batch.numel()
    return None


def fingerprint(tensor: torch.Tensor, before: int = 0) -> int | None:
    """CRC-32 of the first sample's leading values; None where that would wait for a device.

    Args:
        tensor: the batch's first tensor, samples along dimension 0.
        before: the value of the micro-batch before, to make one of several.
    """
    if tensor.is_cuda or not tensor.numel() or not tensor.dim():
        return None
    try:
        sample = tensor.numpy()[0]
    except (TypeError, RuntimeError):  # bfloat16, sparse, another device: numpy has no view of it
        return None
    return zlib.crc32(sample.ravel()[:FINGERPRINT_VALUES].tobytes(), before)

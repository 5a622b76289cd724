"""x"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ModelConfig:
    vocabulary_size: int
    context_length: int
    layers: int
    heads: int
    width: int
    hidden_width: int

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from sentinel_reference.config import PRESETS, ModelConfig, PresetName
from sentinel_reference.model import LanguageModel, rms_norm, rope_tables, rotate

CONFIG = ModelConfig(vocabulary_size=257, context_tokens=16, layers=2, heads=2, width=32, hidden_width=64)


@pytest.fixture
def model() -> LanguageModel:
    """A small one, not yet trained."""
    torch.manual_seed(0)
    return LanguageModel(CONFIG)


def test_no_position_sees_a_later_one(model: LanguageModel) -> None:
    """A changed token changes the scores at its own position and after it, and none before."""
    tokens = torch.randint(0, 257, (2, 16))
    other = tokens.clone()
    other[:, 9] = (other[:, 9] + 1) % 257
    differs = (model(tokens) != model(other)).any(dim=-1)
    assert not differs[:, :9].any()
    assert differs[:, 9:].all()


@pytest.mark.parametrize("width", [128, 768])
def test_new_model_knows_nothing(width: int) -> None:
    """Before training, the loss on random tokens is that of a fair guess, within 0.1 nat, whatever the width."""
    torch.manual_seed(0)
    model = LanguageModel(replace(CONFIG, width=width))
    tokens = torch.randint(0, 257, (8, 17))
    loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
    assert loss.item() == pytest.approx(math.log(257), abs=0.1)


def test_rotation_tells_distances_not_places() -> None:
    """The product of a rotated query and key depends on how far apart they stand and on nothing else."""
    torch.manual_seed(0)
    cos, sin = rope_tables(16, 8)
    query, key = (rotate(torch.randn(8).expand(1, 16, 2, 1, 8), cos, sin)[0, :, 0, 0] for _ in range(2))
    products = query @ key.T
    torch.testing.assert_close(products[:-3, :-3], products[3:, 3:])
    assert not torch.allclose(products[0, 1], products[0, 5])


def test_queries_and_keys_have_unit_scale() -> None:
    """Normalised vectors have a root mean square of one whatever their length was."""
    assert rms_norm(torch.randn(4, 8) * 1e3).square().mean(-1).tolist() == pytest.approx([1.0] * 4, rel=1e-4)


def test_124m_is_124_million() -> None:
    """The preset named 124M has 124 million parameters, the embedding counted once."""
    with torch.device("meta"):
        model = LanguageModel(PRESETS[PresetName.GPT2_SMALL].model)
    assert round(sum(weight.numel() for weight in model.parameters()) / 1e6) == 124

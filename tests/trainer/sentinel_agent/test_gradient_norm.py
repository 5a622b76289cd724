from __future__ import annotations

import pytest
import torch

from sentinel_agent.gradient_norm import gradient_norm


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_norm_is_that_of_clipping(dtype: torch.dtype) -> None:
    """The norm is what torch's own clipping would compute, over all groups and without parameters that have none."""
    torch.manual_seed(0)
    parameters = [torch.nn.Parameter(torch.randn(shape, dtype=dtype)) for shape in ((3, 4), (7,), (2, 2, 2))]
    for parameter in parameters[:2]:
        parameter.grad = torch.randn_like(parameter)
    optimizer = torch.optim.SGD([{"params": parameters[:1]}, {"params": parameters[1:], "lr": 0.1}])
    norm = gradient_norm(optimizer)
    assert norm is not None
    assert torch.equal(norm, torch.nn.utils.get_total_norm([each.grad for each in parameters[:2]]))


def test_no_gradients_no_norm() -> None:
    """Before any backward pass there is no norm, not zero."""
    assert gradient_norm(torch.optim.SGD([torch.nn.Parameter(torch.zeros(2))])) is None

from __future__ import annotations

import pytest
import torch

from sentinel_agent.forward_timer import ForwardTimer

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="events are a CUDA device's")


def test_a_forward_pass_is_timed_on_the_device() -> None:
    """The span is what the device took, and is not known before it is done; the next step is too soon to be timed."""
    device = torch.device("cuda", 0)
    values = torch.ones(4096, 4096, device=device)
    timer = ForwardTimer(device)
    timer.began(is_first=True)
    for _ in range(50):
        values = values @ values
    span = timer.ended()
    assert span is not None
    torch.cuda.synchronize()
    seconds = span.seconds()
    assert seconds is not None
    assert 0 < seconds < 60
    timer.began(is_first=True)
    assert timer.ended() is None

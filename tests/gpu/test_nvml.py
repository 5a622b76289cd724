"""What the driver says of the device is what torch says of it."""

from __future__ import annotations

import threading

import pytest
import torch

from sentinel.protocol.hardware import DeviceSample
from sentinel_agent.gpu import GpuReader

pytestmark = pytest.mark.gpu
GIB = 2**30


def test_driver_and_torch_agree(cuda: torch.device) -> None:
    """The same device, the same memory, and a gibibyte that torch takes is seen taken."""
    pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed")
    samples: list[DeviceSample] = []
    came = threading.Event()

    def tell(sample: DeviceSample) -> None:
        samples.append(sample)
        came.set()

    reader = GpuReader(cuda, tell, interval_s=0.05)
    reader.start()
    assert reader.first_answer.wait(30)
    assert reader.problem is None
    before = samples[-1]
    taken = torch.ones(GIB // 4, device=cuda)
    torch.cuda.synchronize()
    seen = len(samples)
    while len(samples) < seen + 2:
        came.clear()
        assert came.wait(10)
    reader.stop()
    after, facts = samples[-1], torch.cuda.get_device_properties(cuda)
    free_bytes, total_bytes = torch.cuda.mem_get_info(cuda)
    assert after.name == facts.name
    assert after.uuid == f"GPU-{facts.uuid}"
    assert after.memory_total_bytes == pytest.approx(total_bytes, rel=0.05)  # the driver keeps some for itself
    assert after.memory_used_bytes is not None
    assert before.memory_used_bytes is not None
    assert after.memory_used_bytes - before.memory_used_bytes >= taken.numel() * 4 * 0.9
    assert after.memory_used_bytes == pytest.approx(total_bytes - free_bytes, rel=0.1, abs=2 * GIB)
    assert after.temperature_celsius is None or 5.0 < after.temperature_celsius < 110.0

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from sentinel_agent.gpu import GpuReader

PROGRAM = """
import json, sys, threading
from dataclasses import asdict
import torch
from sentinel_agent.gpu import GpuReader

samples, enough = [], threading.Event()
def tell(sample):
    samples.append(sample)
    if len(samples) == 3:
        enough.set()
reader = GpuReader(torch.device(sys.argv[1]), tell, interval_s=0.01)
reader.start()
assert reader.first_answer.wait(20)
if reader.problem is None:
    assert enough.wait(20)
    reader.stop()
print(json.dumps({"problem": reader.problem, "sample": asdict(samples[-1]) if samples else None}))
"""


def read(device: str, environ: dict[str, str]) -> dict[str, object]:
    """What a reader finds in a process of its own."""
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM, device]
    environ = {**os.environ, **environ}
    return json.loads(subprocess.run(command, env=environ, capture_output=True, text=True, check=True).stdout)  # type: ignore[no-any-return]


def test_driver_is_read(tmp_path: Path, require_program: Callable[[str], str]) -> None:
    """Utilization, memory and power arrive in base units; what an old driver or device lacks is None, not zero."""
    source = Path(__file__).with_name("nvml_stand_in.c")
    subprocess.run(
        [require_program("cc"), "-shared", "-fPIC", "-o", tmp_path / "libnvidia-ml.so.1", source], check=True
    )
    found = read("cpu", {"LD_LIBRARY_PATH": str(tmp_path)})
    assert found["problem"] is None
    sample = found["sample"]
    assert isinstance(sample, dict)
    assert sample.pop("at") > 1e9
    assert sample == {
        "index": 0,
        "uuid": "GPU-stand-in",
        "name": "",
        "utilization_ratio": 0.87,
        "memory_used_bytes": 60 << 30,
        "memory_total_bytes": 80 << 30,
        "power_watts": 412.5,
        "temperature_celsius": None,
    }


def test_no_driver_is_said(tmp_path: Path) -> None:
    """Without the library there are no samples and a reason in words."""
    (tmp_path / "libnvidia-ml.so.1").write_text("not a library")
    found = read("cpu", {"LD_LIBRARY_PATH": str(tmp_path)})
    assert found["sample"] is None
    assert "NVIDIA driver says" in str(found["problem"])


def test_no_binding_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the optional package the reason names what to install."""
    monkeypatch.setitem(sys.modules, "pynvml", None)
    reader = GpuReader(torch.device("cpu"), print)
    reader.start()
    assert reader.first_answer.wait(10)
    assert reader.problem == "the module pynvml is missing: pip install nvidia-ml-py"

"""What the tests on a GPU share: the device or the reason why there is none, and the figures that they measure."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS asks for it, before its first use
FIGURES: list[str] = []
WHY_NONE = f"no CUDA device: torch {torch.__version__} finds none"


@pytest.fixture
def cuda() -> torch.device:
    """The first CUDA device; without one the test is skipped."""
    if not torch.cuda.is_available():
        pytest.skip(WHY_NONE)
    return torch.device("cuda", 0)


@pytest.fixture
def deterministic(cuda: torch.device) -> Iterator[torch.device]:
    """The device, where the same computation gives the same bits."""
    torch.use_deterministic_algorithms(True)
    yield cuda
    torch.use_deterministic_algorithms(False)


@pytest.fixture
def figure() -> Callable[[str], None]:
    """Takes a line for the end of the output."""
    return FIGURES.append


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Says which device the tests ran on, and what was measured."""
    terminalreporter.section("GPU")
    if torch.cuda.is_available():
        facts = torch.cuda.get_device_properties(0)
        memory = f"{facts.total_memory / 2**30:.0f} GiB"
        terminalreporter.line(f"{facts.name}, {memory}, torch {torch.__version__}, CUDA {torch.version.cuda}")
    else:
        terminalreporter.line(f"{WHY_NONE}; what needs one was skipped")
    for line in FIGURES:
        terminalreporter.line(line)

"""The rule for real components, tried on a test suite of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SUITE = """
import pytest

def test_program(require_program):
    require_program("no-such-program")

@pytest.mark.real
@pytest.mark.skipif(True, reason="no such device")
def test_device():
    pass

@pytest.mark.skip(reason="not about a real component")
def test_other():
    pass
"""


@pytest.mark.parametrize(("required", "outcome"), [("0", "3 skipped"), ("1", "1 failed, 1 skipped, 1 error")])
def test_skip_of_a_real_component_fails_only_where_demanded(tmp_path: Path, required: str, outcome: str) -> None:
    """A missing program or device skips its test, or fails it under SENTINEL_REQUIRE_REAL=1; other skips stay."""
    (tmp_path / "conftest.py").write_bytes(Path(__file__).with_name("conftest.py").read_bytes())
    (tmp_path / "test_suite.py").write_text(SUITE)
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-c", ROOT / "pyproject.toml", "--rootdir", tmp_path, tmp_path],
        env={"SENTINEL_REQUIRE_REAL": required},
        capture_output=True,
        text=True,
        check=False,
    )
    assert outcome in run.stdout, run.stdout + run.stderr

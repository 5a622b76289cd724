"""What runs on a host without containers: units of systemd, and scripts for Slurm."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.deploy.files import DEPLOY

UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
SCRIPTS = [*sorted((DEPLOY / "slurm").glob("*.sbatch")), DEPLOY / "compose" / "secrets.sh"]
every_unit = pytest.mark.parametrize("unit", UNITS, ids=[unit.name for unit in UNITS])


@pytest.mark.real
@every_unit
def test_systemd_takes_the_unit(unit: Path, tmp_path: Path, require_program: Callable[[str], str]) -> None:
    """It knows every line, and rates what the service may do as little exposed: 2 of 10 or less."""
    systemd = require_program("systemd-analyze")
    installed = tmp_path / unit.name
    installed.write_text(unit.read_text().replace("/opt/sentinel/bin/sentinel", "/bin/true"))
    verified = subprocess.run([systemd, "verify", installed], capture_output=True, text=True, check=False)
    assert (verified.returncode, verified.stderr) == (0, "")
    rated = [systemd, "security", "--offline=true", "--threshold=20", "--no-pager", installed]
    subprocess.run(rated, capture_output=True, check=True)


@pytest.mark.real
@pytest.mark.parametrize("script", SCRIPTS, ids=[script.name for script in SCRIPTS])
def test_shellcheck_finds_nothing(script: Path, require_program: Callable[[str], str]) -> None:
    """No quoting fault, no variable that may be unset."""
    checked = subprocess.run([require_program("shellcheck"), script], capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stdout) == (0, "")

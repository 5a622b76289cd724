from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    "arguments",
    [
        ["--", "sh", "-c", "exit 3"],
        ["--mode=act", "--restarts=0", "--patience=0.1", "--", "sh", "-c", "exit 3"],
    ],
    ids=" ".join,
)
def test_the_command_and_the_launchers_options_are_told_apart(arguments: list[str]) -> None:
    """Everything behind the options is the command's, options of its own included; its exit code comes back."""
    verb = [sys.executable, "-m", "sentinel.cli.main", "run", "--url", "http://127.0.0.1:9", *arguments]
    assert subprocess.run(verb, capture_output=True, check=False).returncode == 3


def test_help_tells_the_options() -> None:
    """The launcher's own options are told, as they are where only the base package is installed."""
    done = subprocess.run(
        [sys.executable, "-m", "sentinel.cli.main", "run", "--help"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0
    assert "--restarts" in done.stdout
    assert "--patience" in done.stdout

"""`sentinel scan`: what Sentinel says about training logs that it did not record."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from sentinel.cli.scanning import Scan, scan
from sentinel.domain.errors import InvalidInput
from sentinel.readers.sniffing import read_log


def scan_command(
    files: Annotated[
        list[Path], typer.Argument(help="CSV, trainer_state.json, TensorBoard event or JSON lines files.")
    ],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a file, for programs.")] = False,
) -> None:
    """Runs detectors and policy over training logs."""
    failed = False
    for path in files:
        try:
            result = scan(read_log(path))
        except InvalidInput as error:
            failed = True
            print(f"sentinel scan: {error}", file=sys.stderr)
            continue
        if as_json:
            print(json.dumps(tree(path, result), allow_nan=False), flush=True)
    if failed:
        raise typer.Exit(1)


def tree(path: Path, result: Scan) -> dict[str, Any]:
    """The scan of one file as a tree for JSON."""
    return {
        "file": str(path),
        "rows": len(result.reports),
        "findings": [
            {name: getattr(each, name) for name in ("symptom", "severity", "onset_step", "step", "reason")}
            for each in result.findings
        ],
        "incidents": [
            {
                name: getattr(each, name)
                for name in ("symptom", "severity", "onset_step", "detected_step", "end_step", "verdict", "reason")
            }
            for each in result.incidents.values()
        ],
        "decisions": [
            {name: getattr(each, name) for name in ("step", "action", "target_step", "reason")}
            for each in result.decisions
        ],
    }


if __name__ == "__main__":
    typer.run(scan_command)

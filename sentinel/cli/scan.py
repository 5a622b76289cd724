"""`sentinel scan`: what Sentinel says about training logs that it did not record."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any, get_args

import typer
from rich.console import Console

from sentinel.cli.scan_page import page
from sentinel.cli.scan_terminal import show
from sentinel.cli.scanning import Scan, scan
from sentinel.domain.errors import InvalidInput
from sentinel.readers.fields import Field
from sentinel.readers.sniffing import read_log


def scan_command(
    files: Annotated[
        list[Path], typer.Argument(help="CSV, trainer_state.json, TensorBoard event or JSON lines files.")
    ],
    *,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a file, for programs.")] = False,
    html: Annotated[Path | None, typer.Option(help="Write a page that needs no network.")] = None,
    policy: Annotated[Path | None, typer.Option(help="Decide by this policy, not by the default one.")] = None,
    column: Annotated[
        list[str] | None, typer.Option(help="Name a column that is not found: loss=NAME, step=NAME, grad_norm=NAME.")
    ] = None,
) -> None:
    """Read training logs and tell what Sentinel would have found and done.

    Nothing is looked at ahead of time: every line is judged from the lines before it, as it would have been in the run.
    """
    results: list[tuple[Path, Scan]] = []
    failed = False
    try:
        chosen = _chosen(column or [])
        text = None if policy is None else policy.read_text(encoding="utf-8")
    except (InvalidInput, OSError) as error:
        raise typer.BadParameter(str(error)) from None
    console = Console()
    for path in files:
        try:
            result = scan(read_log(path, chosen), text)
        except InvalidInput as error:
            failed = True
            print(f"sentinel scan: {error}", file=sys.stderr)
            continue
        if as_json:
            print(json.dumps(tree(path, result), allow_nan=False), flush=True)
        else:
            show(console, str(path), result)
        if html is not None:
            results.append((path, result))
    if html is not None:
        html.write_text(page([(str(path), result) for path, result in results]), encoding="utf-8")
    if failed:
        raise typer.Exit(1)


def tree(path: Path | str, result: Scan) -> dict[str, Any]:
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


def _chosen(columns: list[str]) -> dict[Field, str]:
    chosen: dict[Field, str] = {}
    for text in columns:
        field, _, name = text.partition("=")
        known = {each: each for each in get_args(Field)}
        if field not in known or not name:
            raise InvalidInput("--column", f"{text!r} is not FIELD=NAME with a field of {', '.join(known)}")
        chosen[known[field]] = name
    return chosen


if __name__ == "__main__":
    typer.run(scan_command)

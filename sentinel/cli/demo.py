"""Shows Sentinel at work on this machine, and says whether it worked."""

from __future__ import annotations

import json
import tempfile
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from sentinel.cli.printing import console
from sentinel.demo.running import Healthy, healthy, with_faults
from sentinel.demo.verdict import Judged, Verdict
from sentinel.domain.errors import SentinelError


def demo(
    *,
    without_faults: Annotated[
        bool,
        typer.Option("--healthy", help="No fault: nothing may be found, and the loss must be that of other seeds."),
    ] = False,
    seed: Annotated[int, typer.Option(help="Of the model, the data order and so of every loss.")] = 1,
    summary: Annotated[Path | None, typer.Option("--json", help="Write the summary to this file.")] = None,
    keep: Annotated[Path | None, typer.Option(help="Keep database, logs and checkpoints in this new folder.")] = None,
) -> None:
    """Train a small model, break it on purpose, and watch Sentinel bring it back.

    Exit code 1 if a fault was missed, wrongly acted on, or not recovered from.
    """
    if find_spec("torch") is None or find_spec("lightning") is None:
        raise SentinelError("the demo trains a model and needs PyTorch: pip install 'training-sentinel[demo]'")
    with _folder(keep) as name:
        folder = Path(name)
        result: Healthy | Verdict
        if without_faults:
            result = healthy(folder, console, seed=seed)
            _print_healthy(result)
            tree: dict[str, Any] = asdict(result)
        else:
            result = with_faults(folder, console, seed=seed)
            _print_verdict(result)
            tree = result.tree()
    if summary is not None:
        summary.write_text(json.dumps(tree, indent=2) + "\n")
    raise typer.Exit(0 if result.passed else 1)


def _folder(keep: Path | None) -> AbstractContextManager[str]:
    if keep is None:
        return tempfile.TemporaryDirectory(prefix="sentinel-demo-", ignore_cleanup_errors=True)
    try:
        keep.mkdir(parents=True)
    except FileExistsError:
        raise SentinelError(
            f"{keep} exists already: name a new folder, so that nothing of yours is overwritten"
        ) from None
    return nullcontext(str(keep.resolve()))


def _print_verdict(verdict: Verdict) -> None:
    table = Table("fault", "", "what the daemon's API says of it")
    for fault in verdict.faults:
        facts = _facts(fault)
        for place, (name, text) in enumerate(facts):
            head = ("[bold]" + fault.fault + "[/]", f"at step {fault.injected_step}", *[""] * len(facts))[place]
            table.add_row(head, name, text, end_section=place == len(facts) - 1)
    console.print(table)
    for problem in verdict.problems:
        console.print(f"[red]{problem}[/]", highlight=False)
    if verdict.passed:
        console.print("[green]Every fault was found, rightly acted on and recovered from; nothing else was touched.[/]")
    else:
        console.print("[red]The demo failed.[/]")


def _facts(fault: Judged) -> list[tuple[str, str]]:
    """What became of a fault, as names and texts."""
    if fault.problem is not None:
        return [("[red]problem[/]", f"[red]{fault.problem}[/]"), ("incident", fault.incident or "none")]
    return [
        ("found", f"after {fault.found_after_steps} steps, {fault.found_after_s:.2f} s, as {fault.incident}"),
        ("decision", fault.decision),
        ("because", fault.reason),
        ("to", fault.checkpoint),
        *(("not", each) for each in fault.passed_over),
        ("back", f"on its path at step {fault.back_at_step}"),
        *([("cost", f"{fault.lost_steps} steps, {fault.lost_s:.1f} s")] if fault.lost_steps else []),
    ]


def _print_healthy(result: Healthy) -> None:
    console.print(
        f"{result.incidents} incidents. Loss {result.loss:.4f}; "
        f"{len(result.others)} other seeds {result.mean:.4f} +- {result.deviation:.4f}.",
        highlight=False,
    )
    console.print("[green]Healthy, and left alone.[/]" if result.passed else "[red]The demo failed.[/]")

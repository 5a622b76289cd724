"""A scan for the eyes, in a terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from sentinel.cli.printing import counted
from sentinel.cli.scan_curve import Axis, Bucket, axis_of, buckets
from sentinel.cli.scanning import Scan

HEIGHT = 12
PARTS = " ▁▂▃▄▅▆▇█"
STYLES = {"info": "dim", "warning": "yellow", "critical": "bold red"}


def show(console: Console, name: str, result: Scan) -> None:
    """Prints the curve of one log, its incidents, and what would have been done."""
    rollbacks = sum(each.action == "rollback" for each in result.decisions)
    console.print(
        f"[bold]{escape(name)}[/]  {counted(len(result.reports), 'row')}, {counted(len(result.findings), 'finding')}, "
        f"{counted(len(result.incidents), 'incident')}, {counted(rollbacks, 'rollback')}"
    )
    if not result.reports:
        return
    curve = buckets(result.reports, max(20, console.width - 12))
    axis = axis_of(curve)
    for line in _plot(curve, axis):
        console.print(line, markup=False, highlight=False, no_wrap=True)
    console.print(" " * 10 + _marks(curve, result), no_wrap=True)
    if result.incidents:
        console.print(_incidents(result))


def _plot(curve: Sequence[Bucket], axis: Axis) -> list[str]:
    """Each column is filled from the lowest to the highest loss of its rows, in eighths of a line."""
    lines = []
    for row in reversed(range(HEIGHT)):
        cells = "".join(_cell(axis, bucket, row) for bucket in curve)
        label = {HEIGHT - 1: f"{axis.high:9.4g}", 0: f"{axis.low:9.4g}"}.get(row, " " * 9)
        lines.append(f"{label} {cells}")
    if axis.logarithmic:
        lines[len(lines) // 2] = f"{'log':>9} " + lines[len(lines) // 2][10:]
    return lines


def _cell(axis: Axis, bucket: Bucket, row: int) -> str:
    if math.isnan(bucket.highest):
        return " "
    bottom = axis.place(bucket.lowest) * (HEIGHT - 0.01)
    top = axis.place(bucket.highest) * (HEIGHT - 0.01)
    if not math.floor(bottom) <= row <= math.floor(top):
        return " "
    return PARTS[min(8, max(1, math.ceil((top - row) * 8)))]


def _marks(curve: Sequence[Bucket], result: Scan) -> str:
    """One sign a column: what was found and decided there."""
    detected = {each.detected_step: each.severity for each in result.incidents.values()}
    rolled_back = {each.step for each in result.decisions if each.action == "rollback"}
    signs = []
    for bucket in curve:
        inside = range(bucket.first_step, bucket.last_step + 1)
        if any(step in inside for step in rolled_back):
            signs.append("[bold red]◀[/]")
        elif any(step in inside for step in detected):
            signs.append("[yellow]▲[/]")
        else:
            signs.append("[red]N[/]" if bucket.nonfinite else " ")
    return "".join(signs)


def _incidents(result: Scan) -> Table:
    table = Table(box=None, padding=(0, 1), header_style="dim")
    for heading in ("onset", "seen", "end", "symptom", "verdict", "why, and what would have been done"):
        table.add_column(heading, justify="right" if heading in ("onset", "seen", "end") else "left")
    for incident in result.incidents.values():
        acts = [each for each in result.decisions if each.incident == incident.id and each.action == "rollback"]
        done = [f"[bold red]◀ rollback at {each.step}:[/] {escape(each.reason)}" for each in acts]
        table.add_row(
            str(incident.onset_step),
            str(incident.detected_step),
            "" if incident.end_step is None else str(incident.end_step),
            f"[{STYLES[incident.severity]}]{incident.symptom}[/]",
            incident.verdict,
            "\n".join([escape(incident.reason), *done]),
        )
    return table

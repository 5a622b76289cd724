"""A scan as one HTML page that needs no network: curves as SVG, incidents and decisions as tables."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from html import escape

from sentinel.cli.scan_curve import Axis, Bucket, axis_of, buckets
from sentinel.cli.scanning import Scan

WIDTH, HEIGHT, LEFT, BELOW = 1100, 260, 60, 20

STYLE = """
:root { color-scheme: light dark; --line: #2563eb; --warn: #f59e0b; --bad: #dc2626; --dim: #6b7280 }
body { font: 15px/1.45 system-ui, sans-serif; max-width: 1120px; margin: 2rem auto; padding: 0 1rem }
h2 { font-size: 1rem; margin: 2.5rem 0 .25rem; overflow-wrap: anywhere }
svg { width: 100%; height: auto } svg text { font-size: 11px; fill: var(--dim) }
.curve { stroke: var(--line); fill: var(--line); stroke-width: 1 }
.span { fill: var(--warn); opacity: .25 } .span.critical, .span.malignant { fill: var(--bad) }
.act { stroke: var(--bad); stroke-width: 1.5 } .nan { fill: var(--bad) }
table { border-collapse: collapse; width: 100%; font-size: .85rem }
td, th { text-align: left; padding: .2rem .6rem .2rem 0; vertical-align: top; border-top: 1px solid #8884 }
.number { text-align: right; font-variant-numeric: tabular-nums }
.dim { color: var(--dim) } .rollback, .escalate { color: var(--bad); font-weight: 600 }
"""


def page(results: Sequence[tuple[str, Scan]]) -> str:
    """The page about all scanned files."""
    body = "".join(_section(name, result) for name, result in results)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>sentinel scan</title>'
        f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style></head>'
        f"<body><h1>sentinel scan</h1>{_summary(results)}{body}</body></html>\n"
    )


def _summary(results: Sequence[tuple[str, Scan]]) -> str:
    rows = (
        (
            f'<a href="#{escape(name)}">{escape(name)}</a>',
            len(result.reports),
            len(result.incidents),
            _rollbacks(result),
        )
        for name, result in results
    )
    body = "".join(
        f'<tr><td>{link}</td><td class="number">{count}</td><td class="number">{incidents}</td>'
        f'<td class="number">{rollbacks}</td></tr>'
        for link, count, incidents, rollbacks in rows
    )
    return f"<table><tr><th>log</th><th>rows</th><th>incidents</th><th>would have rolled back</th></tr>{body}</table>"


def _rollbacks(result: Scan) -> int:
    return sum(each.action == "rollback" for each in result.decisions)


def _section(name: str, result: Scan) -> str:
    heading = f'<h2 id="{escape(name)}">{escape(name)}</h2>'
    if not result.reports:
        return f'{heading}<p class="dim">no rows</p>'
    incidents = _table(
        ("onset", "seen", "end", "symptom", "severity", "verdict", "why"),
        (
            (i.onset_step, i.detected_step, i.end_step, i.symptom, i.severity, i.verdict, i.reason)
            for i in result.incidents.values()
        ),
    )
    decisions = _table(
        ("step", "decision", "target", "why"),
        ((d.step, d.action, d.target_step, d.reason) for d in result.decisions),
    )
    findings = _table(
        ("onset", "step", "symptom", "severity", "what"),
        ((f.onset_step, f.step, f.symptom, f.severity, f.reason) for f in result.findings),
    )
    return (
        f"{heading}{_svg(result)}<h3>Incidents</h3>{incidents}<h3>What would have been done</h3>{decisions}"
        f"<details><summary>{len(result.findings)} findings</summary>{findings}</details>"
    )


def _table(headings: Sequence[str], rows: Iterable[tuple[object, ...]]) -> str:
    lines = [f"<tr>{''.join(_cell(value) for value in row)}</tr>" for row in rows]
    if not lines:
        return '<p class="dim">none</p>'
    head = "".join(f"<th>{heading}</th>" for heading in headings)
    return f"<table><tr>{head}</tr>{''.join(lines)}</table>"


def _cell(value: object) -> str:
    if isinstance(value, int):
        return f'<td class="number">{value}</td>'
    text = "" if value is None else escape(str(value))
    return f'<td class="{text}">{text}</td>' if text in ("rollback", "escalate") else f"<td>{text}</td>"


def _svg(result: Scan) -> str:
    curve = buckets(result.reports, WIDTH)
    axis = axis_of(curve)
    label = "loss, logarithmic" if axis.logarithmic else "loss"
    ticks = "".join(
        f'<text x="{LEFT - 6}" y="{_y(axis, value) + 4:.0f}" text-anchor="end">{value:.4g}</text>'
        for value in (axis.low, axis.high)
    )
    steps = "".join(
        f'<text x="{_x(curve, step):.0f}" y="{HEIGHT + BELOW - 4}" text-anchor="{anchor}">{step}</text>'
        for step, anchor in ((curve[0].first_step, "start"), (curve[-1].last_step, "end"))
    )
    return (
        f'<svg viewBox="0 0 {LEFT + WIDTH} {HEIGHT + BELOW}" role="img" aria-label="{label} by step">'
        f'<text x="{LEFT + 4}" y="12">{label}</text>{ticks}{steps}{"".join(_spans(curve, result))}'
        f"{''.join(_bars(curve, axis))}{''.join(_acts(curve, result))}</svg>"
    )


def _spans(curve: Sequence[Bucket], result: Scan) -> Iterator[str]:
    last = curve[-1].last_step
    for incident in result.incidents.values():
        left = _x(curve, incident.onset_step)
        width = max(2.0, _x(curve, last if incident.end_step is None else incident.end_step) - left)
        title = escape(f"{incident.symptom}, {incident.verdict}: {incident.reason}")
        yield (
            f'<rect class="span {incident.severity} {incident.verdict}" x="{left:.1f}" y="0" width="{width:.1f}" '
            f'height="{HEIGHT}"><title>{title}</title></rect>'
        )


def _bars(curve: Sequence[Bucket], axis: Axis) -> Iterator[str]:
    """The curve as an area between lowest and highest, and a mark where a loss was not finite."""
    points = [(at, bucket) for at, bucket in enumerate(curve) if not math.isnan(bucket.highest)]
    scale = WIDTH / max(1, len(curve) - 1)
    upper = [f"{LEFT + at * scale:.1f},{_y(axis, bucket.highest):.1f}" for at, bucket in points]
    lower = [f"{LEFT + at * scale:.1f},{_y(axis, bucket.lowest):.1f}" for at, bucket in reversed(points)]
    yield f'<polygon class="curve" points="{" ".join(upper + lower)}"/>'
    for at, bucket in enumerate(curve):
        if bucket.nonfinite:
            yield f'<rect class="nan" x="{LEFT + at * scale:.1f}" y="{HEIGHT - 5}" width="2" height="5"/>'


def _acts(curve: Sequence[Bucket], result: Scan) -> Iterator[str]:
    for each in result.decisions:
        if each.action == "rollback":
            x = _x(curve, each.step)
            title = escape(f"step {each.step}: {each.reason}")
            yield f'<line class="act" x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{HEIGHT}"><title>{title}</title></line>'


def _x(curve: Sequence[Bucket], step: int) -> float:
    """Rows are spread evenly, as they were logged."""
    at = next((index for index, bucket in enumerate(curve) if bucket.last_step >= step), len(curve) - 1)
    return LEFT + at * WIDTH / max(1, len(curve) - 1)


def _y(axis: Axis, loss: float) -> float:
    return 8 + (1 - axis.place(loss)) * (HEIGHT - 16)

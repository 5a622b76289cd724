"""Incidents: all of them, or one with its whole story."""

from __future__ import annotations

from datetime import UTC, datetime
from difflib import get_close_matches
from typing import Annotated, Any, Final

import typer
from rich.table import Column, Table

from sentinel.cli.asking import By, Reason
from sentinel.cli.printing import AsJson, console, moment, print_decision, print_json, print_plain
from sentinel.client import DEFAULT_URL, Client, Url
from sentinel.domain.errors import InvalidInput
from sentinel.domain.symptoms import CONCERNS

app = typer.Typer(help="List incidents, or show one with its decisions.", no_args_is_help=True)
LAST_LINES: Final = 8
STATE_STYLES: Final = {"open": "red", "mitigating": "yellow", "escalated": "bold red", "resolved": "green"}


def _time(text: str) -> str:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is no time: expected one such as 2026-11-21T14:00:00Z") from None
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).isoformat()


@app.command("list")
def list_incidents(
    *,
    run: Annotated[str | None, typer.Option(help="Only of this run.")] = None,
    state: Annotated[
        str | None, typer.Option(help="Only in this state: open, mitigating, escalated, resolved.")
    ] = None,
    severity: Annotated[str | None, typer.Option(help="Only of this severity: info, warning, critical.")] = None,
    symptom: Annotated[str | None, typer.Option(help="Only with this symptom, such as loss_spike.")] = None,
    node: Annotated[str | None, typer.Option(help="Only those that point at this machine.")] = None,
    since: Annotated[str | None, typer.Option(parser=_time, help="Found then or later: 2026-11-21T14:00:00Z.")] = None,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """List incidents, the newest first."""
    wanted = {"run": run, "state": state, "severity": severity, "symptom": symptom, "node": node, "from": since}
    with Client(url) as client:
        incidents = client.pages("/v1/incidents", "incidents", **wanted)
    if as_json:
        print_json(incidents)
        return
    if not incidents:
        if symptom is not None and symptom not in CONCERNS:
            near = get_close_matches(symptom, CONCERNS, n=1) or CONCERNS
            raise InvalidInput("--symptom", f"there is none named {symptom!r}: did you mean {' or '.join(near)}?")
        console.print("No incidents.")
        return
    table = Table(
        Column("incident", overflow="fold"),
        "state",
        "symptom",
        "severity",
        "onset",
        "found",
        "lost steps",
        "when (UTC)",
        box=None,
    )
    for incident in incidents:
        table.add_row(
            incident["id"],
            f"[{STATE_STYLES[incident['state']]}]{incident['state']}[/]",
            incident["symptom"],
            incident["severity"],
            str(incident["onset_step"]),
            str(incident["detected_step"]),
            str(incident["lost_steps"]),
            moment(incident["detected_at"]),
        )
    console.print(table)


@app.command("show")
def show_incident(
    incident: str,
    *,
    stacks: Annotated[bool, typer.Option("--stacks", help="Show where every thread stood.")] = False,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Show one incident: what was seen, what was decided and why, what became of it."""
    with Client(url) as client:
        found = client.get(f"/v1/incidents/{incident}")
    if as_json:
        print_json(found)
        return
    style = STATE_STYLES[found["state"]]
    console.print(
        f"[bold]{found['id']}[/]  [{style}]{found['state']}[/]  {', '.join(found['symptoms'])}  {found['severity']}"
    )
    print_plain(f"began at step {found['onset_step']}, found at step {found['detected_step']}: {found['reason']}")
    for decision in found["decisions"]:
        print_decision(decision)
    for request in found["requests"]:
        said = f": {request['reason']}" if request.get("reason") else ""
        print_plain(f"  {moment(request['at'])} {request['by']}: {request['request']}{said}")
    for action in found["actions"]:
        print_plain(f"  action {action['executor']}: {action['state']} {action['reason']}")
    _print_last_words(found, stacks=stacks)
    print_plain(f"cost: {found['lost_steps']} steps, {found['lost_s']:.1f} s")
    if found.get("resolution"):
        print_plain(f"end: step {found['end_step']}, {found['resolution']}")


def _print_last_words(found: dict[str, Any], *, stacks: bool) -> None:
    """What processes said before they died, and where they stood when they hung."""
    for crash in found["crashes"]:
        how = crash.get("signal") or f"exit code {crash.get('exit_code', 'unknown')}"
        print_plain(f"  a process on {crash['host'] or 'its node'} ended by {how}; it said last:")
        for line in crash["stderr_tail"].splitlines()[-LAST_LINES:]:
            print_plain(f"      {line}")
    told = found["stacks"]
    if told and not stacks:
        print_plain(f"  stacks of {len(told)} processes: sentinel incidents show {found['id']} --stacks")
    for each in told if stacks else ():
        print_plain(
            f"  rank {each.get('rank', 'unknown')}, process {each.get('process_id', 'unknown')} on {each['host']}"
        )
        print_plain("\n".join(f"      {line}" for line in each["stacks"].splitlines()))


@app.command()
def acknowledge(incident: str, *, by: By, url: Url = DEFAULT_URL) -> None:
    """Say that you look after an incident."""
    _tell(incident, "acknowledge", url, by=by)


@app.command()
def annotate(incident: str, note: str, *, by: By, url: Url = DEFAULT_URL) -> None:
    """Add a note to an incident."""
    _tell(incident, "annotate", url, by=by, reason=note)


@app.command()
def resolve(incident: str, *, by: By, reason: Reason = "", url: Url = DEFAULT_URL) -> None:
    """Settle an incident."""
    _tell(incident, "resolve", url, by=by, reason=reason)


def _tell(incident: str, verb: str, url: str, **wish: str) -> None:
    with Client(url) as client:
        state = client.post(f"/v1/incidents/{incident}/{verb}", **wish)["state"]
    noted = {"acknowledge": f"{wish['by']} looks after it", "annotate": "the note is kept"}.get(verb)
    console.print(f"Incident {incident} is {state}{f'; {noted}' if noted else ''}.", highlight=False)

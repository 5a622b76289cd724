"""What a person asks of a run, or of all: hold, release, roll back."""

from __future__ import annotations

import getpass
from typing import Annotated, Any

import typer

from sentinel.cli.printing import AsJson, console, print_json
from sentinel.client import DEFAULT_URL, Client, Url
from sentinel.domain.errors import InvalidInput

By = Annotated[str, typer.Option(help="Who asks.", default_factory=getpass.getuser, show_default="the user")]
Reason = Annotated[str, typer.Option(help="Why, for whoever reads it later.")]
OneRun = Annotated[str | None, typer.Argument(help="The run.")]


def hold(
    run: OneRun = None,
    *,
    every: Annotated[bool, typer.Option("--all", help="All runs, those too that begin later.")] = False,
    by: By,
    reason: Reason = "",
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Hold a run, or all: whatever happens is recorded, and nothing is done to it."""
    _show(_ask("hold", run, every=every, url=url, by=by, reason=reason), as_json=as_json)


def release(
    run: OneRun = None,
    *,
    every: Annotated[bool, typer.Option("--all", help="End the hold of all runs; a run's own hold stays.")] = False,
    by: By,
    reason: Reason = "",
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Release a run, or all: what the hold withheld is decided anew."""
    _show(_ask("release", run, every=every, url=url, by=by, reason=reason), as_json=as_json)


def rollback(
    run: str,
    *,
    checkpoint: Annotated[str | None, typer.Option(help="A verified one of the run; else the newest good one.")] = None,
    incident: Annotated[str | None, typer.Option(help="The open incident because of which.")] = None,
    by: By,
    reason: Reason = "",
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Ask for a rollback now. A hold, or an agent that only observes, refuses it."""
    with Client(url) as client:
        decision = client.post(
            f"/v1/runs/{run}/rollback", by=by, reason=reason, checkpoint=checkpoint, incident=incident
        )
    if as_json:
        print_json(decision)
        return
    console.print(f"step {decision['step']} -> {decision['target_step']}: {decision['reason']}", highlight=False)


def _ask(verb: str, run: str | None, *, every: bool, url: str, **wish: str) -> Any:
    if every is (run is not None):
        raise InvalidInput("RUN", "name one run, or give --all")
    with Client(url) as client:
        return client.post(f"/v1/{verb}" if run is None else f"/v1/runs/{run}/{verb}", **wish)


def _show(answer: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(answer)
        return
    if "run" not in answer:
        console.print("All runs are held." if answer["is_held"] else "The hold of all runs has ended.")
        return
    holders = [answer[name] for name in ("held_by", "all_held_by") if answer.get(name)]
    standing = f"held by {' and by '.join(holders)}" if holders else "not held"
    console.print(f"Run {answer['run']} is {standing}.", highlight=False)
    if answer.get("all_held_by"):
        console.print("All runs are held: `sentinel release --all` ends that.")

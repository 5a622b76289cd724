"""Folds a run's log again: does the same come out, or what would another policy have done?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from sentinel import settings
from sentinel.cli.printing import AsJson, console, counted, print_json, print_plain
from sentinel.domain.errors import InvalidInput, InvalidPolicy
from sentinel.engine.replay import Replay
from sentinel.engine.replay import replay as fold_again
from sentinel.policy.rules import parse_policy
from sentinel.protocol.ids import RunId
from sentinel.store.session import open_current


def replay(
    run: str,
    *,
    policy: Annotated[Path | None, typer.Option(help="Decide by this policy instead of the recorded ones.")] = None,
    database_url: Annotated[str | None, typer.Option(help="Default: SENTINEL_DATABASE_URL.")] = None,
    as_json: AsJson = False,
) -> None:
    """Replay a run from its log and compare every decision; exit code 1 at the first that differs.

    With --policy differences are what that policy would have changed, and no failure.
    """
    text = _policy_text(policy)
    given = settings.load(database_url=database_url)
    result = fold_again(open_current(given.database_url), RunId(run), policy=text)
    failed = result.is_failure and policy is None
    if as_json:
        print_json(asdict(result) | {"same": result.difference is None})
    else:
        _print(result, failed=failed)
    raise typer.Exit(1 if failed else 0)


def _policy_text(path: Path | None) -> str | None:
    if path is None:
        return None
    try:
        text = path.read_text()
    except OSError as error:
        raise InvalidInput("--policy", f"{path} cannot be read: {error.strerror}") from None
    try:
        parse_policy(text)
    except InvalidPolicy as error:
        raise InvalidInput("--policy", f"{path}: {error}") from None
    return text


def _print(result: Replay, *, failed: bool) -> None:
    told = f"{counted(result.entries, 'entry', 'entries')} and {counted(result.decisions, 'decision')}"
    console.print(f"{told} of run {result.run}", highlight=False)
    if len(result.stretches) > 1 or result.stretches[0][0] > 1:
        kept = ", ".join(f"{first} to {last}" for first, last in result.stretches)
        lost = f", and {counted(result.beyond, 'decision')} with them" if result.beyond else ""
        console.print(f"The record holds entries {kept}; others have expired{lost}.", highlight=False)
    difference = result.difference
    if difference is None:
        console.print("[green]Every decision came out again.[/]")
        return
    console.print(f"[{'red' if failed else 'yellow'}]The first difference is at entry {difference.sequence}:[/]")
    print_plain(f"  recorded: {_told(difference.stored)}")
    print_plain(f"  replayed: {_told(difference.replayed)}")


def _told(decision: Mapping[str, Any] | None) -> str:
    if decision is None:
        return "no decision"
    target = "" if decision["target_step"] is None else f" to step {decision['target_step']} ({decision['checkpoint']})"
    chosen = f"{decision['rung']}{target}, {decision['outcome']}"
    return f"{chosen}, at step {decision['step']} for {decision['incident']}, by the rule {decision['rule']!r}"

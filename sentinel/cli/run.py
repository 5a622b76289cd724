"""Runs a training under supervision."""

from __future__ import annotations

import typer

from sentinel.launcher.options import parse
from sentinel.launcher.supervisor import supervise

PASSED_WHOLE = {"ignore_unknown_options": True, "allow_interspersed_args": False, "help_option_names": []}


def run(context: typer.Context) -> None:
    """Start a training and stand by it: sentinel run -- python train.py. Options: sentinel run --help."""
    raise typer.Exit(supervise(parse(context.args)))

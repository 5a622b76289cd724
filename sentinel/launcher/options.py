"""What the launcher is told, on the command line and in the environment."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from sentinel.protocol.ids import NAME_RULE, RunId, is_name

DEFAULT_URL: Final = "http://127.0.0.1:8321"
RESTARTS: Final = 3
"""NVIDIA's resiliency extension stops after 3 cycles without progress."""
GRACE_S: Final = 5.0
"""Likewise between SIGTERM and SIGKILL. A hung Lightning rank does not end by SIGTERM: it waits for the others."""
PATIENCE_S: Final = 30.0
"""The agent's longest back-off: a daemon that was restarted has been found again by then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Checked."""

    command: tuple[str, ...]
    url: str = DEFAULT_URL
    acts: bool = False
    restarts: int = RESTARTS
    run: RunId | None = None
    token: str | None = field(default=None, repr=False)
    grace_s: float = GRACE_S
    patience_s: float = PATIENCE_S
    """How long a daemon that does not answer is waited for before the launcher decides by itself."""


def parse(arguments: Sequence[str], environ: Mapping[str, str] = os.environ) -> Options:
    """Options from the command line, where the environment gives the defaults.

    Raises:
        SystemExit: they are wrong, or only help was asked for.
    """
    parser = argparse.ArgumentParser(
        prog="sentinel run",
        usage="sentinel run [OPTIONS] -- COMMAND...",
        description="Start a training, watch its processes, and start it again from the right checkpoint.",
        epilog="SIGTERM, SIGINT, SIGHUP, SIGUSR1 and SIGUSR2 are passed on, and nothing is started again after one "
        "of them. The exit code is the command's, or 128 and the number of the signal that ended it.",
    )
    mode = "act" if environ.get("SENTINEL_MODE") == "act" else "observe"
    modes = "act: start it again; observe, the default: only tell what would be done"
    parser.add_argument("--mode", choices=("observe", "act"), default=mode, help=modes)
    restarts = f"at most, {RESTARTS} by default"
    parser.add_argument("--restarts", type=_count, default=RESTARTS, metavar="N", help=restarts)
    name = environ.get("SENTINEL_RUN") or None
    parser.add_argument("--run", type=_run, default=name, metavar="NAME", help="the run's name")
    url = environ.get("SENTINEL_URL") or DEFAULT_URL
    parser.add_argument("--url", type=_url, default=url, help=f"the daemon, {DEFAULT_URL} by default")
    token_file = environ.get("SENTINEL_TOKEN_FILE") or None
    parser.add_argument("--token-file", type=Path, default=token_file, metavar="FILE", help="holds the daemon's token")
    grace = f"from SIGTERM to SIGKILL, {GRACE_S:g} by default"
    parser.add_argument("--grace", type=float, default=GRACE_S, metavar="SECONDS", help=grace)
    patience = f"that an absent daemon gets, {PATIENCE_S:g} by default"
    parser.add_argument("--patience", type=float, default=PATIENCE_S, metavar="SECONDS", help=patience)
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND")
    given = parser.parse_args(list(arguments))
    command = given.command[1:] if given.command[:1] == ["--"] else given.command
    if not command:
        parser.error("no command: sentinel run -- python train.py")
    token = None
    if given.token_file:
        with suppress(OSError):
            token = given.token_file.expanduser().read_text(encoding="utf-8").strip() or None
        if token is None:
            parser.error(f"--token-file: {given.token_file} cannot be read or is empty")
    return Options(
        command=tuple(command),
        url=given.url,
        acts=given.mode == "act",
        restarts=given.restarts,
        run=given.run,
        token=token,
        grace_s=given.grace,
        patience_s=given.patience,
    )


def _count(text: str) -> int:
    if not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is no number of restarts")
    return int(text)


def _run(text: str) -> RunId:
    if not is_name(text):
        raise argparse.ArgumentTypeError(f"{text!r} cannot name a run: expected {NAME_RULE}")
    return RunId(text)


def _url(text: str) -> str:
    with suppress(ValueError):
        parts = urlsplit(text)
        if parts.scheme in ("http", "https") and parts.hostname and parts.port != 0:
            return text.rstrip("/")
    raise argparse.ArgumentTypeError(f"{text!r} is not an address: expected http://HOST:PORT")

"""What the user chose: an argument goes before the environment, the environment before the default.

Nothing here stops a training: a value that cannot be used becomes a warning and the default is taken.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Final, get_args
from urllib.parse import urlsplit

from sentinel.protocol.ids import NAME_RULE, RunId, is_name
from sentinel.protocol.observations import DataMode, Mode

DEFAULT_URL: Final = "http://127.0.0.1:8321"
MODES: Final[tuple[Mode, ...]] = get_args(Mode)
DATA_MODES: Final[tuple[DataMode, ...]] = get_args(DataMode)
OPTIONS: Final = ("run", "url", "mode", "checkpoint_every", "data", "token_file")
VARIABLES: Final = {name: f"SENTINEL_{name.upper()}" for name in ("run", "url", "mode", "token_file")}
NEAR_MISS: Final = 0.88
"""Similarity from which a variable is taken for a mistyped one of ours (``SENTINEL_RUN_ID``: 0.89); the daemon's own
variables are farther away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How the agent is to behave, checked."""

    run: RunId | None = None
    """None: the agent makes up a name, and finds it again when the run is resumed."""
    url: str = DEFAULT_URL
    mode: Mode = "observe"
    checkpoint_every: int | None = None
    """Optimizer steps between checkpoints that the agent saves itself; None: it saves none."""
    data: DataMode | None = None
    """The data after a rollback: where it is (forward) or set back (exact); None: exact where that can be done."""
    token: str | None = field(default=None, repr=False)
    warnings: tuple[str, ...] = ()
    """What the user should mend; nothing of it stops anything."""


def resolve(options: Mapping[str, object], environ: Mapping[str, str] = os.environ) -> Settings:
    """Settings from the user's options and the environment.

    Args:
        options: by the names in ``OPTIONS``; None means not given. Other names are told as mistyped.
        environ: the environment.
    """
    given: dict[str, object] = {
        name: environ[variable] for name, variable in VARIABLES.items() if environ.get(variable)
    }
    given |= {name: value for name, value in options.items() if value is not None}
    warnings = [*_mistyped_options(options), *_mistyped_variables(environ)]
    return Settings(
        run=_run(given.get("run"), warnings),
        url=_url(given.get("url", DEFAULT_URL), warnings),
        mode=_mode(given.get("mode", "observe"), warnings),
        checkpoint_every=_checkpoint_every(given.get("checkpoint_every"), warnings),
        data=_data(given.get("data"), warnings),
        token=_token(given.get("token_file"), warnings),
        warnings=tuple(warnings),
    )


def _mistyped_options(options: Mapping[str, object]) -> list[str]:
    found = []
    for name in options:
        if name not in OPTIONS:
            near = get_close_matches(name, OPTIONS, n=1, cutoff=0.0)[0]
            found.append(f"there is no option {name!r}: it is ignored; did you mean {near!r}?")
    return found


def _mistyped_variables(environ: Mapping[str, str]) -> list[str]:
    own = tuple(VARIABLES.values())
    found = []
    for name in sorted(environ):
        near = get_close_matches(name.upper(), own, n=1, cutoff=NEAR_MISS)
        if near and name not in own:
            found.append(f"the variable {name} is not read: did you mean {near[0]}?")
    return found


def _run(value: object, warnings: list[str]) -> RunId | None:
    if value is None or (isinstance(value, str) and is_name(value)):
        return None if value is None else RunId(value)
    warnings.append(f"run {value!r} cannot name a run, a name is made up: expected {NAME_RULE}")
    return None


def _url(value: object, warnings: list[str]) -> str:
    text = str(value)
    try:
        parts = urlsplit(text)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number
        usable = False
    if usable:
        return text.rstrip("/")
    warnings.append(f"url {value!r} is not an address, {DEFAULT_URL} is used: expected http://HOST:PORT")
    return DEFAULT_URL


def _mode(value: object, warnings: list[str]) -> Mode:
    for mode in MODES:
        if value == mode:
            return mode
    near = get_close_matches(str(value), MODES, n=1, cutoff=0.0)
    warnings.append(f"mode {value!r} is none of {', '.join(MODES)}, 'observe' is used: did you mean {near[0]!r}?")
    return "observe"


def _checkpoint_every(value: object, warnings: list[str]) -> int | None:
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and value > 0):
        return value
    warnings.append(f"checkpoint_every={value!r} is ignored: expected a number of optimizer steps, 1 or more")
    return None


def _data(value: object, warnings: list[str]) -> DataMode | None:
    for mode in DATA_MODES:
        if value == mode:
            return mode
    if value is not None:
        warnings.append(f"data={value!r} is neither 'forward' nor 'exact': it is ignored")
    return None


def _token(value: object, warnings: list[str]) -> str | None:
    if value is None:
        return None
    try:
        token = Path(str(value)).expanduser().read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        warnings.append(f"the token file {value} cannot be read, no token is sent: {error}")
        return None
    if token.isascii() and token.isprintable() and token:
        return token
    warnings.append(f"the token file {value} holds no token, none is sent: expected one line of printable ASCII")
    return None

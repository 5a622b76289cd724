"""Which column of a log is the loss, and what its cells mean."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Final, Literal

from sentinel.domain.errors import InvalidInput

Field = Literal["step", "loss", "grad_norm", "lr", "step_s"]

NAMES: Final[Mapping[Field, tuple[str, ...]]] = {
    "step": (
        "step",
        "global_step",
        "trainer_global_step",
        "train_step",
        "train_global_step",
        "iteration",
        "iter",
        "steps",
    ),
    "loss": (
        "loss",
        "train_loss",
        "train_loss_step",
        "loss_step",
        "training_loss",
        "loss_train",
        "lm_loss",
        "train_lm_loss",
        "train_ce_loss",
        "train_cross_entropy_loss",
        "train_epoch_loss",
    ),
    "grad_norm": (
        "grad_norm",
        "train_grad_norm",
        "gradient_norm",
        "train_gradient_norm",
        "global_grad_norm",
        "train_global_grad_norm",
        "grad_norm_step",
        "total_grad_norm",
        "optim_total_grad_norm",
        "gnorm",
    ),
    "lr": ("lr", "learning_rate", "train_lr", "train_learning_rate", "optim_learning_rate_group0"),
    "step_s": ("step_time", "step_s", "step_time_s", "train_step_time", "iteration_time", "seconds_per_step"),
}
"""Names as the loggers in use write them, best first; compared in lower case, with every other sign as ``_``."""

_MISSING: Final = frozenset({"", "none", "null", "na", "n/a", "<na>", "-"})
_NOT_A_NUMBER: Final = re.compile(r"[+-]?(nan(\(\w*\))?|1\.#(qnan|snan|ind)\d*)")
_INFINITE: Final = re.compile(r"([+-]?)(inf(inity)?|∞|1\.#inf\d*)")


def pick_columns(columns: Iterable[str], chosen: Mapping[Field, str], *, where: str) -> dict[Field, str]:
    """The column of each field that the log has.

    Args:
        columns: names as they stand in the log.
        chosen: columns that the caller named; they win.
        where: the file, for the error.

    Raises:
        InvalidInput: a chosen column is not there, or neither a loss nor a gradient norm can be found.
    """
    present = list(columns)
    by_name = {_plain(column): column for column in reversed(present)}
    found: dict[Field, str] = {}
    for field, names in NAMES.items():
        if field in chosen:
            if chosen[field] not in present:
                raise InvalidInput(where, f"there is no column {chosen[field]!r}; it has {_listed(present)}")
            found[field] = chosen[field]
            continue
        name = next((name for name in names if name in by_name), None)
        if name is not None:
            found[field] = by_name[name]
    if "lr" not in found:  # Lightning's LearningRateMonitor: lr-AdamW, lr-AdamW/pg1
        schedules = sorted(name for name in by_name if name.startswith("lr_"))
        if schedules:
            found["lr"] = by_name[schedules[0]]
    if "loss" not in found and "grad_norm" not in found:
        raise InvalidInput(
            where, f"no column looks like a training loss; name it with --column loss=NAME; it has {_listed(present)}"
        )
    return found


def number(cell: object, *, where: str) -> float | None:
    """The value of a cell, NaN and infinity in any spelling; None where nothing was recorded.

    Raises:
        InvalidInput: it is no number; ``where`` names file, line and column.
    """
    if cell is None:
        return None
    if isinstance(cell, int | float) and not isinstance(cell, bool):
        return float(cell)
    text = str(cell).strip()
    try:
        return float(text)
    except ValueError:
        pass
    lower = text.lower()
    if lower in _MISSING:
        return None
    if _NOT_A_NUMBER.fullmatch(lower):
        return math.nan
    if infinite := _INFINITE.fullmatch(lower):
        return -math.inf if infinite[1] == "-" else math.inf
    raise InvalidInput(where, f"{text[:40]!r} is not a number; leave a cell empty where nothing was recorded")


def _plain(column: str) -> str:
    """A name without the run's name that W&B's export puts before it, and without punctuation."""
    return re.sub(r"[^a-z0-9]+", "_", column.rpartition(" - ")[2].strip().lower()).strip("_")


def _listed(columns: list[str]) -> str:
    shown = ", ".join(repr(column) for column in columns[:12])
    return shown + (f" and {len(columns) - 12} more" if len(columns) > 12 else "") if columns else "none"
